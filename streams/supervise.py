"""The supervisor of `fluvial up`: workers and broker as child processes, started anew when they end, ended together."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fluvial.schemas.topics import HOPS
from fluvial.streams.child import NO_BROKER, Child

LOOK_SECONDS = 0.2
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
HEALTHY_SECONDS = 120.0
"""More than a worker takes to notice that it stands still (streams/worker.py): such an end is no health."""
TRIES = 5
STOP_SECONDS = 25.0
"""A little more than a worker gives itself (streams/worker.py)."""

GROUPS = {
    "receive": ("spans", "logs", "events", "join"),
    "land": ("land",),
    "learn": ("watch", "gather", "distil", "notify"),
    "keep": ("keep",),
}
"""Hops that share a process: the model is in one, the only writer of the insights in another."""


class AlreadyRunning(RuntimeError):
    """Another `fluvial up` holds the data folder."""


class GaveUp(RuntimeError):
    """A child ended again and again; the message ends with its last words."""


class Broker(Protocol):
    """The local broker, where there is one."""

    @property
    def pid(self) -> int | None: ...
    def start(self) -> None:
        """Return when it answers; raise what keeps it from that."""

    def ended(self) -> int | None:
        """The exit code; None while it runs."""


@dataclass(frozen=True)
class Change:
    """Something happened to a child."""

    child: str
    what: Literal["started", "ready", "ended", "stopped"]
    pid: int | None = None
    code: int | None = None
    pause: float | None = None
    """Seconds until it is started again."""
    reason: str = ""
    """The last line it said, where it ended by itself."""


@dataclass
class Restarts:
    """When to start a child again: after 1, 2, 4 ... 30 s; not any more after `TRIES` ends without health between.

    That no broker answered is no fault of the child: it is started again as long as that lasts.
    """

    fruitless: int = 0
    unanswered: int = 0
    """Ends on end for want of a broker."""

    def pause_after(self, healthy_seconds: float) -> float | None:
        """Seconds to wait after an end that came `healthy_seconds` after the child was ready; None: give up."""
        self.fruitless = 1 if healthy_seconds >= HEALTHY_SECONDS else self.fruitless + 1
        self.unanswered = 0
        return None if self.fruitless >= TRIES else _pause(self.fruitless)

    def pause_without_broker(self) -> float:
        """Seconds to wait after an end for want of a broker."""
        self.unanswered += 1
        return _pause(self.unanswered)


def _pause(ends: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(ends - 1, 10), LONGEST_PAUSE)


@dataclass
class Kept:
    """A child and what the supervisor knows of it; times are monotonic seconds."""

    child: Child
    restarts: Restarts = field(default_factory=Restarts)
    ready_at: float | None = None
    start_at: float | None = 0.0
    """When to start it; None while it runs."""


def groups_of(hops: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The processes for these hops: name to hops. Raises ValueError for a name that is no hop."""
    for name in hops:
        if name not in HOPS:
            raise ValueError(f"{name!r} is no hop; there are {', '.join(HOPS)}")
    groups = {name: tuple(hop for hop in members if hop in hops) for name, members in GROUPS.items()}
    return {name: members for name, members in groups.items() if members}


@contextmanager
def sole(data: Path) -> Iterator[None]:
    """Hold the data folder, made if it is not there. Raises AlreadyRunning, OSError."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise AlreadyRunning(
                f"`fluvial up` already runs on {data} (process {lock.read().strip() or 'unknown'}). "
                "Stop it first, or choose another folder with --data."
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


class Supervisor:
    """Keeps children running until it is interrupted; `tell` hears of every change."""

    def __init__(self, children: Sequence[Child], tell: Callable[[Change], None], broker: Broker | None = None) -> None:
        self._kept = [Kept(child) for child in children]
        self._tell = tell
        self._broker = broker
        self._broker_restarts = Restarts()
        self._broker_ready_at = time.monotonic()

    def run(self, done: Callable[[], bool] = lambda: False) -> None:
        """Start the children and keep them and the broker, which runs already, running.

        Returns once `done` says so, which by default is never. Raises GaveUp, what the broker's start raises, what
        `done` raises, and what interrupts it.
        """
        while not done():
            self._look_after_broker()
            for kept in self._kept:
                self.look_after(kept, time.monotonic())
            time.sleep(LOOK_SECONDS)

    def look_after(self, kept: Kept, now: float) -> None:
        """One look at one child."""
        child = kept.child
        if kept.start_at is not None:
            if now >= kept.start_at:
                kept.start_at = None
                child.start()
                if not kept.restarts.unanswered:
                    self._tell(Change(child.name, "started", child.pid))
            return
        code = child.ended()
        if code is not None:
            self._ended(kept, code, now)
        elif kept.ready_at is None and child.is_ready():
            kept.ready_at, kept.restarts.unanswered = now, 0
            self._tell(Change(child.name, "ready", child.pid))
        child.bound_log()

    def _ended(self, kept: Kept, code: int, now: float) -> None:
        child = kept.child
        pause: float | None
        if code == NO_BROKER:
            pause = kept.restarts.pause_without_broker()
        else:
            pause = kept.restarts.pause_after(now - kept.ready_at if kept.ready_at is not None else 0.0)
        reason = "".join(child.last_lines(1)).removeprefix("fluvial: ") if code > 0 else ""
        if kept.restarts.unanswered <= 1:  # said once, however long the broker is away
            self._tell(Change(child.name, "ended", child.pid, code, pause, reason))
        if pause is None:
            last_words = "\n".join(f"  {line}" for line in child.last_lines(12))
            raise GaveUp(f"{child.name} ended {TRIES} times in a row; see {child.log}. Its last lines:\n{last_words}")
        kept.start_at, kept.ready_at = now + pause, None

    def _look_after_broker(self) -> None:
        """Start the broker again where it ended; the workers wait for it meanwhile."""
        if self._broker is None or (code := self._broker.ended()) is None:
            return
        pause = self._broker_restarts.pause_after(time.monotonic() - self._broker_ready_at)
        self._tell(Change("broker", "ended", self._broker.pid, code, pause))
        if pause is None:
            raise GaveUp(f"The broker ended {TRIES} times in a row (code {code}).")
        time.sleep(pause)
        self._broker.start()
        self._broker_ready_at = time.monotonic()
        self._tell(Change("broker", "ready", self._broker.pid))

    def stop(self) -> None:
        """End every child: ask, wait, and kill what is still there."""
        running = [kept.child for kept in self._kept if kept.child.is_running()]
        for child in running:
            child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        try:
            while time.monotonic() < deadline and any(child.is_running() for child in running):
                time.sleep(0.05)
        finally:
            for child in running:
                child.kill()
                self._tell(Change(child.name, "stopped", child.pid, child.ended()))
