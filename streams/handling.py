"""Handling: messages of a partition to turns, records and ticks in their order, and what a hop does with them.

`turns` gives turns that wait to be committed (streams/hop.py does that). It takes a partition in place, where one
producer's order is the order (land), or in aligned epochs, where several hops write to it (streams/epochs.py); both
`_read` each message, and `_hand_over` what is read to the hop's own `handle`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from aiokafka import ConsumerRecord

from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import MAX_RECORD_BYTES, HopPlan
from fluvial.streams.epochs import Epochs, is_from_hop
from fluvial.streams.life import Life
from fluvial.streams.partition import TICK_HEADER, Partition
from fluvial.streams.turn import Arrival, Turn, micros_of

BATCH = 256
"""Records of one transaction, about."""

FARTHEST_AHEAD = 86_400 * 1_000_000
"""A tick may be so far ahead of the time of its own record, microseconds: clocks differ, but not by a day."""

Item = Arrival[Any] | Tick


class Handling:
    """Subclass: set `plan`, and write `on_record` and `on_tick`, or `handle` where a batch has a durable effect."""

    plan: ClassVar[HopPlan]
    life: Life
    takes_ticks = True
    """Whether ticks come in the source: in a topic that only agents write to, nobody's word on time is taken."""
    last_slot_read: int | None = None
    """Slot of the tick behind which nothing is read any more; None: the log has no end."""

    def record_of(self, message: ConsumerRecord) -> Any:
        """The record in a message of the source, as `on_record` meets it. Raises Undecodable: it is a dead letter."""
        return decode(message.value or b"", self.plan.source.record)

    def on_record(self, turn: Turn, arrival: Arrival[Any]) -> None:
        """One record, in a worker thread, counted as what became of it. Raises only what another try could mend."""
        raise NotImplementedError

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        """Time has come to `turn.now`; everything before it was handled."""

    def before_commit(self, turn: Turn) -> None:
        """Last word before the transaction, in a worker thread: put what is held in memory into the tables."""

    async def handle(self, turn: Turn, items: Sequence[Item]) -> None:
        """Records in order, at most one tick at their end. What has to be durable is durable on return."""
        await asyncio.to_thread(self._handle_each, turn, items)

    async def stored_progress(self, partition: int, known: Progress) -> Progress | None:
        """The `Turn.progress` in the hop's own store; None if it has none or has what the log has (`known`)."""
        return None

    def close_partition(self, partition: int) -> None:
        """The partition is given up, in a worker thread: drop what is held in memory for it."""

    async def between_turns(self) -> None:
        """About once a second, between turns, while every partition is where its state says."""

    def turns(
        self, partition: Partition, epochs: Epochs[Arrival[Any]] | None, messages: Sequence[ConsumerRecord]
    ) -> AsyncIterator[Turn]:
        """What has become of the messages, in turns to be committed one after the other."""
        if epochs is None:
            return self._in_place(partition, messages)
        return self._in_epochs(partition, epochs, messages)

    async def _in_place(self, partition: Partition, messages: Sequence[ConsumerRecord]) -> AsyncIterator[Turn]:
        """Turns over records in the order of their partition, cut at ticks."""
        for start in range(0, len(messages), BATCH):
            turn = partition.turn()
            waiting: list[Item] = []
            for message in messages[start : start + BATCH]:
                if self.last_slot_read is not None and turn.progress.slot >= self.last_slot_read:
                    break
                if message.offset < turn.progress.resume:
                    continue
                muted = message.offset < turn.progress.muted_until
                if muted != turn.muted:
                    await self._hand_over(turn, waiting)
                    waiting, turn.muted = [], muted
                item = self._read(message)
                tick = item if isinstance(item, Tick) and item.slot > turn.progress.slot else None
                if tick is not None:
                    await self._hand_over(turn, [*waiting, tick])
                    waiting = []
                elif not isinstance(item, Tick):
                    waiting.append(item)
                turn.reach(resume=message.offset + 1)
                if tick is not None and tick.erase is not None:
                    yield turn  # what is promised at this tick is carried out at a later one, by a later turn
                    turn = partition.turn(muted)
            await self._hand_over(turn, waiting)
            if turn.progress.resume > partition.progress.resume:
                yield turn

    async def _in_epochs(
        self, partition: Partition, epochs: Epochs[Arrival[Any]], messages: Sequence[ConsumerRecord]
    ) -> AsyncIterator[Turn]:
        """Turns over aligned epochs; a turn ends once it has about a batch."""
        for message in messages:
            self._sort_in(epochs, message)
        end = messages[-1].offset + 1
        muted = end <= partition.progress.muted_until
        turn, handled = partition.turn(muted), 0
        for arrivals, tick in epochs.ready():
            turn.reach(plain=epochs.plain)
            first = epochs.first_waiting()
            turn.reach(resume=end if first is None else first)
            await self._hand_over(turn, [*arrivals, tick])
            handled += 1 + len(arrivals)
            if handled >= BATCH or tick.erase is not None:
                yield turn
                turn, handled = partition.turn(muted), 0
        if handled or turn.outputs:
            yield turn

    def _sort_in(self, epochs: Epochs[Arrival[Any]], message: ConsumerRecord) -> None:
        headers = dict(message.headers)
        item = self._read(message)
        origin, epoch = None, 0
        try:
            if "origin" in headers:
                origin, epoch = (headers["origin"] or b"").decode(), int(headers.get("epoch") or b"0")
                epochs.check(origin, 0 if isinstance(item, Tick) else epoch)
        except ValueError as error:
            origin = None
            if isinstance(item, Arrival):
                problem = f"the headers origin and epoch are the hops' own: {error}"
                item = replace(item, record=None, problem=problem, foreign=True)
        if isinstance(item, Tick):
            epochs.tick(message.offset, origin, item)
        else:
            unread = item.problem is not None
            time_of_event = item.timestamp if unread else getattr(item.record, self.plan.source.time)
            epochs.add(message.offset, origin, epoch, time_of_event, item)

    def _read(self, message: ConsumerRecord) -> Item:
        value = message.value or b""
        record, problem = None, None
        time_us = micros_of(message.timestamp)
        try:
            if len(value) > MAX_RECORD_BYTES:
                raise Undecodable(f"too long: {len(value):,} bytes unpacked, at most {MAX_RECORD_BYTES:,} are read")
            if self.takes_ticks and TICK_HEADER in message.headers:
                record = _tick(value, time_us)
            else:
                record = self.record_of(message)
        except Undecodable as error:
            problem = str(error)
        if isinstance(record, Tick):
            return record
        key = (message.key or b"").decode("utf-8", "replace")
        foreign = not is_from_hop(message.headers, self.plan.source)
        return Arrival(record, key, message.topic, message.partition, message.offset, time_us, value, problem, foreign)

    async def _hand_over(self, turn: Turn, items: Sequence[Item]) -> None:
        if not items:
            return
        good: list[Item] = []
        for item in items:
            if isinstance(item, Arrival) and item.problem is not None:
                turn.dead_letter(item, item.problem)
            else:
                good.append(item)
        await self.handle(turn, good)
        self.life.beat()
        tick = items[-1] if isinstance(items[-1], Tick) else None
        foreign = sum(isinstance(item, Arrival) and item.foreign for item in items)
        turn.reach(read=turn.progress.read + len(items) - (tick is not None), foreign=turn.progress.foreign + foreign)
        if tick is not None:
            turn.pass_tick(tick)
            flushed = tick.slot if tick.flush else turn.progress.flushed
            turn.reach(slot=tick.slot, at=max(tick.at, turn.now), flushed=flushed)

    def _handle_each(self, turn: Turn, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Tick):
                turn.reach(at=max(item.at, turn.now))
                self.on_tick(turn, item)
            else:
                self.on_record(turn, item)
            self.life.beat()


def _tick(value: bytes, time_us: int) -> Tick:
    """The tick in a record of that time. Raises Undecodable."""
    tick = decode(value, Tick)
    if tick.at > time_us + FARTHEST_AHEAD:
        raise Undecodable("a tick that is more than a day ahead of its record: time would stand still until then")
    return tick
