"""Faust's transport on a real broker: what an aborted transaction wrote is seen by the stock one and not by ours."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from fluvial.streams.app import FAUST_SETTINGS, Shell
from fluvial.streams.committed import SCHEME

SECONDS = 30.0
RAW = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}


@pytest.fixture
async def topic(kafka: str) -> AsyncIterator[str]:
    """A fresh topic of one partition."""
    name = f"committed-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1)])
    yield name
    await admin.delete_topics([name])
    await admin.close()


async def write(broker: str, topic: str, *transactions: tuple[bytes, bool]) -> None:
    """One record a transaction, each committed (True) or aborted (False)."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=topic)
    await producer.start()
    for value, commit in transactions:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value, partition=0)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
    await producer.stop()


@asynccontextmanager
async def agent(scheme: str, broker: str, topic: str, act: Callable[[Any], Any]) -> AsyncIterator[faust.App]:
    """An app with one agent, which awaits `act(event)` for every event."""
    app = Shell(f"{topic}-group", broker=f"{scheme}://{broker}", **FAUST_SETTINGS)

    @app.agent(app.topic(topic, **RAW))  # type: ignore[untyped-decorator]
    async def read(stream: Any) -> None:
        async for event in stream.events():
            await act(event)

    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if holds():
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("scheme", "seen"), [(SCHEME, [b"one", b"two", b"three"]), ("kafka", [b"one", b"aborted", b"two", b"three"])]
)
async def test_an_agent_sees_what_was_aborted_only_through_the_stock_transport(
    kafka: str, topic: str, scheme: str, seen: list[bytes]
) -> None:
    await write(kafka, topic, (b"one", True), (b"aborted", False), (b"two", True))
    values: list[bytes] = []

    async def act(event: Any) -> None:
        values.append(event.value)

    async with agent(scheme, kafka, topic, act):
        await until(lambda: b"two" in values)
        await write(kafka, topic, (b"three", True))
        await until(lambda: b"three" in values)
    assert values == seen


async def test_a_record_is_not_acknowledged_before_the_agent_is_done_with_it(kafka: str, topic: str) -> None:
    """Every transaction leaves a mark in the log that is no record: such gaps must not carry the offset too far."""
    await write(kafka, topic, (b"0", True), (b"2", True), (b"aborted", False), (b"6", True), (b"8", True))
    offsets: list[int] = []
    done = asyncio.Event()

    async def act(event: Any) -> None:
        offsets.append(event.message.offset)
        if event.value == b"2":
            await done.wait()

    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()

    async def acknowledged() -> int:
        told = await admin.list_consumer_group_offsets(f"{topic}-group")
        return max((place.offset for place in told.values()), default=0)

    async with agent(SCHEME, kafka, topic, act):
        await until(lambda: len(offsets) == 2)
        await asyncio.sleep(2 * FAUST_SETTINGS["broker_commit_interval"] + 0.5)
        assert await acknowledged() <= 2
        done.set()
        await until(lambda: len(offsets) == 4)
    assert offsets == [0, 2, 6, 8]
    assert await acknowledged() == 9
    await admin.close()
