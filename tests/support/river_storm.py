"""A storm over the whole river: the workers that `fluvial up` would run, twice, and all that can happen to them."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.market_log import FLUSH_SLOT, Entry, Feeder
from support.storm import TESTS, Worker

from fluvial.schemas.topics import HOPS
from fluvial.streams.admin import BrokerAway, ensure_topics
from fluvial.streams.broker import LocalBroker
from fluvial.streams.child import FRUGAL, worker_command
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import Place, marks

GROUPS = {"land": ("land",), "learn": ("watch", "gather", "distil", "notify"), "keep": ("keep",)}
RIVER = tuple(HOPS[name] for group in GROUPS.values() for name in group)
RECOVERY_SECONDS = 150.0
"""Longer is a standstill."""
STOPPED_SECONDS = 10.0
"""Beyond the session timeout of 6 s."""
DISK_BYTES = 96 << 20
MOST_STARTS = 40


@dataclass(frozen=True)
class Blow:
    """What was done, and how many seconds later everything that it struck had committed again."""

    what: str
    recovered: float

    def __str__(self) -> str:
        return f"{self.what} {self.recovered:.1f} s"


class RiverStorm:
    """The river of one prefix on a broker that may be killed. Each store has a disk of its own (`disks`)."""

    def __init__(self, broker: LocalBroker, folder: Path, prefix: str, entries: Sequence[Entry], webhook: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.disks = disks(folder)
        for disk in self.disks.values():
            disk.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.data.mkdir()
        for name, group in (("episodes", "land"), ("keep", "keep"), ("insights.duckdb", "keep")):
            (self.data / name).symlink_to(self.disks[group] / name)
        self.feeder = Feeder(broker.address, prefix, entries)
        self.workers: list[Worker] = []
        self.ended: list[tuple[str, int, str]] = []
        self._folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")},
            **FRUGAL,
            "FLUVIAL_BROKER": broker.address,
            "FLUVIAL_DATA": str(self.data),  # both stores in one place, for whoever looks
            "FLUVIAL_TOPIC_PREFIX": prefix,
            "FLUVIAL_QUACK_PORT": "0",
            "FLUVIAL_WEBHOOK_URL": webhook,
            # Time comes from the log alone, so that every run of it handles the same.
            "FLUVIAL_TICK_SECONDS": "100000",
            "PYTHONPATH": str(TESTS),
        }

    def start(self, **workers: int) -> None:
        """So many workers of each group, and whoever feeds them."""
        ensure_topics(self.broker.address, prefix=self.prefix)
        for group, count in workers.items():
            for _ in range(count):
                self.add(group)
        self.feeder.start()

    def add(self, group: str) -> Worker:
        log = self._folder / f"{group}-{len(self.workers)}.log"
        own = {"FLUVIAL_DATA": str(self.disks.get(group, self.data))}
        self.workers.append(Worker(worker_command(GROUPS[group]), self.environment | own, log))
        return self.workers[-1]

    def of(self, groups: Collection[str]) -> list[Worker]:
        return [worker for worker in self.workers if worker.name.partition("-")[0] in groups]

    def finish(self, seconds: float) -> float:
        """Feed the rest, and wait until every hop has handled the end of the log. Gives the seconds."""
        self.feeder.release(self.feeder.left)
        begun = time.monotonic()
        self._until(lambda now: all(progress[0] >= FLUSH_SLOT for progress in now.values()), seconds)
        return time.monotonic() - begun

    def stop(self) -> list[int]:
        """Ask every worker to end; their exit codes."""
        self.feeder.close()
        return [worker.leave() for worker in self.workers]

    def end(self) -> None:
        """End everything, however it stands."""
        self.feeder.close()
        for worker in self.workers:
            worker.stop()

    # What is struck comes on again

    def strike(self, what: str, groups: Collection[str], deed: Callable[[], object], *, burst: int = 0) -> Blow:
        """Do it amid `burst` entries, and wait until every partition of the groups' hops has committed anew."""
        self.feeder.release(burst)
        before = self._look()
        assert before and self.feeder.left, "nothing could show that it comes on again"
        deed()
        begun = time.monotonic()
        self.feeder.release(max(burst, 1))
        hops = {name for group in groups for name in GROUPS[group]}
        own = [place for place in before if place[0] in hops]
        self._until(lambda now: all(now[place] != before[place] for place in own), RECOVERY_SECONDS)
        return Blow(what, time.monotonic() - begun)

    def _until(self, holds: Callable[[dict[Place, tuple[int, int]]], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not ((now := self._look()) and holds(now)):
            assert time.monotonic() < deadline, f"stands still for {seconds:g} s: {now}; {self.ends()}"
            self._look_after()
            time.sleep(0.1)

    def _look(self) -> dict[Place, tuple[int, int]]:
        """Flushed slot and offset of every partition of every hop; empty while the broker is away."""
        try:
            with LogReader(self.broker.address, timeout=5.0) as reader:
                known = marks(reader, RIVER, self.prefix)
        except BrokerAway:
            return {}
        return {place: (mark.progress.flushed, mark.progress.resume) for place, mark in known.items()}

    def _look_after(self) -> None:
        for worker in self.workers:
            worker.look_after()
            assert worker.starts < MOST_STARTS, f"{worker.name} ends again and again: {self.ends()[-3:]}"

    def ends(self) -> list[str]:
        """Every end of a worker that was no kill, with its last words."""
        return [f"{worker.name}: {code} {words}" for worker in self.workers for code, words in worker.ends if code > 0]

    # What can happen

    def kill(self, worker: Worker, burst: int) -> Blow:
        return self.strike(f"kill {worker.name}", [worker.name.partition("-")[0]], worker.process.kill, burst=burst)

    def kill_all(self, burst: int) -> Blow:
        return self.strike("kill all", GROUPS, lambda: [one.process.kill() for one in self.workers], burst=burst)

    def pause(self, worker: Worker, burst: int) -> Blow:
        """SIGSTOP beyond the session, and back: others have its partitions by then, and it must not write any more."""
        process = worker.process

        def stop() -> None:
            process.send_signal(signal.SIGSTOP)
            self.feeder.release(burst)
            time.sleep(STOPPED_SECONDS)
            process.send_signal(signal.SIGCONT)

        return self.strike(f"stop {worker.name}", [worker.name.partition("-")[0]], stop, burst=burst)

    def kill_broker(self, burst: int, away: float = 0.0) -> Blow:
        def kill() -> None:
            assert self.broker.pid is not None
            os.kill(self.broker.pid, signal.SIGKILL)
            deadline = time.monotonic() + away
            while self.broker.ended() is None or time.monotonic() < deadline:
                self._look_after()
                time.sleep(0.1)

        def deed() -> None:
            kill()
            self.broker.start()

        begun = time.monotonic()
        self.strike("", GROUPS, deed, burst=burst)
        what = f"broker away {away:g} s" if away else "kill broker"
        return Blow(what, time.monotonic() - begun)

    def fill_disks(self, burst: int) -> Blow:
        """No room for one store and then for the other, until a worker has ended and said so."""
        blows = [self._fill(group, burst // 2) for group in self.disks]
        return Blow("full disks, freed", max(blow.recovered for blow in blows))

    def _fill(self, group: str, burst: int) -> Blow:
        ballast, known = self.disks[group] / "ballast", len(self.ends_of(group))
        with ballast.open("wb", buffering=0) as file:
            for piece in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        file.write(bytes(piece))
        deadline = time.monotonic() + RECOVERY_SECONDS
        while len(self.ends_of(group)) == known:
            assert time.monotonic() < deadline, f"{group} goes on with a full disk: {self.ends()}"
            self.feeder.release(1)
            self._look_after()
            time.sleep(1.0)
        assert "No space left" in self.ends_of(group)[-1]
        return self.strike("", GROUPS, ballast.unlink, burst=burst)

    def ends_of(self, group: str) -> list[str]:
        return [words for worker in self.of([group]) for code, words in worker.ends if code > 0]

    def empty_disks(self, burst: int) -> Blow:
        """Both stores are gone; what they held is in the log."""

        def wipe() -> None:
            for worker in self.of(("land", "keep")):
                worker.stop()
            for path in [path for disk in self.disks.values() for path in disk.iterdir()]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        return self.strike("empty disk", GROUPS, wipe, burst=burst)

    def scale(self, dice: random.Random, burst: int) -> Blow:
        """Two workers of a group become four, and two again."""

        def more() -> None:
            added = [self.add(group) for group in ("land", "learn") for _ in range(2)]
            deadline = time.monotonic() + RECOVERY_SECONDS
            while not all(worker.said("partitions opened") for worker in added):
                assert time.monotonic() < deadline, "the new workers got no partitions"
                self._look_after()
                time.sleep(0.1)

        grown = self.strike("two to four", GROUPS, more, burst=burst)
        for group in ("land", "learn"):
            for worker in dice.sample(self.of([group]), len(self.of([group])) - 2):
                self.workers.remove(worker)
                code = worker.leave()
                assert code == 0, f"{worker.name} left with {code}"
        shrunk = self.strike("", GROUPS, lambda: None, burst=burst)
        return Blow("two to four and back", grown.recovered + shrunk.recovered)


def disks(folder: Path) -> dict[str, Path]:
    """The data folder of each group with a store."""
    return {group: folder / f"{group}-disk" for group in ("land", "keep")}


@contextmanager
def small(folders: Iterable[Path]) -> Iterator[bool]:
    """The folders as small disks of their own; False where this user may not mount one."""
    with ExitStack() as stack:
        yield all(_mounted(folder, stack) for folder in folders)


def _mounted(folder: Path, stack: ExitStack) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return False
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
    return True
