"""Lag as a sign of life: who has something to read and does not come on is stuck, whatever else moves.

Consumers have been seen to stop fetching a partition without an error (faust-streaming issues 175, 523, 629); their
heartbeats and the event loop go on then, and only the distance to the end of the log shows it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from mode import Service

from fluvial.streams.life import Life

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Reader:
    """Somebody who reads a topic, and whose `life` beats when something was handled.

    `positions` gives the next offset of every partition that is read here, None while that is not settled.
    """

    topic: str
    positions: Callable[[], Awaitable[Mapping[int, int] | None]]
    life: Life


class Lag(Service):  # type: ignore[misc]
    """Lets the life of readers beat that are at the end of what is committed; looks every `every` seconds."""

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
                except (KafkaError, TimeoutError) as error:
                    log.warning("the end of a topic is not known", reader=name, error=repr(error))
            await self.sleep(self._every)

    async def look(self, reader: Reader) -> None:
        """One look at one reader. Raises KafkaError where the broker does not say where its topic ends."""
        positions = await reader.positions()
        if positions is None:
            return
        places = [TopicPartition(reader.topic, partition) for partition in positions]
        ends = await self._consumer.end_offsets(places) if places else {}
        if all(positions[place.partition] >= end for place, end in ends.items()):
            reader.life.beat()
