from collections.abc import Mapping
from itertools import pairwise

from aiokafka.errors import KafkaConnectionError

from fluvial.schemas.tick import Tick
from fluvial.streams.ticker import Ticker

NOON = 1_700_000_000_000_000


class Land:
    """A hop that owns the partitions it is told to."""

    def __init__(self, *owned: int) -> None:
        self.owned = set(owned)
        self.slots: dict[int, int] = {}

    def owns(self, partition: int) -> bool:
        return partition in self.owned

    def last_slot(self, partition: int) -> int:
        return self.slots.get(partition, 0)


class Log:
    """Two partitions in memory; `broken` ones refuse what is written to them."""

    def __init__(self) -> None:
        self.records: dict[int, list[Tick | str]] = {0: [], 1: []}
        self.broken: set[int] = set()

    async def ends(self) -> Mapping[int, int]:
        return {partition: len(records) for partition, records in self.records.items()}

    async def append(self, partition: int, tick: Tick) -> int:
        if partition in self.broken:
            raise KafkaConnectionError("away")
        self.records[partition].append(tick)
        return len(self.records[partition]) - 1

    def ticks(self, partition: int) -> list[Tick]:
        return [record for record in self.records[partition] if isinstance(record, Tick)]


class River:
    """A ticker with a clock that is moved by hand."""

    def __init__(self, *owned: int) -> None:
        self.now = NOON
        self.land = Land(*owned)
        self.log = Log()
        self.ticker = Ticker(
            self.land, self.log, idle_seconds=30.0, now=lambda: self.now, wait=lambda: self.now / 1_000_000
        )

    async def beat(self, after_seconds: float = 1.0) -> None:
        self.now += round(after_seconds * 1_000_000)
        await self.ticker.beat()


async def test_every_partition_gets_the_same_tick() -> None:
    river = River(0, 1)
    await river.beat(0)
    assert river.log.ticks(0) == river.log.ticks(1) == [Tick(slot=NOON // 1_000, at=NOON)]


async def test_only_the_worker_with_partition_0_ticks() -> None:
    river = River(1)
    await river.beat()
    assert river.log.ticks(1) == []


async def test_a_worker_that_gets_partition_0_ticks_at_once() -> None:
    river = River(0, 1)
    await river.beat()
    river.land.owned = {1}
    await river.beat()
    river.land.owned = {0, 1}
    await river.beat()
    assert len(river.log.ticks(0)) == 2


async def test_records_are_followed_by_a_tick_at_the_next_beat_and_silence_by_none() -> None:
    river = River(0, 1)
    await river.beat()
    river.log.records[1].append("call")
    await river.beat()
    assert isinstance(river.log.records[1][-1], Tick)
    assert len(river.log.ticks(0)) == 2
    for _ in range(10):
        await river.beat()
    assert len(river.log.ticks(0)) == len(river.log.ticks(1)) == 2


async def test_while_records_come_every_beat_ticks() -> None:
    river = River(0, 1)
    for _ in range(5):
        river.log.records[0].append("call")
        await river.beat()
    assert len(river.log.ticks(1)) == 5


async def test_in_silence_time_still_passes_every_idle_seconds() -> None:
    river = River(0, 1)
    await river.beat()
    for _ in range(60):
        await river.beat()
    assert [tick.at for tick in river.log.ticks(0)] == [NOON + s * 1_000_000 for s in (1, 31, 61)]


async def test_slots_and_times_grow_when_the_clock_stands_or_jumps_back() -> None:
    river = River(0, 1)
    for seconds in (0.0, 0.0, 0.0005, -3_600.0, 0.2, 7_200.0):
        river.log.records[0].append("call")
        await river.beat(seconds)
    ticks = river.log.ticks(0)
    assert len(ticks) == 6
    assert all(a.slot < b.slot and a.at < b.at for a, b in pairwise(ticks))


async def test_slots_go_on_from_what_land_has_handled() -> None:
    river = River(0, 1)
    ahead = NOON // 1_000 + 5_000
    river.land.slots = {0: ahead - 7, 1: ahead}
    await river.beat(0)
    assert river.log.ticks(0) == [Tick(slot=ahead + 1, at=(ahead + 1) * 1_000)]


async def test_a_partition_that_could_not_be_written_is_reached_by_the_next_beat() -> None:
    river = River(0, 1)
    river.log.broken = {1}
    await river.beat()
    assert (len(river.log.ticks(0)), len(river.log.ticks(1))) == (1, 0)
    river.log.broken = set()
    await river.beat()
    assert river.log.ticks(1) == [river.log.ticks(0)[-1]]
    await river.beat()
    assert len(river.log.ticks(1)) == 1
