"""Backlog: what was published and is not acknowledged, in the spool or in memory, and the account of it."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from fluvial.frames import Record
from fluvial.spool import Spool
from fluvial.spool_segment import Segment, Spooled

log = logging.getLogger("fluvial.publish")

BEAT_SECONDS = 1.0
"""Between two times that the spool is brought to the disk, and before a disk that failed is tried again."""
ADOPT_SECONDS = 10.0
"""Between two looks for what processes that ended have left."""
SPILL = 200
FLIGHT_RECORDS = 5_000
FLIGHT_BYTES = 8 * 1_048_576
"""What is read out of a spool ahead of the acknowledgements, at most."""


class Held(NamedTuple):
    """A record on its way, and where it stands in the spool if it does."""

    record: Record
    segment: Segment | None = None
    start: int = 0


class Account(NamedTuple):
    """Records of one topic; taken + adopted = delivered + failed + displaced + pending."""

    taken: int
    adopted: int
    delivered: int
    failed: int
    displaced: int
    dropped: int

    @property
    def pending(self) -> int:
        return self.taken + self.adopted - self.delivered - self.failed - self.displaced


class Backlog:
    """Records that wait and those that are held, on their way. By topic: taken, delivered, failed, dropped.

    With a spool all of them are on disk, and in memory is only what is held. Without one, and while the disk takes
    nothing (`unspooled` counts), at most `count` records and `size` bytes are in memory. Methods run under `lock` but
    `take`, `tend` and `close`, which are the delivering thread's and take it themselves.
    """

    def __init__(self, lock: threading.RLock, spool: Spool | None, *, count: int, size: int) -> None:
        self.spool = spool
        self.held: dict[int, Held] = {}
        """In the order in which they were read."""
        self.taken, self.delivered, self.failed, self.dropped = (Counter[str]() for _ in range(4))
        self.unspooled = 0
        self._lock = lock
        self._count = count
        self._size = size
        self._waiting = deque[tuple[int, Record]]()  # in memory: only what no spool took
        self._bytes = 0  # in memory, held ones included
        self._last_number = 0
        self._next_beat = self._next_adoption = 0.0
        self._spool_again = 0.0
        self._unwritable = self._untended = ""
        self._said: set[str] = set()

    def put(self, record: Record) -> bool:
        """Take a record; False if there is no room."""
        taken = self._put(record)
        if taken:
            self.taken[record.topic] += 1
        return taken

    def has_work(self) -> bool:
        """Whether `take` would give something."""
        if self.spool is not None and self.spool.has_unread():
            return self._window_is_open()
        return bool(self._waiting)

    def take(self, most: int) -> list[tuple[int, Held]]:
        """The next records, at most so many, each held under its number until it is settled."""
        held: list[tuple[int, Held]] = []

        def hold(items: Sequence[Spooled]) -> None:
            for record, segment, start in items:
                self._last_number += 1
                self._bytes += _size(record)
                held.append((self._last_number, Held(record, segment, start)))
            self.held.update(held)

        with self._lock:
            window = self._window_is_open()
        try:
            if self.spool is not None and window:
                self.spool.read(most, hold)
        except OSError as error:
            self._untended = str(error)
        with self._lock:
            if not held and not (self.spool and self.spool.has_unread()):
                for _ in range(min(most, len(self._waiting))):
                    number, record = self._waiting.popleft()
                    held.append((number, Held(record)))
                self.held.update(held)
        return held

    def settle(self, number: int, *, delivered: bool) -> None:
        """A record was acknowledged, or never will be. Harmless if it was settled before."""
        held = self.held.pop(number, None)
        if held is None:
            return
        self._bytes -= _size(held.record)
        if held.segment is not None and self.spool is not None:
            self.spool.settle(held.segment)
        (self.delivered if delivered else self.failed)[held.record.topic] += 1

    def tend(self) -> None:
        """Keep the spool in order: to be called often; what costs is done once a second."""
        if self.spool is None:
            return
        now = time.monotonic()
        try:
            self.spool.sweep()
            if now < self._next_beat:
                return
            self._next_beat = now + BEAT_SECONDS
            while self._spill():
                pass
            with self._lock:
                earliest = self._earliest()
                adopts = now >= self._next_adoption and not (self._next_adoption and self.spool.has_unread())
            self.spool.save(earliest)
            if adopts:
                self._next_adoption = now + ADOPT_SECONDS
                if left := self.spool.adopt():
                    log.info("%d ended agents have left calls in %s; they are sent.", left, self.spool.destination)
            self._untended = ""
        except OSError as error:
            self._untended = str(error)
        self._say()

    def last_number(self) -> int:
        return self._last_number

    def mark(self) -> tuple[Segment | None, int]:
        """The end of what is in the spool."""
        return (None, 0) if self.spool is None else self.spool.mark()

    def waits_before(self, number: int) -> bool:
        """Whether a record in memory that was taken until then is not on its way."""
        return bool(self._waiting) and self._waiting[0][0] <= number

    def settled_until(self, number: int, mark: tuple[Segment | None, int]) -> bool:
        """Whether everything up to this number in memory and this place in the spool is settled."""
        if any(held.segment is None and on_its_way <= number for on_its_way, held in self.held.items()):
            return False
        return self.spool is None or self.spool.passed(mark, self._earliest())

    def account(self, topic: str) -> Account:
        """What became of the records of a topic."""
        spool = self.spool
        adopted, displaced, lost = (spool.adopted, spool.displaced, spool.lost) if spool else 3 * (Counter[str](),)
        return Account(
            self.taken[topic],
            adopted[topic],
            self.delivered[topic],
            self.failed[topic] + lost[topic],
            displaced[topic],
            self.dropped[topic],
        )

    def has_losses(self) -> bool:
        """Whether something that was taken will not be delivered."""
        return bool(self.failed or (self.spool is not None and (self.spool.lost or self.spool.displaced)))

    def close(self, *, spool_too: bool) -> None:
        """Leave to the spool what is not settled; what it does not take has failed."""
        with self._lock:
            for number, held in list(self.held.items()):
                if held.segment is None or held.segment.gone:
                    if held.segment is None and self._to_spool(held.record):
                        self._bytes -= _size(self.held.pop(number).record)
                    else:
                        self.settle(number, delivered=False)
            while self._waiting:
                _, record = self._waiting.popleft()
                if not self._to_spool(record):
                    self.failed[record.topic] += 1
            earliest = self._earliest()
        if self.spool is not None and spool_too:
            try:
                self.spool.close(earliest)
            except OSError as error:
                self._untended = str(error)
            self._say()

    def _put(self, record: Record) -> bool:
        if self.spool is not None and not self._waiting and time.monotonic() >= self._spool_again:
            if self._to_spool(record):
                return True
            if not self._unwritable:
                return False
        size = _size(record)
        in_memory = len(self.held) + len(self._waiting)
        if in_memory >= self._count or (in_memory and self._bytes + size > self._size):
            return False
        self._last_number += 1
        self._waiting.append((self._last_number, record))
        self._bytes += size
        self.unspooled += self.spool is not None
        return True

    def _to_spool(self, record: Record) -> bool:
        if self.spool is None:
            return False
        try:
            done = self.spool.append(record)
        except OSError as error:
            self._unwritable = str(error)
            self._spool_again = time.monotonic() + BEAT_SECONDS
            return False
        self._unwritable = ""
        return done

    def _spill(self) -> bool:
        """Bring what is in memory back to the spool, piece by piece; False when there is nothing left to do."""
        with self._lock:
            for _ in range(min(SPILL, len(self._waiting))):
                if not self._to_spool(self._waiting[0][1]):
                    return False
                self._bytes -= _size(self._waiting.popleft()[1])
            return bool(self._waiting)

    def _window_is_open(self) -> bool:
        return len(self.held) < FLIGHT_RECORDS and self._bytes < FLIGHT_BYTES

    def _earliest(self) -> dict[Segment, int]:
        """Where in each segment the first record begins that is on its way."""
        earliest: dict[Segment, int] = {}
        for _, segment, start in self.held.values():
            if segment is not None and start < earliest.get(segment, start + 1):
                earliest[segment] = start
        return earliest

    def _say(self) -> None:
        """Log what has befallen the spool, each kind of trouble once until it is over."""
        assert self.spool is not None
        place = self.spool.destination
        with self._lock:
            full = self.spool.overfull
            self.spool.overfull = full and self.spool.has_unread()
            unwritable, untended = self._unwritable, self._untended
        self._say_once(
            "full", full, f"The spool in {place} is full ({self.spool.full}): calls are given up and counted"
        )
        self._say_once(
            "unwritable",
            bool(unwritable),
            f"The spool in {place} cannot be written ({unwritable}): calls are held in memory until it can; "
            "FLUVIAL_SPOOL names another folder",
        )
        self._say_once(
            "untended", bool(untended and not unwritable), f"The spool in {place}: {untended}; that is tried again"
        )

    def _say_once(self, kind: str, holds: bool, words: str) -> None:
        if holds and kind not in self._said:
            log.warning("%s (said once).", words)
        (self._said.add if holds else self._said.discard)(kind)


def _size(record: Record) -> int:
    return len(record.key) + len(record.value)
