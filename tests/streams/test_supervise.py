import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluvial.schemas.topics import HOPS
from fluvial.streams import child as child_module
from fluvial.streams import supervise
from fluvial.streams.child import NO_BROKER, Child
from fluvial.streams.supervise import AlreadyRunning, Change, GaveUp, Restarts, Supervisor, groups_of, sole

ARGUMENTS = """
import os, signal, sys, time
ready_fd = int(sys.argv[sys.argv.index("--ready-fd") + 1])
parent = int(sys.argv[sys.argv.index("--parent") + 1])
"""
HEALTHY = ARGUMENTS + "os.close(ready_fd); print('working', flush=True); time.sleep(60)"
STUBBORN = ARGUMENTS + "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.close(ready_fd); time.sleep(60)"
LONELY = ARGUMENTS + f"print('fluvial: no Kafka broker answers'); sys.exit({NO_BROKER})"
BROKEN = ARGUMENTS + "print('first line'); sys.exit('the disk is full')"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[str, str], Child]]:
    made: list[Child] = []

    def make(name: str, script: str) -> Child:
        made.append(Child(name, [sys.executable, "-c", script], tmp_path / f"{name}.log", {}))
        return made[-1]

    yield make
    for one in made:
        one.kill()


class Stopped(Exception):
    """What ends a supervisor in a test."""


class Told:
    """Hears of changes; raises Stopped at the one it waits for."""

    def __init__(self, until: Callable[[Change], bool]) -> None:
        self.changes: list[Change] = []
        self._until = until

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        if self._until(change):
            raise Stopped

    def lines(self) -> list[tuple[str, str]]:
        return [(change.child, change.what) for change in self.changes]


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(119.0) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, None]


def test_two_minutes_of_health_forgive_what_was_before() -> None:
    restarts = Restarts()
    for _ in range(4):
        restarts.pause_after(0.0)
    assert restarts.pause_after(120.0) == 1.0
    assert restarts.pause_after(0.0) == 2.0


def test_hops_are_grouped_into_processes() -> None:
    assert groups_of(list(HOPS)) == {
        "receive": ("spans", "logs", "events", "join"),
        "land": ("land",),
        "learn": ("watch", "gather", "distil", "notify"),
        "keep": ("keep",),
    }
    assert groups_of(["notify", "watch"]) == {"learn": ("watch", "notify")}


def test_a_name_that_is_no_hop_is_told() -> None:
    with pytest.raises(
        ValueError,
        match="'sea' is no hop; there are spans, logs, events, join, land, watch, gather, distil, keep, notify",
    ):
        groups_of(["land", "sea"])


def test_children_are_started_and_said_to_be_ready(child: Callable[[str, str], Child]) -> None:
    told = Told(lambda change: change.what == "ready")
    supervisor = Supervisor([child("a", HEALTHY)], told)
    with pytest.raises(Stopped):
        supervisor.run()
    supervisor.stop()
    assert told.lines() == [("a", "started"), ("a", "ready"), ("a", "stopped")]
    assert told.changes[-1].code == -signal.SIGTERM


def test_a_child_that_ends_is_started_again_after_its_pause(child: Callable[[str, str], Child]) -> None:
    one = child("a", HEALTHY)
    told = Told(lambda change: sum(c.what == "ready" for c in told.changes) == 2)

    def tell(change: Change) -> None:
        if change.what == "ready" and len(told.changes) == 1:
            os.kill(change.pid or 0, signal.SIGKILL)
        told(change)

    supervisor = Supervisor([one], tell)
    begun = time.monotonic()
    with pytest.raises(Stopped):
        supervisor.run()
    assert time.monotonic() - begun > 1.0
    assert told.lines() == [("a", "started"), ("a", "ready"), ("a", "ended"), ("a", "started"), ("a", "ready")]
    ended = told.changes[2]
    assert (ended.code, ended.pause, ended.reason) == (-signal.SIGKILL, 1.0, "")


def test_a_child_that_ends_again_and_again_is_given_up_with_its_last_lines(
    child: Callable[[str, str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    told = Told(lambda _: False)
    supervisor = Supervisor([child("a", BROKEN), child("b", HEALTHY)], told)
    with pytest.raises(GaveUp, match=r"a ended 5 times in a row; see .*a\.log") as caught:
        supervisor.run()
    supervisor.stop()
    assert str(caught.value).endswith("  first line\n  the disk is full")
    ends = [change for change in told.changes if change.what == "ended"]
    assert [(change.code, change.reason) for change in ends] == [(1, "the disk is full")] * 5
    assert told.lines()[-1] == ("b", "stopped")


def test_a_child_that_no_broker_answers_is_started_again_for_ever_and_that_is_said_once(
    child: Callable[[str, str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.0)
    told = Told(lambda _: False)
    one = child("a", LONELY)
    supervisor, kept = Supervisor([one], told), supervise.Kept(one)
    while kept.restarts.unanswered < supervise.TRIES + 2:
        supervisor.look_after(kept, time.monotonic())
        time.sleep(0.01)
    assert told.lines() == [("a", "started"), ("a", "ended")]
    assert (told.changes[-1].code, told.changes[-1].reason) == (NO_BROKER, "no Kafka broker answers")
    assert kept.restarts.fruitless == 0


def test_pauses_without_a_broker_double_and_neither_count_nor_forgive() -> None:
    restarts = Restarts()
    restarts.pause_after(0.0)
    assert [restarts.pause_without_broker() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert restarts.pause_after(0.0) == 2.0


def test_a_child_that_does_not_listen_is_killed_in_the_end(
    child: Callable[[str, str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "STOP_SECONDS", 0.3)
    told = Told(lambda change: change.what == "ready")
    supervisor = Supervisor([child("a", STUBBORN)], told)
    with pytest.raises(Stopped):
        supervisor.run()
    supervisor.stop()
    assert told.changes[-1].code == -signal.SIGKILL


def test_a_log_that_grew_too_large_begins_anew_and_keeps_the_former_one(
    child: Callable[[str, str], Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "LOG_BYTES", 10)
    one = child("a", HEALTHY)
    one.log.write_text("0123456789\nlast\n")
    assert one.last_lines(1) == ["last"]
    one.bound_log()
    assert one.log.read_text() == ""
    assert (tmp_path / "a.log.1").read_text() == "0123456789\nlast\n"


def test_one_data_folder_has_one_supervisor(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        sole(data),
        pytest.raises(AlreadyRunning, match=rf"already runs on .*data \(process {os.getpid()}\)"),
        sole(data),
    ):
        pass
    with sole(data):
        pass


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    worker = "import sys; from fluvial.streams.lifeline import end_with; " + (
        "end_with(int(sys.argv[sys.argv.index('--parent') + 1])); print('alive', flush=True); "
        "import time; time.sleep(60)"
    )
    parent = (
        "import sys, time; from pathlib import Path; from fluvial.streams.child import Child; "
        f"child = Child('a', [sys.executable, '-c', {worker!r}], Path(sys.argv[1]), {{}}); "
        "child.start(); print(child.pid, flush=True); time.sleep(60)"
    )
    log = tmp_path / "a.log"
    with subprocess.Popen([sys.executable, "-c", parent, str(log)], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout
        pid = int(supervisor.stdout.readline())
        wait_until(lambda: "alive" in log.read_text())
        supervisor.kill()
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
