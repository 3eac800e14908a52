"""The watchdog: a thread that ends a worker which has come to a standstill, so that it is started anew."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fluvial.streams.hop import EX_SOFTWARE, leave


@dataclass(frozen=True)
class Sign:
    """A sign of life: `last` gives a value that changes while there is life, at least once in `seconds`.

    `doing` says what it is at, for the reason that is given when it stands still.
    """

    last: Callable[[], float]
    seconds: float
    doing: Callable[[], str] = str


class Watchdog(threading.Thread):
    """Looks at the signs every `every` seconds.

    It counts its own looks, not the clock: a process that was paused (SIGSTOP, a sleeping machine) is not punished.
    """

    def __init__(
        self, signs: Mapping[str, Sign], *, every: float = 1.0, fatal: Callable[[str], object] = leave
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._signs = signs
        self._every = every
        self._fatal = fatal
        self._over = threading.Event()
        self._seen: dict[str, tuple[float, int]] = {}

    def run(self) -> None:
        while not self._over.wait(self._every):
            for name, sign in self._signs.items():
                if self._still(name, sign) * self._every >= sign.seconds:
                    faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
                    doing = sign.doing()
                    self._fatal(f"{name} made no progress for {sign.seconds:g} s{doing and f' while {doing}'}")
                    return

    def stop(self) -> None:
        self._over.set()

    def _still(self, name: str, sign: Sign) -> int:
        """Looks since the sign last changed."""
        value = sign.last()
        before, looks = self._seen.get(name, (value, -1))
        self._seen[name] = (value, looks + 1 if value == before else 0)
        return self._seen[name][1]


def end_in(seconds: float) -> None:
    """End the process in that many seconds whatever it is doing then: a stop must not last for ever."""

    def end() -> None:
        sys.stderr.write(f"fluvial: the worker did not stop within {seconds:g} s\n")
        sys.stderr.flush()
        os._exit(EX_SOFTWARE)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
