"""A river of its own for one test: fresh topics on the broker, hops on them, and what stands in the topics."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fluvial.schemas.codec import decode, encode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.formats import Message
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, TOOL_CALLS, HopPlan, Topic
from fluvial.streams.hop import Hop
from fluvial.streams.partition import TICK_HEADER

SECONDS = 60.0


class River:
    """Fresh topics on the broker, hops of ours on them, and what stands in the topics."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.prefix = f"t{uuid.uuid4().hex[:8]}-"
        self.fatal: list[str] = []
        self._running: list[Hop] = []
        self._slot = 0
        self._offsets: dict[str, int] = {}

    async def start(self, *kinds: type[Hop]) -> list[Hop]:
        hops = [kind(self.broker, prefix=self.prefix, fatal=self.fatal.append) for kind in kinds]
        for hop in hops:
            await hop.start()
        self._running += hops
        return hops

    async def stop(self, *hops: Hop) -> None:
        for hop in hops or tuple(self._running):
            await hop.stop()
            self._running.remove(hop)

    async def publish(self, records: Iterable[tuple[int, ToolCall | Tick | bytes]], topic: Topic = TOOL_CALLS) -> None:
        """Put records into partitions of a topic."""
        producer = AIOKafkaProducer(bootstrap_servers=self.broker, enable_idempotence=True)
        await producer.start()
        for partition, record in records:
            value = record if isinstance(record, bytes) else encode(record)
            headers = [TICK_HEADER] if isinstance(record, Tick) else []
            await producer.send(topic.named(self.prefix), value, key=b"run", partition=partition, headers=headers)
        await producer.stop()

    async def tick(
        self, topic: Topic = TOOL_CALLS, *, seconds: int = 1, flush: bool = False, erase: Erasure | None = None
    ) -> int:
        """The same tick in every partition of a topic, so many seconds after the last."""
        self._slot += seconds
        tick = Tick(slot=self._slot, at=self._slot * 1_000_000, flush=flush, erase=erase)
        await self.publish(((partition, tick) for partition in range(topic.partitions)), topic)
        return self._slot

    async def send(self, topic: Topic, messages: Iterable[Message], partition: int | None = None) -> None:
        """Put messages in a foreign format into a topic, with the headers that they have."""
        producer = AIOKafkaProducer(bootstrap_servers=self.broker, enable_idempotence=True, max_request_size=1 << 22)
        await producer.start()
        for message in messages:
            await producer.send(
                topic.named(self.prefix),
                message.value,
                key=message.key.encode() or None,
                partition=partition,
                headers=list(message.headers.items()),
            )
        await producer.stop()

    async def read(self, topic: Topic) -> list[Any]:
        """All committed records of a topic but ticks, partition after partition."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.broker, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            places = [TopicPartition(topic.named(self.prefix), number) for number in range(topic.partitions)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            messages = []
            for place in places:
                consumer.seek(place, 0)
            async with asyncio.timeout(SECONDS):
                while any([await consumer.position(place) < ends[place] for place in places]):
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        messages += batch
        finally:
            await consumer.stop()
        messages.sort(key=lambda m: (m.partition, m.offset))
        return [
            (m.key, m.value) if topic.record is bytes else decode(m.value, topic.record)
            for m in messages
            if TICK_HEADER not in m.headers
        ]

    async def progress(self, plan: HopPlan) -> list[Progress]:
        """The newest progress of every partition of a hop."""
        markers = [decode(value, Progress) for key, value in await self.read(plan.state_topic) if key == PROGRESS_KEY]
        newest: dict[int, Progress] = {}
        for index, marker in enumerate(markers):
            newest[index] = marker
        return list(newest.values())

    async def until(self, condition: Callable[[], Awaitable[bool]], even_if_fatal: bool = False) -> None:
        """What stands in a topic can only be asked for again and again."""
        async with asyncio.timeout(SECONDS):
            while not await condition():
                assert even_if_fatal or not self.fatal, self.fatal
                await asyncio.sleep(0.1)

    async def has_handled(self, hop: Hop, topic: Topic) -> None:
        """Until a hop has read its whole source, and has come round its loop once more: what it was to do is done."""
        places = [TopicPartition(topic.named(self.prefix), number) for number in range(topic.partitions)]
        consumer = AIOKafkaConsumer(bootstrap_servers=self.broker, isolation_level="read_committed")
        await consumer.start()
        try:
            ends = await consumer.end_offsets(places)
        finally:
            await consumer.stop()

        async def read() -> bool:
            return await hop.positions() == {place.partition: end for place, end in ends.items()}

        await self.until(read)
        seen = time.monotonic()

        async def came_round() -> bool:
            return hop.last_loop > seen

        await self.until(came_round)

    async def has_clusters(self, n: int) -> None:
        async def enough() -> bool:
            return len(await self.read(CLUSTERS)) >= n

        await self.until(enough)
