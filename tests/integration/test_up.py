"""`fluvial up` as the process it is, with a local broker of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.balance import assert_balanced
from support.up import Up

from fluvial.streams.supervise import sole


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A data folder and a broker of this test's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")}
    own = {"DATA": str(tmp_path / "data"), "KAFKA_PORT": "0", "QUACK_PORT": "0", "TICK_SECONDS": "0.5"}
    return inherited | {f"FLUVIAL_{name}": value for name, value in own.items()}


@pytest.fixture
def up(environment: dict[str, str]) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        started.append(Up(environment, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()
    gone_within(30, {pid for one in started for pid in one.pids()})


def gone_within(seconds: float, pids: set[int]) -> None:
    deadline = time.monotonic() + seconds
    while alive := {pid for pid in pids if is_running(pid)}:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def fluvial(environment: Mapping[str, str], *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "fluvial", *arguments],
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def calls(first: int, last: int) -> str:
    return "".join(
        json.dumps({"type": "tool_call", "source": "s", "run_id": f"r{n % 5}", "tool": "search", "seq": n}) + "\n"
        for n in range(first, last)
    )


def landed(environment: Mapping[str, str]) -> int:
    lines = fluvial(environment, "status", "--json").stdout.splitlines()
    return next(int(hop["in"]) for hop in map(json.loads, lines) if hop["hop"] == "land")


def test_it_runs_until_ctrl_c_and_a_second_start_goes_on_where_the_first_stopped(
    up: Callable[..., Up], environment: dict[str, str]
) -> None:
    first = up()
    first.until("ready", "broker", "land", "learn", "keep")
    published = fluvial(environment, "publish", "--json", "-", stdin=calls(0, 30))
    assert json.loads(published.stdout) == {"read": 30, "published": 30, "refused": 0}
    drained = fluvial(environment, "drain", "--timeout", "120")
    assert drained.returncode == 0, drained.stderr
    assert landed(environment) == 30
    assert first.interrupt() == 0
    gone_within(1, first.pids())

    second = up()
    second.until("ready", "broker", "land", "learn", "keep")
    fluvial(environment, "publish", "-", stdin=calls(30, 40))
    assert fluvial(environment, "drain", "--timeout", "120").returncode == 0
    assert landed(environment) == 40
    broker = next(str(line["broker"]) for line in second.said if line["what"] == "begin")
    assert_balanced(broker, "", Path(environment["FLUVIAL_DATA"]))
    assert second.interrupt(signal.SIGTERM) == 0
    gone_within(1, second.pids())


def test_what_is_killed_is_started_again_and_kill_9_of_up_itself_leaves_nothing_behind(
    up: Callable[..., Up], environment: dict[str, str], tmp_path: Path
) -> None:
    one = up("--hops", "gather,notify")
    _, learn = one.until("ready", "broker", "learn")
    os.kill(learn["pid"], signal.SIGKILL)
    (ended,) = one.until("ended", "learn")
    assert (ended["code"], ended["again_in"]) == (-signal.SIGKILL, 1.0)
    one.until("ready", "learn")

    (broker,) = (line for line in one.said if line.get("name") == "broker")
    os.kill(broker["pid"], signal.SIGKILL)
    one.until("ended", "broker")
    one.until("ready", "broker")

    again = fluvial(environment, "up")
    assert again.returncode == 1
    assert again.stderr.splitlines() == [
        f"`fluvial up` already runs on {tmp_path / 'data'} (process {one.process.pid}). "
        "Stop it first, or choose another folder with --data."
    ]

    one.process.kill()
    one.process.wait()
    gone_within(30, one.pids())
    other = up("--hops", "notify")
    other.until("ready", "broker", "learn")
    assert other.interrupt() == 0


def test_a_held_data_folder_is_said_before_anything_is_started(environment: dict[str, str], tmp_path: Path) -> None:
    with sole(tmp_path / "data"):
        ended = fluvial(environment, "up")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"`fluvial up` already runs on {tmp_path / 'data'} (process {os.getpid()}).")
    assert ended.stdout == ""


def test_a_data_folder_that_cannot_be_made_is_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = fluvial(environment, "up", "--data", str(tmp_path / "file" / "data"))
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert str(tmp_path / "file") in ended.stderr


def test_a_broker_that_does_not_answer_is_one_sentence(environment: dict[str, str]) -> None:
    ended = fluvial(environment, "up", "--broker", "127.0.0.1:1")
    assert ended.returncode == 1
    assert ended.stderr.startswith("No Kafka broker answers at 127.0.0.1:1")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("hops", "sentence"),
    [
        (
            "sea",
            "--hops: 'sea' is no hop; there are spans, logs, events, join, land, watch, gather, distil, keep, notify.",
        ),
        (",", "--hops names"),
    ],
)
def test_a_wrong_name_of_a_hop_is_wrong_use(environment: dict[str, str], hops: str, sentence: str) -> None:
    ended = fluvial(environment, "up", "--hops", hops)
    assert ended.returncode == 2
    assert ended.stderr.startswith(sentence)
