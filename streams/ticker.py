"""The ticker: the only place where time enters the river, as ticks in every partition of a topic.

There is one for `tool-calls`, beside the hop land, and one for `call-parts`, beside the hop join: whoever runs the hop
ticks, so that either runs without the other.
"""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog
from aiokafka.errors import KafkaError

from fluvial.schemas.tick import Tick

log = structlog.get_logger(__name__)


class Reader(Protocol):
    """What the ticker asks of the hop that reads the topic."""

    def owns(self, partition: int) -> bool: ...
    def last_slot(self, partition: int) -> int: ...


class Log(Protocol):
    """The topic, as the ticker sees it. Both raise KafkaError when the broker does not do it."""

    async def ends(self) -> Mapping[int, int]:
        """End offset of every partition."""

    async def append(self, partition: int, tick: Tick) -> int:
        """Write a tick; gives its offset."""


def clock() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1_000


class Ticker:
    """Ticks at each beat while records come, else every `idle_seconds`; only the worker with partition 0 ticks.

    Every record is followed by a tick at the next beat, so that epochs close soon after the last event. All partitions
    get the same slot: epochs are aligned over partitions by it. A partition that could not be written, or got a record
    between, is reached by the next beat's tick (hops take any growing slot).
    """

    def __init__(
        self,
        reader: Reader,
        topic: Log,
        *,
        idle_seconds: float,
        now: Callable[[], int] = clock,
        wait: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._idle_seconds = idle_seconds
        self._now = now
        self._wait = wait
        self._slot = 0
        self._after_tick: dict[int, int] = {}
        """The end of every partition as the last tick left it."""
        self._ticked_at: float | None = None
        self._warned = False

    async def beat(self) -> None:
        """Write one tick into every partition if it is time for one."""
        if not self._reader.owns(0):
            self._ticked_at = None
            return
        try:
            ends = await self._topic.ends()
            if self._is_due(ends):
                await self._tick(ends)
        except KafkaError as error:
            if not self._warned:
                log.warning("no ticks: the broker does not take them", error=repr(error))
            self._warned = True

    def _is_due(self, ends: Mapping[int, int]) -> bool:
        if self._ticked_at is None or ends != self._after_tick:
            return True
        return self._wait() - self._ticked_at >= self._idle_seconds

    async def _tick(self, ends: Mapping[int, int]) -> None:
        tick = self._next(ends)
        self._after_tick = {}
        for partition in sorted(ends):
            self._after_tick[partition] = await self._topic.append(partition, tick) + 1
        self._ticked_at = self._wait()
        self._warned = False

    def _next(self, ends: Mapping[int, int]) -> Tick:
        """The next tick. `at` never falls, since it is no less than its own slot and less than the next one."""
        now = self._now()
        seen = [self._reader.last_slot(partition) for partition in ends if self._reader.owns(partition)]
        self._slot = max(now // 1_000, self._slot + 1, max(seen, default=0) + 1)
        return Tick(slot=self._slot, at=max(now, self._slot * 1_000))
