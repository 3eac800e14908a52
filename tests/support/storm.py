"""The storm: workers of two chained hops that are killed and paused at random moments, and a broker that dies once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fluvial.streams.broker import LocalBroker
from fluvial.streams.child import worker_command

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Profile:
    """How much of everything. Times in seconds."""

    events: int
    keys: int
    kills: int
    pauses: int
    pause_seconds: float
    calm_seconds: float
    """The longest time between two blows."""
    within_seconds: float


class Worker:
    """A process that is started again whenever it ends. `ends`: code and last words of every end."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = list(command), environment, log
        self.name = log.stem
        self.starts = 0
        self.ends: list[tuple[int, str]] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def look_after(self) -> None:
        """Start it again if it has ended."""
        code = self.process.poll()
        if code is not None:
            words = self._log.read_text(errors="replace").splitlines()[-1:]
            self.ends.append((code, "".join(words).removeprefix("fluvial: ") if code > 0 else ""))
            self.process = self._start()

    def said(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self._log.read_text(errors="replace")

    def leave(self) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def stop(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.wait()


class Storm:
    """Two workers a hop on a broker of their own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.broker = LocalBroker(folder / "kafka")
        self.broker.start()
        self.data = folder
        self.workers: list[Worker] = []
        self.blows: list[str] = []

    def start_workers(self, prefix: str) -> None:
        """Two workers of the real land, two of the adder behind it."""
        environment = {
            **os.environ,
            "FLUVIAL_BROKER": self.broker.address,
            "FLUVIAL_DATA": str(self.data),
            "FLUVIAL_TOPIC_PREFIX": prefix,
            "PYTHONPATH": str(TESTS),
        }
        adder = [sys.executable, "-m", "support.hops", "adder", self.broker.address, prefix]
        for number in range(2):
            self.workers.append(Worker(worker_command(["land"]), environment, self.data / f"land-{number}.log"))
            self.workers.append(Worker(adder, environment, self.data / f"adder-{number}.log"))

    def blow_until(self, done: Callable[[], bool], profile: Profile) -> None:
        """Strike at random moments, keep everything running, and return when all blows were dealt and `done`."""
        blows = ["kill"] * profile.kills + ["pause"] * profile.pauses + ["broker"]
        self.dice.shuffle(blows)
        deadline = time.monotonic() + profile.within_seconds
        next_blow = time.monotonic() + self.dice.uniform(1, profile.calm_seconds)
        while blows or not done():
            assert time.monotonic() < deadline, f"not done after {profile.within_seconds} s; {self.state()}"
            if blows and time.monotonic() >= next_blow:
                self._strike(blows.pop(), profile.pause_seconds)
                next_blow = time.monotonic() + self.dice.uniform(1, profile.calm_seconds)
            for worker in self.workers:
                worker.look_after()
            time.sleep(0.2)

    def _strike(self, blow: str, pause_seconds: float) -> None:
        self.blows.append(blow)
        if blow == "broker":
            assert self.broker.pid is not None
            os.kill(self.broker.pid, signal.SIGKILL)
            while self.broker.ended() is None:
                time.sleep(0.05)
            self.broker.start()
            return
        worker = self.dice.choice(self.workers)
        if blow == "kill":
            worker.process.kill()
        elif worker.process.poll() is None:
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(pause_seconds)
            worker.process.send_signal(signal.SIGCONT)

    def state(self) -> str:
        """For the message of a failure."""
        return f"blows {self.blows}, starts {[worker.starts for worker in self.workers]}, logs in {self.data}"

    def stop(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.stop()
        self.broker.stop()
