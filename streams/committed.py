"""Faust's Kafka transport, reading only what was committed.

Faust opens its consumer with isolation level read_uncommitted (it reads committed records only in its own mode
`exactly_once`), so an agent behind a transactional hop would act on what an aborted transaction wrote.
"""

from typing import Any

from faust.transport.drivers import TRANSPORTS
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

SCHEME = "committed"
"""URL scheme of the broker for an app whose agents read committed records: `committed://host:port`."""


class CommittedConsumerThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        if consumer._isolation_level != "read_uncommitted":
            raise RuntimeError("this faust-streaming chooses the isolation level itself; see streams/committed.py")
        consumer._isolation_level = "read_committed"  # aiokafka hands it to the fetcher when the consumer starts
        return consumer


class CommittedConsumer(Consumer):  # type: ignore[misc]
    def _new_consumer_thread(self) -> CommittedConsumerThread:
        return CommittedConsumerThread(self, loop=self.loop, beacon=self.beacon)


class CommittedTransport(Transport):  # type: ignore[misc]
    """aiokafka with `isolation_level="read_committed"`; everything else is Faust's."""

    Consumer = CommittedConsumer


TRANSPORTS.aliases.setdefault(SCHEME, f"{__name__}:{CommittedTransport.__name__}")
