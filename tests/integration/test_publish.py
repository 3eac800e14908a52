"""Publishing to a real Apache Kafka, also while it is killed."""

import gzip
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fluvial import Publisher, ToolCall
from fluvial.schemas.codec import decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.tool_call import event_id_of
from fluvial.schemas.topics import DEAD_LETTERS, TOOL_CALLS
from fluvial.streams.admin import ensure_topics
from fluvial.streams.broker import LocalBroker
from fluvial.streams.broker_ports import free_port
from fluvial.streams.log_reader import LogReader, LogRecord

MAPPING = str(Path(__file__).parents[2] / "examples" / "mapping.toml")
SECRET = "0x" + "ab" * 32


def call(run: str = "r", seq: int = 0, **fields: object) -> ToolCall:
    return ToolCall(source="s", run_id=run, tool="t", seq=seq, **fields)  # type: ignore[arg-type]


def records(broker: str, name: str) -> list[LogRecord]:
    with LogReader(broker, timeout=30) as reader:
        return list(reader.read(reader.spans(reader.partitions(name))))


def calls_in(broker: str, prefix: str) -> list[ToolCall]:
    return [decode(record.value or b"", ToolCall) for record in records(broker, TOOL_CALLS.named(prefix))]


def letters_in(broker: str, prefix: str) -> list[DeadLetter]:
    return [decode(record.value or b"", DeadLetter) for record in records(broker, DEAD_LETTERS.named(prefix))]


class Command:
    """`fluvial publish` on the topics of this test."""

    def __init__(self, broker: str, prefix: str) -> None:
        self.environment = os.environ | {"FLUVIAL_BROKER": broker, "FLUVIAL_TOPIC_PREFIX": prefix}

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fluvial", "publish", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe)

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        process = self.start(*arguments)
        out, said = process.communicate(stdin, timeout=120)
        return process.returncode, out.decode(), said.decode()


@pytest.fixture
def command(kafka: str, topic_prefix: str) -> Command:
    return Command(kafka, topic_prefix)


@pytest.fixture
def publisher(kafka: str, topic_prefix: str) -> Iterator[Publisher]:
    with Publisher(kafka, topic_prefix=topic_prefix) as publisher:
        yield publisher


# The client


def test_every_call_is_in_the_log_once_keyed_by_its_run_and_in_its_order(
    kafka: str, topic_prefix: str, publisher: Publisher
) -> None:
    ids = [publisher.publish(call(f"run-{n % 20}", n)) for n in range(2_000)]
    assert publisher.flush(30)
    runs, partitions = defaultdict(list), defaultdict(set)
    for record in records(kafka, TOOL_CALLS.named(topic_prefix)):
        sent = decode(record.value or b"", ToolCall)
        assert record.key == f"s|{sent.run_id}".encode()
        assert sent.event_id == event_id_of(call(sent.run_id, sent.seq or 0))
        runs[sent.run_id].append(sent.seq)
        partitions[sent.run_id].add(record.partition)
    assert {name: numbers == list(range(int(name[4:]), 2_000, 20)) for name, numbers in runs.items()} == {
        f"run-{n}": True for n in range(20)
    }
    assert all(len(places) == 1 for places in partitions.values())
    assert len(set(ids)) == 2_000
    counts = publisher.counts()
    assert (counts.accepted, counts.delivered, counts.pending, counts.failed) == (2_000, 2_000, 0, 0)


def test_many_threads_share_a_publisher(kafka: str, topic_prefix: str, publisher: Publisher) -> None:
    def work(number: int) -> None:
        for seq in range(100):
            publisher.publish(call(f"run-{number}", seq))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.flush(30)
    seen = Counter(sent.run_id for sent in calls_in(kafka, topic_prefix))
    assert seen == {f"run-{number}": 100 for number in range(8)}


