"""The log is the truth: what was published, in another log, at another pace, gives the same memory."""

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from support.up import Up

from fluvial import Publisher
from fluvial.schemas.topics import TOOL_CALLS
from fluvial.streams.admin import ensure_topics

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
from agents import trade
from market import read_market

CALLS = 900


async def copy(broker: str, source: str, target: str) -> None:
    """Every partition of `tool-calls` record by record: keys, headers, values, times and order."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="earliest")
    producer = AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True)
    await consumer.start()
    await producer.start()
    places = [TopicPartition(TOOL_CALLS.named(source), number) for number in range(TOOL_CALLS.partitions)]
    consumer.assign(places)
    ends = await consumer.end_offsets(places)
    for place in places:
        consumer.seek(place, 0)
    async with asyncio.timeout(60):
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, messages in (await consumer.getmany(timeout_ms=200)).items():
                for message in messages:
                    if message.offset < ends[place]:
                        await producer.send(
                            TOOL_CALLS.named(target),
                            message.value,
                            key=message.key,
                            partition=message.partition,
                            timestamp_ms=message.timestamp,
                            headers=list(message.headers),
                        )
    await producer.stop()
    await consumer.stop()


def digest_of(fluvial: Callable[..., CompletedProcess[str]]) -> dict[str, Any]:
    drained = fluvial("drain", "--timeout", "100")
    assert drained.returncode == 0, drained.stderr
    found: dict[str, Any] = json.loads(fluvial("digest", "--json").stdout)
    return found


def test_a_copy_of_the_log_gives_the_same_memory(
    environment: Mapping[str, str], fluvial: Callable[..., CompletedProcess[str]], tmp_path: Path, kafka: str
) -> None:
    first = environment["FLUVIAL_TOPIC_PREFIX"]
    market = read_market()
    up = Up(environment)
    try:
        up.until("ready", "land", "learn", "keep")
        with Publisher(kafka, topic_prefix=first) as publisher:
            for number, call in enumerate(trade(market, 1_900, 1_200, 4, seed=1)):
                if number < CALLS:
                    publisher.publish(call, wait=10)
                if number % 300 == 299:
                    publisher.flush(30)
        digest = digest_of(fluvial)
    finally:
        up.interrupt()
        up.close()
    assert digest["episodes"]["count"] == CALLS and digest["insights"]["count"] > 0

    second = f"{first}again{uuid.uuid4().hex[:6]}-"
    ensure_topics(kafka, prefix=second)
    asyncio.run(copy(kafka, first, second))
    elsewhere = {"FLUVIAL_TOPIC_PREFIX": second, "FLUVIAL_DATA": str(tmp_path / "again")}
    assert isinstance(environment, dict)
    environment.update(elsewhere)
    again = Up(environment)
    try:
        again.until("ready", "land", "learn", "keep")
        assert digest_of(fluvial) == digest
    finally:
        again.interrupt()
        again.close()
