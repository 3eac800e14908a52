"""Epochs: one deterministic order out of several upstream partitions.

Every upstream partition (an origin, `land/2`) sends its records in an order of its own and, between them, the same
ticks. How the origins interleave in this partition depends on timing; what they send does not. So records wait until
every origin has passed a tick, and everything before that tick is then handled in the order of event time, origin and
place. The result is a function of the logs alone. (The aligned barriers of Flink, Carbone et al. 2015,
arXiv:1506.08603, with a sort in place of a snapshot.)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import Topic, senders

T = TypeVar("T")

OPERATOR = "operator"
"""The origin of an operator's record that a replay has copied, with the epoch in which it was handled before."""


@dataclass(order=True, slots=True)
class _Waiting(Generic[T]):
    time: int
    origin: str
    offset: int
    epoch: int = field(compare=False)
    item: T = field(compare=False)


class Epochs(Generic[T]):
    """Takes records and ticks as they come; `ready` gives what every origin has passed."""

    def __init__(self, origins: Sequence[str], done: int, plain: int) -> None:
        self._reached = dict.fromkeys(origins, done)
        self._done = done
        self._plain = plain
        self._records: list[_Waiting[T]] = []
        self._ticks: dict[int, tuple[Tick, int]] = {}

    @property
    def plain(self) -> int:
        """Offset of the last record without origin that was given out."""
        return self._plain

    def check(self, origin: str, epoch: int) -> None:
        """Raises ValueError where the headers are none that a hop writes: an unknown origin, an epoch not begun yet."""
        if origin == OPERATOR:
            return
        if origin not in self._reached:
            raise ValueError(f"{origin[:64]!r} does not write to this topic")
        if epoch > self._reached[origin]:
            raise ValueError(f"{origin} has not come to epoch {epoch:.3g}")

    def add(self, offset: int, origin: str | None, epoch: int, time: int, item: T) -> None:
        """Take a record; one that was handled before a restart is dropped.

        One without origin belongs to the epoch in which it is met first; a copy of it (OPERATOR) brings its epoch.
        """
        if origin is None:
            if offset <= self._plain:
                return
            origin, epoch = "", min(self._reached.values())
        elif epoch < self._done:
            return
        self._records.append(_Waiting(time, "" if origin == OPERATOR else origin, offset, epoch, item))

    def tick(self, offset: int, origin: str | None, tick: Tick) -> None:
        """Take a tick of an origin. One of an origin that nobody waits for changes nothing."""
        if origin not in self._reached or tick.slot <= self._reached[origin]:
            return
        self._reached[origin] = tick.slot
        known, first = self._ticks.get(tick.slot, (tick, offset))
        self._ticks[tick.slot] = _both(known, tick), min(first, offset)

    def ready(self) -> Iterator[tuple[list[T], Tick]]:
        """The records before each tick that all origins have passed, in order, and the tick."""
        passed = min(self._reached.values())
        for slot in sorted(slot for slot in self._ticks if slot <= passed):
            tick, _ = self._ticks.pop(slot)
            group = sorted(w for w in self._records if w.epoch < slot)
            if group:
                self._records = [w for w in self._records if w.epoch >= slot]
                self._plain = max([self._plain, *(w.offset for w in group if not w.origin)])
            self._done = slot
            yield [w.item for w in group], tick

    def first_waiting(self) -> int | None:
        """The smallest offset that has to be read again after a restart; None if nothing waits."""
        offsets = [w.offset for w in self._records] + [first for _, first in self._ticks.values()]
        return min(offsets, default=None)


def _both(one: Tick, other: Tick) -> Tick:
    """What two origins say in the tick of one slot."""
    return Tick(
        slot=one.slot,
        at=max(one.at, other.at),
        flush=one.flush or other.flush,
        erase=one.erase or other.erase,
        erased=tuple(sorted({*one.erased, *other.erased})),
    )


def is_from_hop(headers: Iterable[tuple[str, bytes | None]], topic: Topic) -> bool:
    """Whether a hop that writes to this topic sent the record with these headers, not an agent or an operator.

    An agent's own header `origin` names no such hop.
    """
    for name, value in headers:
        hop, _, partition = (value or b"").partition(b"/")
        if name == "origin" and partition.isdigit() and hop.decode("utf-8", "replace") in senders(topic):
            return True
    return False


def origin_of(hop: str, partition: int) -> str:
    """The name under which a partition of a hop sends."""
    return f"{hop}/{partition}"