def test_a_refused_call_is_a_dead_letter_with_the_reason_and_without_its_secrets(
    kafka: str, topic_prefix: str, publisher: Publisher
) -> None:
    assert (
        publisher.publish(ToolCall(source="s", run_id="r", tool="", event_id="mine", args={"password": SECRET})) is None
    )
    assert publisher.publish(call()) is not None
    assert publisher.flush(30)
    (letter,) = letters_in(kafka, topic_prefix)
    assert (letter.hop, letter.topic, letter.event_id) == ("publish", "s", "mine")
    assert letter.reason == "not a valid ToolCall: tool is empty"
    assert '"run_id":"r"' in letter.value
    assert SECRET not in letter.value
    counts = publisher.counts()
    assert (counts.refused, counts.accepted, counts.delivered) == (1, 1, 1)


def test_the_longest_call_that_is_taken_comes_through(kafka: str, topic_prefix: str, publisher: Publisher) -> None:
    random_text = os.urandom(2_080_000).hex()
    assert publisher.publish(call(args=random_text))
    assert publisher.flush(30)
    assert calls_in(kafka, topic_prefix)[0].args == random_text


def test_leaving_the_block_delivers_what_is_left(kafka: str, topic_prefix: str) -> None:
    with Publisher(kafka, topic_prefix=topic_prefix) as publisher:
        publisher.publish(call())
    assert len(calls_in(kafka, topic_prefix)) == 1


def test_the_end_of_the_process_delivers_what_is_left(kafka: str, topic_prefix: str) -> None:
    code = "from fluvial import Publisher, ToolCall; Publisher().publish(ToolCall(source='s', run_id='r', tool='t'))"
    environment = os.environ | {"FLUVIAL_BROKER": kafka, "FLUVIAL_TOPIC_PREFIX": topic_prefix}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=True)
    assert ended.stderr == b""
    assert len(calls_in(kafka, topic_prefix)) == 1


def test_a_forked_child_publishes_its_own_calls_and_only_those(kafka: str, topic_prefix: str) -> None:
    code = """
import os, sys
from fluvial import Publisher, ToolCall
publisher = Publisher()
for seq in range(50):
    publisher.publish(ToolCall(source="s", run_id="parent", tool="t", seq=seq))
child = os.fork()
if child == 0:
    assert publisher.counts().accepted == 0
    for seq in range(50):
        publisher.publish(ToolCall(source="s", run_id="child", tool="t", seq=seq))
    publisher.close()
    sys.exit(0 if publisher.counts().delivered == 50 else 7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
publisher.close()
assert publisher.counts().delivered == 50
"""
    environment = os.environ | {"FLUVIAL_BROKER": kafka, "FLUVIAL_TOPIC_PREFIX": topic_prefix}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, timeout=60, check=True)
    assert Counter(sent.run_id for sent in calls_in(kafka, topic_prefix)) == {"parent": 50, "child": 50}


def test_a_broker_that_comes_dies_and_comes_back_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fluvial.publish")
    broker = LocalBroker(tmp_path / "kafka", port=free_port())
    address = f"127.0.0.1:{broker._port}"
    publisher = Publisher(address)
    numbers = iter(range(1_000_000))

    def publish(count: int) -> None:
        for _ in range(count):
            number = next(numbers)
            publisher.publish(call(f"run-{number % 8}", number))

    publish(500)
    assert not publisher.ready(0.1)
    with broker:
        assert not publisher.ready(3)
        assert "has no topic tool-calls; `fluvial up` makes it" in publisher.problem
        ensure_topics(address)
        publish(500)
        assert publisher.flush(30)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        for _ in range(60):
            publish(10)
            time.sleep(0.1)
        assert "has acknowledged nothing" in publisher.problem
        assert publisher.counts().pending == 600
        broker.start()
        publish(400)
        assert publisher.flush(60)
        counts = publisher.counts()
        publisher.close()
        runs = defaultdict(list)
        for sent in calls_in(address, ""):
            runs[sent.run_id].append(sent.seq)
    assert runs == {f"run-{n}": list(range(n, 2_000, 8)) for n in range(8)}
    assert (counts.accepted, counts.delivered, counts.failed, counts.dropped) == (2_000, 2_000, 0, 0)
    assert counts.outages == 2
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(" ")[0] for text in said] == ["No", "The", "The", "The"]
    assert sum("said once" in text for text in said) == 2
    assert sum("answers again" in text for text in said) == 2


