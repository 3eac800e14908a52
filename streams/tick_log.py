"""A topic that ticks travel in as the ticker sees it, on a real broker."""

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError
from mode import Service

from fluvial.schemas.codec import encode
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import Topic
from fluvial.streams.partition import TICK_HEADER


class TickLog(Service):  # type: ignore[misc]
    """Reads end offsets with a consumer of its own (no group), appends with the producer of the app."""

    def __init__(self, app: Any, broker: str, topic: Topic, prefix: str = "") -> None:
        super().__init__()
        self._app = app
        self._topic = topic.named(prefix)
        self._partitions = range(topic.partitions)
        self._broker = broker
        self._consumer: Any = None

    async def on_start(self) -> None:
        self._consumer = AIOKafkaConsumer(bootstrap_servers=self._broker, group_id=None, request_timeout_ms=10_000)
        await self._consumer.start()

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def ends(self) -> Mapping[int, int]:
        """End offset of every partition. Raises KafkaError."""
        places = [TopicPartition(self._topic, partition) for partition in self._partitions]
        return {place.partition: end for place, end in (await self._consumer.end_offsets(places)).items()}

    async def append(self, partition: int, tick: Tick) -> int:
        """Write a tick; gives its offset. Raises KafkaError."""
        try:
            written = await self._app.producer.send_and_wait(
                self._topic, None, encode(tick), partition, None, [TICK_HEADER]
            )
        except ProducerSendError as error:
            raise KafkaError(str(error)) from error
        return int(written.offset)
