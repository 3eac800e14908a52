"""Life: what a watchdog sees of somebody who works on a topic, and what is said of whoever stands still."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

WHOLE_STORE_SECONDS = 1_800.0
"""What rewriting a store may take; it grows with the store."""


class Life:
    """`beats` grows with every step forward, and while there is nothing to do; nothing else moves it.

    That somebody is busy is no sign: whoever fetches the same records again and again, or waits for a share of the
    work that is handed out anew before it can begin, does not come on.
    """

    def __init__(self) -> None:
        self.beats = 0
        self.stage = "starting"
        self._at: dict[object, str] = {}
        self._disturbed = 0

    def beat(self) -> None:
        """A step was made. Cheap, and to be called from any thread: after each record of a batch, each try of many."""
        self.beats += 1
        self._disturbed = 0

    def disturbed(self) -> None:
        """What had been begun is void: the partitions were handed out anew."""
        self._disturbed += 1

    @contextmanager
    def at(self, key: object, what: str) -> Iterator[None]:
        """While this lasts, `doing` says so; where it raises, it is still what was being done."""
        self._at[key] = what
        yield
        del self._at[key]

    @contextmanager
    def patient(self, seconds: float = WHOLE_STORE_SECONDS) -> Iterator[None]:
        """While a step lasts that goes over a whole store or topic and has no steps of its own: so long, it is life."""
        over = Event()

        def beat() -> None:
            for _ in range(round(seconds)):
                if over.wait(1.0):
                    return
                self.beat()

        Thread(target=beat, name="patience", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def doing(self) -> str:
        """What it is at, in words that may follow "while"."""
        what = ", ".join(list(self._at.values())) or self.stage
        again = f"; the group has handed out its partitions {self._disturbed} times meanwhile"
        return what + (again if self._disturbed > 1 else "")