# The command


def test_all_real_calls_are_published_or_refused_and_a_second_time_adds_no_id(
    kafka: str, topic_prefix: str, command: Command, shared: Path
) -> None:
    files = sorted(map(str, (shared / "data" / "agents").glob("*.jsonl.gz")))
    code, out, said = command.run("--map", MAPPING, "--json", *files)
    assert (code, said) == (0, "")
    assert msgspec.json.decode(out) == {"read": 11_513, "published": 11_484, "refused": 29}
    calls, letters = calls_in(kafka, topic_prefix), letters_in(kafka, topic_prefix)
    ids = {sent.event_id for sent in calls}
    assert (len(calls), len(ids), len({letter.id for letter in letters})) == (11_484, 11_484, 29)
    for letter in letters:
        line = gzip.decompress((shared / "data" / "agents" / letter.topic).read_bytes()).splitlines()[letter.offset - 1]
        assert letter.value == line.decode()
        assert letter.reason == "not a valid ToolCall: tool is empty"
    runs = defaultdict(list)
    for sent in calls:
        runs[sent.source, sent.run_id].append(sent.seq)
    assert all(numbers == sorted(numbers) for numbers in runs.values())

    assert command.run("--map", MAPPING, files[0])[0] == 0
    assert {sent.event_id for sent in calls_in(kafka, topic_prefix)} == ids
    assert {letter.id for letter in letters_in(kafka, topic_prefix)} == {letter.id for letter in letters}


def test_a_publish_that_is_killed_and_run_again_loses_and_doubles_no_id(
    kafka: str, topic_prefix: str, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(call(f"run-{n % 50}", n)) + b"\n" for n in range(12_000)))
    process = command.start(str(path))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not records(kafka, TOOL_CALLS.named(topic_prefix)):
        pass
    process.kill()
    process.communicate()
    before = len(calls_in(kafka, topic_prefix))
    assert 0 < before < 12_000
    code, out, _ = command.run(str(path), "--json")
    assert (code, msgspec.json.decode(out)) == (0, {"read": 12_000, "published": 12_000, "refused": 0})
    ids = [sent.event_id for sent in calls_in(kafka, topic_prefix)]
    assert (len(ids), len(set(ids))) == (before + 12_000, 12_000)


