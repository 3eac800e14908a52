"""The transactional hop: reads one topic, and commits keyed state, outputs and source offset as one Kafka transaction.

A hop is a service of the worker (streams/app.py). It shares the partitions of its source with the other workers of the
same hop through a consumer group; each partition has its own state and its own transactional producer
(streams/partition.py). What is done with the messages is in streams/handling.py.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from mode import Service

from fluvial.processors.redact import KEYLESS, Redactor
from fluvial.schemas.topics import MAX_RECORD_BYTES
from fluvial.streams.epochs import Epochs
from fluvial.streams.handling import BATCH, Handling
from fluvial.streams.life import Life
from fluvial.streams.partition import Lost, Partition, group_of
from fluvial.streams.turn import Arrival

log = structlog.get_logger(__name__)

EX_SOFTWARE = 70
FETCH = 4 * BATCH
OPEN_SECONDS = 40.0
GROUP_SECONDS = 1.0


def leave(reason: str) -> NoReturn:
    """End the process at once: a hop that cannot go on is started anew by whoever keeps the worker running."""
    print(f"fluvial: {KEYLESS.text(reason)[0]}", file=sys.stderr, flush=True)
    os._exit(EX_SOFTWARE)


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(error) if isinstance(error, Lost) else f"{type(error).__name__}: {error}"


class Replayed(NamedTuple):
    """The log of a river (its topics' prefix), up to the tick of that slot."""

    prefix: str
    slot: int


class Hop(Handling, Service, ConsumerRebalanceListener):  # type: ignore[misc]
    """The partitions that this worker has of the source, and the transactions over them; see Handling for the rest."""

    def __init__(
        self,
        broker: str,
        *,
        prefix: str = "",
        fatal: Callable[[str], object] = leave,
        redactor: Redactor = KEYLESS,
        replayed: Replayed | None = None,
    ) -> None:
        """`redactor`: what takes secrets out (default: one without a key).

        `replayed`: the log that is read instead of the source under `prefix`, to an end (of land, in a replay)."""
        super().__init__()
        self.broker = broker
        self.prefix = prefix
        self.redactor = redactor
        self.source = self.plan.source.named(prefix if replayed is None else replayed.prefix)
        self.last_slot_read = None if replayed is None else replayed.slot
        self.last_loop = time.monotonic()
        """When the hop last came round its loop."""
        self.life = Life()
        self._fatal = fatal
        self._reads = False
        self._partitions: dict[int, Partition] = {}
        self._epochs: dict[int, Epochs[Arrival[Any]]] = {}
        self._lock = asyncio.Lock()
        self._group_told = 0.0
        self._settled = False
        """Whether every partition is where its state says: not between the loss of an assignment and the next one."""
        self._assignments = 0
        self._taken: dict[int, int] = {}
        """Everything before this offset was taken in, of every partition that this worker has."""
        self._farthest: dict[int, int] = {}
        """The same at its farthest: what is read again after a rebalance is no progress."""

    # What others ask

    def owns(self, partition: int) -> bool:
        """Whether this worker has the partition of the source now."""
        return partition in self._partitions

    def last_slot(self, partition: int) -> int:
        """Slot of the last tick handled in a partition that this worker owns."""
        return self._partitions[partition].progress.slot

    async def positions(self) -> dict[int, int] | None:
        """Up to where the partitions that this worker has were taken in; None while they are handed out anew."""
        return dict(self._taken) if self._settled else None

    # The machine

    async def on_start(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.broker,
            group_id=group_of(self.plan, self.prefix),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            rebalance_timeout_ms=60_000,
            max_poll_interval_ms=300_000,
            max_partition_fetch_bytes=MAX_RECORD_BYTES,
            partition_assignment_strategy=[StickyPartitionAssignor],
        )
        await self._consumer.start()
        self._reads = True
        self.life.stage = f"waiting for its share of {self.source}"
        self._consumer.subscribe([self.source], listener=self)

    async def on_stop(self) -> None:
        if not self._reads:
            return
        async with self._lock:
            try:
                await self._tell_group(self._consumer.assignment())
            except KafkaError as error:
                log.debug("group offset not told", hop=self.plan.name, error=repr(error))
            await self._close(list(self._partitions))
        await self._consumer.stop()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self._lock:
            self._settled = False
            self.life.stage = f"waiting for its share of {self.source}"
            log.debug("partitions revoked", hop=self.plan.name, partitions=sorted(p.partition for p in revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        mine = {p.partition for p in assigned}
        async with self._lock:
            self.life.stage = f"opening {self.source}{sorted(mine)}"
            self.life.disturbed()
            try:
                await self._close([p for p in self._partitions if p not in mine])
                async with asyncio.timeout(OPEN_SECONDS):
                    await asyncio.gather(*(self._open(p) for p in sorted(mine - set(self._partitions))))
                await self._go_on(mine)
            except Exception as error:
                log.exception("partitions not opened", hop=self.plan.name, partitions=sorted(mine))
                self._fatal(f"{self.plan.name}: {self.source} {sorted(mine)} cannot be opened: {_said(error)}")
                raise
            self._assignments += 1
            self._settled = True
            self.life.stage = f"reading {self.source}"
        log.info("partitions opened", hop=self.plan.name, partitions=sorted(mine))

    async def _open(self, number: int) -> None:
        partition = Partition(self.plan, number, self.broker, self.prefix, self.redactor)
        await partition.open()
        stored = await self.stored_progress(number, partition.progress)
        if stored is not None:
            partition.go_back_to(stored)
        self._partitions[number] = partition

    async def _go_on(self, mine: set[int]) -> None:
        """Put the consumer where the state says, and wait anew for what had been read beyond it."""
        where = [TopicPartition(self.source, number) for number in sorted(mine)]
        beginnings = await self._consumer.beginning_offsets(where) if where else {}
        ends = await self._consumer.end_offsets(where) if where else {}
        for place, beginning in beginnings.items():
            partition = self._partitions[place.partition]
            progress = partition.progress
            if 0 < progress.resume < beginning:
                raise Lost(
                    f"{self.source}[{place.partition}] begins at offset {beginning}, but this hop has only come to "
                    f"{progress.resume}: the records between were deleted before they were handled"
                )
            if progress.resume > ends[place]:
                raise Lost(
                    f"{self.source}[{place.partition}] ends at offset {ends[place]}, but this hop has come to "
                    f"{progress.resume}: the topic has lost its newest records (a power cut?)"
                )
            told = await self._consumer.committed(place)
            if told is not None and told > max(progress.resume, progress.muted_until):
                raise Lost(
                    f"the group of {self.source}[{place.partition}] is at {told}, the state only at "
                    f"{progress.resume}: the topic {self.plan.state_topic.named(self.prefix)} was lost or cut"
                )
            if self.plan.source.producers:
                origins = await partition.upstream()
                self._epochs[place.partition] = Epochs(origins, progress.slot, progress.plain)
            self._taken[place.partition] = max(progress.resume, beginning)
            self._consumer.seek(place, self._taken[place.partition])

    async def _close(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            await asyncio.to_thread(self.close_partition, number)
            self._epochs.pop(number, None)
            self._taken.pop(number, None)
        await asyncio.gather(*(self._partitions.pop(number).close() for number in numbers))

    @Service.task  # type: ignore[untyped-decorator]
    async def _run(self) -> None:
        try:
            while not self.should_stop:
                self.last_loop = time.monotonic()
                assignment = self._assignments
                fetched = await self._consumer.getmany(timeout_ms=200, max_records=FETCH)
                async with self._lock:
                    if not self._settled:
                        continue  # the end of the rebalance puts every partition back to its state
                    mine = self._consumer.assignment()
                    if assignment != self._assignments:
                        # Fetched across a rebalance, perhaps after it had put the partitions back: do that once more,
                        # or what is dropped here would never be read again.
                        if fetched:
                            await self._go_on({where.partition for where in mine})
                        continue
                    await asyncio.gather(
                        *(
                            self._take(self._partitions[where.partition], messages)
                            for where, messages in fetched.items()
                            if where in mine and where.partition in self._partitions
                        )
                    )
                    await self._note_taken(mine)
                    if time.monotonic() - self._group_told > GROUP_SECONDS:
                        await self._tell_group(mine)
                        await self.between_turns()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("hop failed", hop=self.plan.name)
            self._fatal(f"{self.plan.name}: {_said(error)} (while {self.life.doing()})")

    async def _note_taken(self, mine: Iterable[TopicPartition]) -> None:
        for place in mine:
            try:
                at = self._taken[place.partition] = await self._consumer.position(place)
            except IllegalStateError:
                return  # a rebalance has begun
            if at > self._farthest.get(place.partition, -1):
                self._farthest[place.partition] = at
                self.life.beat()

    async def _take(self, partition: Partition, messages: Sequence[ConsumerRecord]) -> None:
        turns = self.turns(partition, self._epochs.get(partition.number), messages)
        where = f"{self.source}[{partition.number}] from offset {partition.progress.resume}"
        with self.life.at(partition.number, f"handling {where}"):
            async for turn in turns:
                await asyncio.to_thread(self.before_commit, turn)
                await partition.commit(turn)
                self.life.beat()

    async def _tell_group(self, mine: set[TopicPartition]) -> None:
        """Tell the group's offset: only for displays of lag, and to notice a lost state; the state has the truth."""
        self._group_told = time.monotonic()
        offsets = {
            where: partition.progress.resume
            for number, partition in self._partitions.items()
            if (where := TopicPartition(self.source, number)) in mine and partition.progress.resume > 0
        }
        if offsets:
            try:
                await self._consumer.commit(offsets)
            except (CommitFailedError, IllegalStateError):
                log.debug("group offset not told: rebalance under way", hop=self.plan.name)
