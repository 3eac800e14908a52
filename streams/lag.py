"""Lag as a sign of life: who has something to read and does not come on is stuck, whatever else moves.

Consumers have been seen to stop fetching a partition without an error (faust-streaming issues 175, 523, 629); their
heartbeats and the event loop go on then, and only the distance to the end of the log shows it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from mode import Service

log = structlog.get_logger(__name__)

LOOK_SECONDS = 30.0
STUCK_SECONDS = 600.0
"""Longer than any one record may take: a webhook's tries with all their waits, a large batch."""


@dataclass
class Reader:
    """Somebody who reads a topic. `positions` gives the next offset of every partition that is read here.

    `slack`: so many offsets before the end may be no records (marks of transactions).
    """

    topic: str
    positions: Callable[[], Awaitable[Mapping[int, int]]]
    slack: int = 0
    beat: float = 0.0
    """Changes while it comes on or has nothing to read."""
    last: Mapping[int, int] = field(default_factory=dict)


class Lag(Service):  # type: ignore[misc]
    """Compares where readers are with the ends of what is committed, every `every` seconds."""

    def __init__(self, broker: str, readers: Mapping[str, Reader], every: float = LOOK_SECONDS) -> None:
        super().__init__()
        self._broker = broker
        self._readers = readers
        self._every = every
        self._consumer: Any = None

    async def on_start(self) -> None:
        self._consumer = AIOKafkaConsumer(bootstrap_servers=self._broker, isolation_level="read_committed")
        await self._consumer.start()

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        while not self.should_stop:
            for name, reader in self._readers.items():
                try:
                    async with asyncio.timeout(self._every):
                        await self.look(reader)
                except KafkaError:
                    reader.beat += 1  # the broker is away or moves partitions: no fault of the reader
                except TimeoutError:
                    log.warning("no position", reader=name)
            await self.sleep(self._every)

    async def look(self, reader: Reader) -> None:
        """One look at one reader."""
        positions = await reader.positions()
        places = [TopicPartition(reader.topic, partition) for partition in positions]
        ends = await self._consumer.end_offsets(places) if places else {}
        behind = {p for p, at in positions.items() if at + reader.slack < ends[TopicPartition(reader.topic, p)]}
        if all(positions[p] != reader.last.get(p) for p in behind):
            reader.beat += 1
        reader.last = positions


class GroupPositions(Service):  # type: ignore[misc]
    """Where a consumer group has come to, as it told the broker; asks without joining the group."""

    def __init__(self, broker: str, group: str, topic: str, partitions: int) -> None:
        super().__init__()
        self._broker = broker
        self._group = group
        self._places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._consumer: Any = None

    async def on_start(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._broker, group_id=self._group, enable_auto_commit=False
        )
        await self._consumer.start()
        self._consumer.assign(self._places)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def read(self) -> Mapping[int, int]:
        """The offset of every partition; 0 before the first."""
        return {place.partition: await self._consumer.committed(place) or 0 for place in self._places}
