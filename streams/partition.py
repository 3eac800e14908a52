"""One partition of a hop: its state, and the transaction that commits state, outputs and offset together.

The order that makes it exact (docs/decisions/faust-and-transactions.md): start the transactional producer, which fences
a former owner and aborts what it left open; only then read the state topic to its end; then go on from the offset that
stands in it. A former owner that wakes up cannot commit any more.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from fluvial.processors.redact import Redactor
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import MAX_RECORD_BYTES, TOOL_CALLS, HopPlan
from fluvial.streams.epochs import origin_of
from fluvial.streams.state import State
from fluvial.streams.turn import Output, Turn

TICK_HEADER = ("record", b"tick")
TRANSACTION_TIMEOUT_MS = 60_000


def group_of(plan: HopPlan, prefix: str) -> str:
    """The consumer group of a hop, and the beginning of its transactional ids."""
    return f"{prefix}fluvial-{plan.name}"


class Lost(RuntimeError):
    """What the log should hold is not there; the message says what and what to do."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}. Stop the workers and run `fluvial replay --from-log --in-place`: it makes anew what "
            "was lost (docs/operations.md)"
        )


class Partition:
    """State, progress and transactional producer of one source partition."""

    def __init__(self, plan: HopPlan, number: int, broker: str, prefix: str, redactor: Redactor) -> None:
        self.plan = plan
        self.number = number
        self.state = State()
        self.progress = Progress(resume=0)
        self._broker = broker
        self._prefix = prefix
        self._redactor = redactor
        self._state_topic = plan.state_topic.named(prefix)
        self._origin = origin_of(plan.name, number).encode()
        identity = f"{group_of(plan, prefix)}-{number}"
        self._producer = AIOKafkaProducer(
            bootstrap_servers=broker,
            client_id=identity,
            transactional_id=identity,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            acks="all",
            linger_ms=0,
            compression_type="lz4",
            max_batch_size=1 << 20,
            max_request_size=MAX_RECORD_BYTES,
        )

    async def open(self) -> None:
        """Fence the former owner, then restore what the log has."""
        await self._producer.start()
        await self._restore()

    def go_back_to(self, stored: Progress) -> None:
        """Handle again, without outputs, what the hop's own store does not have yet; nothing if it has everything."""
        if stored.resume < self.progress.resume:
            muted_until = max(self.progress.resume, self.progress.muted_until)
            self.progress = msgspec.structs.replace(stored, muted_until=muted_until)
            self.state.clear()

    async def _restore(self) -> None:
        partition = TopicPartition(self._state_topic, self.number)
        reader = AIOKafkaConsumer(
            bootstrap_servers=self._broker,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=MAX_RECORD_BYTES,
        )
        await reader.start()
        try:
            reader.assign([partition])
            end = (await reader.end_offsets([partition]))[partition]
            # Not seek_to_beginning: right after assign it races with the reset to the default position.
            reader.seek(partition, (await reader.beginning_offsets([partition]))[partition])
            while await reader.position(partition) < end:
                for messages in (await reader.getmany(timeout_ms=500)).values():
                    for message in messages:
                        if message.key == PROGRESS_KEY:
                            self.progress = decode(message.value, Progress)
                        else:
                            self.state.load(message.key, message.value)
        finally:
            await reader.stop()

    def turn(self, muted: bool = False) -> Turn:
        """A turn on top of the committed progress."""
        turn = Turn(self.plan.name, self.number, self.state, self.progress, self._redactor)
        turn.muted = muted
        return turn

    async def commit(self, turn: Turn) -> None:
        """Write state, outputs and progress as one transaction.

        Raises KafkaError where it did not happen: the state in memory is then ahead of the log and must be dropped.
        """
        sent: list[asyncio.Future[Any]] = []
        try:
            await self._write(turn, sent)
        except BaseException:
            for delivered in sent:
                if delivered.done() and not delivered.cancelled():
                    delivered.exception()  # looked at, or it is logged when it is collected
            raise
        self.state.settle()
        self.progress = turn.progress

    async def _write(self, turn: Turn, sent: "list[asyncio.Future[Any]]") -> None:
        """One transaction; what was sent is added to `sent`."""
        producer, state_topic = self._producer, self._state_topic
        await producer.begin_transaction()
        for output in turn.outputs:
            sent += await self._send_tick(output) if isinstance(output, Tick) else [await self._send(output)]
        for key, row in self.state.changes():
            sent.append(await producer.send(state_topic, row, key=key, partition=self.number))
        marker = encode(turn.progress)
        sent.append(await producer.send(state_topic, marker, key=PROGRESS_KEY, partition=self.number))
        await producer.commit_transaction()
        for delivered in sent:
            delivered.result()

    async def _send(self, output: Output) -> "asyncio.Future[Any]":
        headers = [("origin", self._origin), ("epoch", b"%d" % output.epoch)]
        return await self._producer.send(  # type: ignore[no-any-return]
            output.topic.named(self._prefix), output.value, key=output.key.encode(), headers=headers
        )

    async def _send_tick(self, tick: Tick) -> "Sequence[asyncio.Future[Any]]":
        """Into every partition of every output, but for `tool-calls`: those ticks are the ticker's alone."""
        value, headers = encode(tick), [TICK_HEADER, ("origin", self._origin), ("epoch", b"%d" % tick.slot)]
        return [
            await self._producer.send(topic, value, partition=number, headers=headers)
            for topic in (output.named(self._prefix) for output in self.plan.outputs if output is not TOOL_CALLS)
            for number in sorted(await self._producer.partitions_for(topic))
        ]

    async def upstream(self) -> list[str]:
        """The origins whose ticks this partition waits for: every partition of every hop that writes to the source."""
        return [
            origin_of(hop.name, number)
            for hop in self.plan.upstream()
            for number in sorted(await self._producer.partitions_for(hop.source.named(self._prefix)))
        ]

    async def close(self) -> None:
        """Leave; an open transaction is aborted by the broker or by the next owner."""
        try:
            await asyncio.wait_for(self._producer.stop(), 5)
        except (KafkaError, TimeoutError):
            return
