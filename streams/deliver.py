"""Deliver: alerts from the topic `alerts` to a webhook, each at least once.

A plain consumer with its own committed offset, which moves past an alert only once the receiver has taken it or it has
become a dead letter. Why it is no Faust agent: docs/decisions/faust-and-transactions.md.
"""

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError
from mode import Service

from fluvial.processors.dead_letter import dead_letter
from fluvial.processors.redact import KEYLESS, Redactor
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.topics import ALERTS, DEAD_LETTERS, MAX_RECORD_BYTES
from fluvial.sinks.alerts import Undeliverable, Webhook
from fluvial.streams.hop import leave
from fluvial.streams.life import Life
from fluvial.streams.partition import TICK_HEADER

log = structlog.get_logger(__name__)

HOP = "deliver"
"""The name under which its dead letters are found."""


class Deliver(Service, ConsumerRebalanceListener):  # type: ignore[misc]
    """Sends every alert, in order; ticks are passed over. Workers share the topic as a consumer group."""

    def __init__(
        self,
        broker: str,
        webhook: Webhook,
        *,
        prefix: str = "",
        fatal: Callable[[str], object] = leave,
        redactor: Redactor = KEYLESS,
    ) -> None:
        super().__init__()
        self.source = ALERTS.named(prefix)
        self.life = Life()
        self._broker = broker
        self._prefix = prefix
        self._webhook = webhook
        self._fatal = fatal
        self._redactor = redactor
        self._taken: dict[int, int] | None = None
        self._consumer: Any = None
        self._producer: Any = None

    async def on_start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._broker, enable_idempotence=True, max_request_size=MAX_RECORD_BYTES
        )
        await self._producer.start()
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._broker,
            group_id=f"{self._prefix}fluvial-deliver",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            max_partition_fetch_bytes=MAX_RECORD_BYTES,
        )
        await self._consumer.start()
        self.life.stage = f"waiting for its share of {self.source}"
        self._consumer.subscribe([self.source], listener=self)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
        if self._producer is not None:
            await self._producer.stop()
        await self._webhook.close()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._taken = None
        self.life.disturbed()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.life.stage = f"reading {self.source}"

    async def positions(self) -> dict[int, int] | None:
        """Offset behind the last alert that was dealt with; None while the partitions are handed out anew."""
        return self._taken

    @Service.task  # type: ignore[untyped-decorator]
    async def _run(self) -> None:
        try:
            while not self.should_stop:
                for place, messages in (await self._consumer.getmany(timeout_ms=200)).items():
                    await self._deal_with(place, messages)
                await self._note_taken()
        except Exception as error:
            log.exception("delivery failed")
            self._fatal(f"{HOP}: {type(error).__name__}: {error} (while {self.life.doing()})")
            raise

    async def _deal_with(self, place: TopicPartition, messages: Iterable[ConsumerRecord]) -> None:
        """A rebalance ends it early: who has the partition then goes on from the last commit, and may repeat one."""
        try:
            for message in messages:
                if TICK_HEADER not in message.headers:
                    await self.deliver(message)
                    await self._consumer.commit({place: message.offset + 1})
            await self._consumer.commit({place: message.offset + 1})
        except (CommitFailedError, IllegalStateError):
            log.info("delivery is handed over", partition=place.partition)

    async def _note_taken(self) -> None:
        places = self._consumer.assignment()
        try:
            self._taken = {place.partition: await self._consumer.position(place) for place in places}
        except IllegalStateError:
            self._taken = None  # a rebalance has begun

    async def deliver(self, message: ConsumerRecord) -> None:
        """Send one alert or put it aside. Ends the process where neither can be done."""
        with self.life.at(message.partition, f"delivering {message.topic}[{message.partition}]@{message.offset}"):
            try:
                alert = decode(message.value or b"", Alert)
                status = await self._webhook.send(alert, on_try=self.life.beat)
                log.info("alert delivered", alert_id=alert.alert_id, status=status)
            except Exception as error:  # noqa: BLE001 - it becomes a dead letter
                letter = _dead_letter(message, _reason(error), self._redactor)
                log.warning("alert put aside", dead_letter=letter.id, reason=letter.reason)
                await self._put_aside(letter)
            self.life.beat()

    async def _put_aside(self, letter: DeadLetter) -> None:
        try:
            topic = DEAD_LETTERS.named(self._prefix)
            await self._producer.send_and_wait(topic, encode(letter), key=letter.hop.encode())
        except Exception as error:
            self._fatal(f"{HOP}: an alert could neither be delivered ({letter.reason}) nor put aside ({error!r})")
            raise


def _reason(error: Exception) -> str:
    """Of what nobody foresaw only the kind: its message may name the webhook's address, which is a secret."""
    expected = isinstance(error, Undecodable | Undeliverable)
    return str(error) if expected else f"sending it failed: {type(error).__name__}"


def _dead_letter(message: ConsumerRecord, reason: str, redactor: Redactor) -> DeadLetter:
    return dead_letter(
        hop=HOP,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        reason=reason,
        value=message.value or b"",
        key=message.key or b"",
        at=message.timestamp * 1_000,
        redactor=redactor,
    )
