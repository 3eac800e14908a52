"""Lag on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from mode import Service

from fluvial.schemas.topics import ALERTS
from fluvial.streams.lag import GroupPositions, Lag, Reader
from fluvial.streams.tool_calls import ToolCallsLog


class Place:
    """A reader whose position is set by hand."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {0: 0}

    async def __call__(self) -> Mapping[int, int]:
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


async def test_a_reader_that_stands_before_something_to_read_gives_no_sign_of_life(
    kafka: str, topic_prefix: str, lag: Lag
) -> None:
    place, topic = Place(), ALERTS.named(topic_prefix)
    reader = Reader(topic, place, slack=1)
    await lag.look(reader)
    assert reader.beat == 1  # nothing to read
    await write(kafka, topic, topic)
    await until_visible(lag, topic, 3)
    await lag.look(reader)
    await lag.look(reader)
    assert reader.beat == 1  # two records and a mark wait
    place.at = {0: 1}
    await lag.look(reader)
    assert reader.beat == 2  # it moves
    await lag.look(reader)
    assert reader.beat == 2  # and stands again
    place.at = {0: 2}
    for _ in range(3):
        await lag.look(reader)
    assert reader.beat == 5  # only the mark is left


async def test_a_reader_without_partitions_is_alive(lag: Lag, topic_prefix: str) -> None:
    place = Place()
    place.at = {}
    reader = Reader(ALERTS.named(topic_prefix), place)
    await lag.look(reader)
    assert reader.beat == 1


async def test_a_groups_position_is_what_it_committed(kafka: str, topic_prefix: str) -> None:
    topic = ALERTS.named(topic_prefix)
    positions = GroupPositions(kafka, f"{topic}-group", topic, 1)
    await positions.on_start()
    assert await positions.read() == {0: 0}
    await write(kafka, topic, topic)
    member = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=f"{topic}-group", enable_auto_commit=False)
    await member.start()
    member.assign([TopicPartition(topic, 0)])
    await member.commit({TopicPartition(topic, 0): 2})
    await member.stop()
    assert await positions.read() == {0: 2}
    await positions.on_stop()


@pytest.mark.parametrize(
    "service",
    [
        Lag("broker.test:9092", {}),
        GroupPositions("broker.test:9092", "group", "topic", 1),
        ToolCallsLog(None, "broker.test:9092"),
    ],
    ids=lambda service: type(service).__name__,
)
async def test_a_service_that_never_started_can_be_stopped(service: Service) -> None:
    await service.stop()