def test_lines_that_cannot_be_used_are_dead_letters_with_their_place(
    kafka: str, topic_prefix: str, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    lines = [
        msgspec.json.encode(call()),
        b"{broken",
        b"",
        b'{"source": "s", "run_id": "r", "event_id": "mine"}',
        b"\xff\xfe",
        b'{"source": "s", "run_id": "r", "tool": "t", "args": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
        b'{"source": "s", "run_id": "r", "tool": "", "args": {"private_key": "' + SECRET.encode() + b'"}}',
        b'{"source": "s", "run_id": "r", "tool": "t", "args": "' + b"x" * 17_000_000 + b'"}',
        msgspec.json.encode(call(seq=1)),
    ]
    path.write_bytes(b"\n".join(lines))
    code, out, said = command.run(str(path))
    assert (code, said) == (0, "")
    assert out == "8 read, 2 published, 6 refused; `fluvial dead-letters` says why\n"
    letters = {letter.offset: letter for letter in letters_in(kafka, topic_prefix)}
    assert {letter.topic for letter in letters.values()} == {"calls.jsonl"}
    reasons = {offset: letter.reason for offset, letter in sorted(letters.items())}
    assert reasons == {
        2: "not JSON: JSON is malformed: object keys must be strings (byte 1)",
        4: "not a valid ToolCall: Object missing required field `tool`",
        5: "not JSON: JSON is malformed: invalid character (byte 0)",
        6: "nested too deeply (about 1,000 levels are read)",
        7: "not a valid ToolCall: tool is empty",
        8: "too long: more than 16 MiB on one line",
    }
    assert letters[2].value == "{broken"
    assert letters[4].event_id == "mine"
    assert SECRET not in letters[7].value


def test_stdin_is_read_plain_and_packed(kafka: str, topic_prefix: str, command: Command) -> None:
    line = msgspec.json.encode(call()) + b"\n"
    assert command.run("-", stdin=line)[:2] == (0, "1 read, 1 published, 0 refused\n")
    assert command.run("-", stdin=gzip.compress(line * 2 + b"no"))[0] == 0
    assert len({sent.event_id for sent in calls_in(kafka, topic_prefix)}) == 1
    assert [(letter.topic, letter.offset) for letter in letters_in(kafka, topic_prefix)] == [("stdin", 3)]


def test_of_a_cut_file_everything_readable_is_published_and_the_exit_code_is_one(
    kafka: str, topic_prefix: str, command: Command, shared: Path, tmp_path: Path
) -> None:
    whole = shared / "data" / "agents" / "tau_airline_gpt4o.jsonl.gz"
    (tmp_path / "cut.jsonl.gz").write_bytes(whole.read_bytes()[:40_000])
    one = tmp_path / "one.jsonl"
    one.write_bytes(gzip.decompress(whole.read_bytes()).splitlines()[-1])
    code, out, said = command.run("--json", "--map", MAPPING, str(tmp_path / "cut.jsonl.gz"), str(one))
    counts = msgspec.json.decode(out)
    assert code == 1
    assert said.startswith(f"cut.jsonl.gz is damaged after line {counts['read'] - 1}: compressed file ended before")
    assert said.endswith("What stood before is published.\n")
    assert 100 < counts["published"] == counts["read"] < 820
    assert len(calls_in(kafka, topic_prefix)) == counts["published"]


def test_a_file_that_is_not_there_ends_the_command_before_anything_is_sent(
    kafka: str, topic_prefix: str, command: Command, tmp_path: Path
) -> None:
    good = tmp_path / "good.jsonl"
    good.write_bytes(msgspec.json.encode(call()))
    for arguments in ([str(good), str(tmp_path / "none")], [str(good), str(tmp_path)], ["--map", "none", str(good)]):
        code, out, said = command.run(*arguments)
        assert (code, out, said.count("\n")) == (1, "", 1)
    assert calls_in(kafka, topic_prefix) == []


def test_a_mapping_with_a_mistake_ends_the_command_before_anything_is_sent(
    kafka: str, topic_prefix: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "m.toml").write_text("sorce = 's'\n")
    code, out, said = command.run("--map", str(tmp_path / "m.toml"), "-", stdin=msgspec.json.encode(call()))
    assert (code, out) == (1, "")
    assert said.endswith("m.toml:1: sorce is no field of a tool call (did you mean source?).\n")
    assert calls_in(kafka, topic_prefix) == []


def test_a_broker_that_goes_away_for_good_ends_the_command_in_bounded_time_with_what_is_published(
    tmp_path: Path,
) -> None:
    with LocalBroker(tmp_path / "kafka") as broker:
        ensure_topics(broker.address)
        process = Command(broker.address, "").start("-", "--timeout", "4", "--json")
        assert process.stdin is not None
        assert broker.pid is not None
        process.stdin.write(b"".join(msgspec.json.encode(call(seq=n)) + b"\n" for n in range(100)))
        process.stdin.flush()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and len(records(broker.address, "tool-calls")) < 100:
            pass
        os.kill(broker.pid, signal.SIGKILL)
        begun = time.monotonic()
        out, said = process.communicate(b"".join(msgspec.json.encode(call(seq=n)) + b"\n" for n in range(100, 200)), 60)
        assert time.monotonic() - begun < 30
    assert (process.returncode, out) == (1, b"")
    text = said.decode()
    assert "100 of 200 lines read are published. Run the same command again" in text
    assert text.count("\n") == 1
