"""The spool and a real Apache Kafka: agents and the broker die, and what was published arrives in order."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError

from fluvial import Publisher, ToolCall
from fluvial.producer import Producer
from fluvial.schemas.codec import decode
from fluvial.schemas.topics import TOOL_CALLS
from fluvial.streams.admin import ensure_topics
from fluvial.streams.broker import LocalBroker
from fluvial.streams.log_reader import LogReader

AGENT = """
import sys
from fluvial import Publisher, ToolCall
first, last, close_timeout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
publisher = Publisher(close_timeout=close_timeout)
for seq in range(first, last):
    taken = publisher.publish(ToolCall(source="s", run_id=f"run-{seq % 5}", tool="t", seq=seq, args="x" * 200))
    print(seq if taken else "dropped", flush=True)
if close_timeout < 0:
    sys.stdin.readline()
"""


def call(seq: int) -> ToolCall:
    return ToolCall(source="s", run_id=f"run-{seq % 5}", tool="t", seq=seq)


def calls_in(broker: str, prefix: str) -> list[ToolCall]:
    with LogReader(broker, timeout=30) as reader:
        spans = reader.spans(reader.partitions(TOOL_CALLS.named(prefix)))
        return [decode(record.value or b"", ToolCall) for record in reader.read(spans)]


def first_times(calls: list[ToolCall]) -> dict[str, list[int]]:
    """The numbers of each run in the order in which the log has them first."""
    runs: dict[str, dict[int, None]] = defaultdict(dict)
    for sent in calls:
        runs[sent.run_id][sent.seq or 0] = None
    return {run: list(numbers) for run, numbers in runs.items()}


def in_order(numbers: range) -> dict[str, list[int]]:
    return {f"run-{n}": [seq for seq in numbers if seq % 5 == n] for n in range(5)}


class Agents:
    """Processes that publish, and the command line, with one spool."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.environment = {**environment, "FLUVIAL_DATA": str(folder)}
        self.spool = folder / "spool"

    def start(self, first: int, last: int, close_timeout: float = -1) -> "subprocess.Popen[bytes]":
        """An agent that says each number it has published; without a time to close it then waits to be killed."""
        command = [sys.executable, "-c", AGENT, str(first), str(last), str(close_timeout)]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def killed_after(self, first: int, last: int) -> None:
        """An agent that has published these numbers and is then killed."""
        agent = self.start(first, last)
        assert agent.stdout is not None
        for seq in range(first, last):
            assert int(agent.stdout.readline()) == seq
        agent.kill()
        agent.communicate()

    def publish_spooled(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "fluvial", "publish", "--spooled", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of these tests' own, to be stopped and killed."""
    with LocalBroker(tmp_path_factory.mktemp("spool") / "kafka") as broker:
        yield broker


@pytest.fixture
def agents(broker: LocalBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Agents:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")}
    prefix = f"t{random.getrandbits(40):x}-"
    ensure_topics(broker.address, prefix=prefix)
    return Agents(inherited | {"FLUVIAL_BROKER": broker.address, "FLUVIAL_TOPIC_PREFIX": prefix}, tmp_path)


def log_of(agents: Agents) -> list[ToolCall]:
    return calls_in(agents.environment["FLUVIAL_BROKER"], agents.environment["FLUVIAL_TOPIC_PREFIX"])


def test_agents_killed_while_the_broker_is_away_are_delivered_by_the_next_one_in_the_order_of_their_runs(
    agents: Agents, broker: LocalBroker
) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    agents.killed_after(0, 400)
    agents.killed_after(400, 700)
    assert agents.spool.exists()
    broker.start()
    agents.start(700, 1_000, close_timeout=60).communicate()
    calls = log_of(agents)
    assert first_times(calls) == in_order(range(1_000))
    assert len(calls) == 1_000
    assert not agents.spool.exists(), "nothing stays on disk when everything is delivered"


def test_a_frozen_broker_and_a_killed_agent_lose_nothing_and_the_command_delivers_it(
    agents: Agents, broker: LocalBroker
) -> None:
    agent = agents.start(0, 2_000)
    assert agent.stdout is not None
    assert broker.pid is not None
    for seq in range(2_000):
        if seq == 1_000:
            os.kill(broker.pid, signal.SIGSTOP)
        agent.stdout.readline()
    agent.kill()
    agent.communicate()
    os.kill(broker.pid, signal.SIGCONT)
    before = len(log_of(agents))
    done = agents.publish_spooled()
    assert (done.returncode, done.stderr) == (0, "")
    assert "calls published that ended agents had left" in done.stdout
    assert first_times(log_of(agents)) == in_order(range(2_000))
    assert before < 2_000 <= len(log_of(agents))
    assert not agents.spool.exists()
    again = agents.publish_spooled("--json")
    assert again.stdout == '{"published":0,"damaged":0,"torn":0}\n'


def test_agents_killed_between_sending_and_the_acknowledgement_add_no_event(agents: Agents) -> None:
    said = 0
    for seed in range(4):
        agent = agents.start(said, said + 100_000)
        assert agent.stdout is not None
        for _ in range(random.Random(seed).randrange(1_000, 3_000)):
            said = int(agent.stdout.readline()) + 1
        agent.kill()
        said += len(agent.stdout.read().splitlines())
        agent.communicate()
    assert agents.publish_spooled().returncode == 0
    calls = log_of(agents)
    ids = {sent.event_id for sent in calls}
    # A kill may fall between the append and its being said, so the next agent may publish that number again: same id.
    assert {sent.seq for sent in calls} >= set(range(said))
    assert len(ids) == len({sent.seq for sent in calls}) <= said + 1
    for numbers in first_times(calls).values():
        assert [pair for pair in pairwise(numbers) if pair[0] > pair[1]] == []
    assert not agents.spool.exists()


def test_the_command_leaves_the_spools_of_agents_that_run_and_of_other_brokers_and_says_where_they_are(
    agents: Agents, tmp_path: Path
) -> None:
    with Publisher("127.0.0.1:1", spool=agents.spool, close_timeout=0) as elsewhere:
        elsewhere.publish(call(1))
    done = agents.publish_spooled()
    assert (done.returncode, done.stdout) == (0, "0 calls published that ended agents had left\n")
    assert done.stderr.startswith(f"{agents.spool / '127.0.0.1_1'} still has spools")


def test_the_command_says_when_it_is_used_wrongly(agents: Agents) -> None:
    for arguments in (["calls.jsonl"], ["--map", "m.toml"]):
        done = agents.publish_spooled(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "Name files to publish (`-` is stdin), or --spooled alone.\n"


def test_without_a_broker_the_command_ends_in_time_and_the_spool_stays(agents: Agents) -> None:
    agents.environment["FLUVIAL_BROKER"] = "127.0.0.1:1"
    agents.start(0, 10, close_timeout=0).communicate()
    done = agents.publish_spooled("--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No Kafka broker answers at 127.0.0.1:1")
    assert len(list(agents.spool.rglob("*.spool"))) == 1


def test_a_broker_that_refuses_for_a_while_is_waited_for_and_only_what_no_broker_takes_has_failed(
    broker: LocalBroker, agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    send, refusals = Producer.send, 3
    lock = threading.Lock()

    def refusing(self: Producer, topic: str, value: bytes, key: bytes, **more: Any) -> Any:
        nonlocal refusals
        seq = decode(value, ToolCall).seq
        if seq == 70:
            raise MessageSizeTooLargeError("too large")
        with lock:
            refusals -= seq == 40
            if refusals >= 0 and seq == 40:
                raise TopicAuthorizationFailedError("not yours")
        return send(self, topic, value, key, **more)

    monkeypatch.setattr(Producer, "send", refusing)
    prefix = agents.environment["FLUVIAL_TOPIC_PREFIX"]
    publisher = Publisher(broker.address, topic_prefix=prefix, spool=tmp_path / "spool")
    for seq in range(100):
        publisher.publish(call(seq))
    assert not publisher.flush(60)
    counts = publisher.counts()
    assert (counts.accepted, counts.delivered, counts.failed, counts.pending) == (100, 99, 1, 0)
    assert {number for numbers in first_times(log_of(agents)).values() for number in numbers} == set(range(100)) - {70}
    publisher.close()
    assert not (tmp_path / "spool").exists()
