"""A copy of the log under another prefix: a river beside the first one, to be run from the beginning."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from fluvial.schemas.topics import TOOL_CALLS


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
