"""Lag on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from mode import Service

from fluvial.schemas.topics import ALERTS, TOOL_CALLS
from fluvial.sinks.alerts import Webhook
from fluvial.streams.deliver import Deliver
from fluvial.streams.lag import Lag, Reader
from fluvial.streams.life import Life
from fluvial.streams.tick_log import TickLog


class Place:
    """A reader whose position is set by hand."""

    def __init__(self) -> None:
        self.at: dict[int, int] | None = {0: 0}

    async def __call__(self) -> Mapping[int, int] | None:
        return self.at


@pytest.fixture
async def lag(kafka: str) -> AsyncIterator[Lag]:
    lag = Lag(kafka, {})
    await lag.on_start()
    yield lag
    await lag.on_stop()


async def until_visible(lag: Lag, topic: str, end: int) -> None:
    """A commit is acknowledged a moment before its mark is written."""
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110
            await lag._consumer.end_offsets([TopicPartition(topic, 0)])
        )[TopicPartition(topic, 0)] < end:
            await asyncio.sleep(0.05)


async def write(broker: str, topic: str, transactional_id: str, commit: bool = True) -> None:
    """A transaction of two records."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=transactional_id)
    await producer.start()
    await producer.begin_transaction()
    for _ in range(2):
        await producer.send(topic, b"x", partition=0)
    await (producer.commit_transaction() if commit else producer.abort_transaction())
    await producer.stop()


async def test_only_a_reader_at_the_end_lives_without_handling_anything(
    kafka: str, topic_prefix: str, lag: Lag
) -> None:
    place, topic = Place(), ALERTS.named(topic_prefix)
    reader = Reader(topic, place, Life())
    await lag.look(reader)
    assert reader.life.beats == 1  # nothing to read
    await write(kafka, topic, topic)
    await until_visible(lag, topic, 3)
    await lag.look(reader)
    place.at = {0: 1}
    await lag.look(reader)
    assert reader.life.beats == 1  # something waits, and that the place moves is no sign: it may be moved back
    place.at = {0: 3}
    await lag.look(reader)
    assert reader.life.beats == 2


async def test_a_reader_whose_partitions_are_handed_out_anew_gives_no_sign_of_life(lag: Lag, topic_prefix: str) -> None:
    place = Place()
    place.at = None
    reader = Reader(ALERTS.named(topic_prefix), place, Life())
    await lag.look(reader)
    assert reader.life.beats == 0


async def test_a_reader_without_partitions_is_alive(lag: Lag, topic_prefix: str) -> None:
    place = Place()
    place.at = {}
    reader = Reader(ALERTS.named(topic_prefix), place, Life())
    await lag.look(reader)
    assert reader.life.beats == 1


@pytest.mark.parametrize(
    "service",
    [
        Lag("broker.test:9092", {}),
        Deliver("broker.test:9092", Webhook("http://receiver.test/")),
        TickLog(None, "broker.test:9092", TOOL_CALLS),
    ],
    ids=lambda service: type(service).__name__,
)
async def test_a_service_that_never_started_can_be_stopped(service: Service) -> None:
    await service.stop()
