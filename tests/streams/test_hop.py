"""The transactional hop on a real broker: exactly once over restarts, rebalances and zombies, and in a fixed order."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from msgspec import Struct

from fluvial.schemas.cluster import Cluster
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.episode import Episode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, DEAD_LETTERS, EPISODES, GATHER, LAND, TOOL_CALLS, HopPlan, Topic
from fluvial.streams.admin import delete_topics, ensure_topics
from fluvial.streams.hop import Hop
from fluvial.streams.partition import TICK_HEADER
from fluvial.streams.turn import Arrival, Turn

SECONDS = 60.0


class Sum(Struct, frozen=True):
    total: int
    seen: tuple[str, ...] = ()


class Relay(Hop):
    """Every call becomes an episode; the tool is its key."""

    plan = LAND

    def on_record(self, turn: Turn, arrival: Arrival[ToolCall]) -> None:
        call = arrival.record
        turn.emit(EPISODES, call.tool, episode(call, arrival))


class Adder(Hop):
    """Adds up `seq` a tool and says the running total."""

    plan = GATHER

    def on_record(self, turn: Turn, arrival: Arrival[Episode]) -> None:
        sums = turn.table("sums", Sum)
        old = sums.get(arrival.key, Sum(0))
        new = sums[arrival.key] = Sum(old.total + (arrival.record.seq or 0))
        row = Cluster(id=arrival.record.id, source="s", tool=arrival.key, window_start=0, window_end=new.total)
        turn.emit(CLUSTERS, arrival.key, row)


def episode(call: ToolCall, arrival: Arrival[Any]) -> Episode:
    return Episode(
        id=call.event_id,
        source=call.source,
        run_id=call.run_id,
        tool=call.tool,
        status=call.status,
        started_at=call.started_at or arrival.timestamp,
        text="",
        reflection_source="template",
        embedding_model="none",
        seq=call.seq,
        log_partition=arrival.partition,
        log_offset=arrival.offset,
    )


class River:
    """Fresh topics on the broker, hops of ours on them, and what stands in the topics."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.prefix = f"t{uuid.uuid4().hex[:8]}-"
        self.fatal: list[str] = []
        self._running: list[Hop] = []
        self._slot = 0
        self._offsets: dict[str, int] = {}

    async def start(self, *kinds: type[Hop]) -> list[Hop]:
        hops = [kind(self.broker, prefix=self.prefix, fatal=self.fatal.append) for kind in kinds]
        for hop in hops:
            await hop.start()
        self._running += hops
        return hops

    async def stop(self, *hops: Hop) -> None:
        for hop in hops or tuple(self._running):
            await hop.stop()
            self._running.remove(hop)

    async def publish(self, records: Iterable[tuple[int, ToolCall | Tick | bytes]]) -> None:
        """Put records into partitions of tool-calls."""
        producer = AIOKafkaProducer(bootstrap_servers=self.broker, enable_idempotence=True)
        await producer.start()
        for partition, record in records:
            value = record if isinstance(record, bytes) else encode(record)
            headers = [TICK_HEADER] if isinstance(record, Tick) else []
            topic = TOOL_CALLS.named(self.prefix)
            await producer.send(topic, value, key=b"run", partition=partition, headers=headers)
        await producer.stop()

    async def tick(self) -> int:
        """The same tick in every partition of tool-calls."""
        self._slot += 1
        tick = Tick(slot=self._slot, at=self._slot * 1_000_000)
        await self.publish((partition, tick) for partition in range(TOOL_CALLS.partitions))
        return self._slot

    async def read(self, topic: Topic) -> list[Any]:
        """All committed records of a topic but ticks, partition after partition."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.broker, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            places = [TopicPartition(topic.named(self.prefix), number) for number in range(topic.partitions)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            messages = []
            for place in places:
                consumer.seek(place, 0)
            async with asyncio.timeout(SECONDS):
                while any([await consumer.position(place) < ends[place] for place in places]):
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        messages += batch
        finally:
            await consumer.stop()
        messages.sort(key=lambda m: (m.partition, m.offset))
        return [
            (m.key, m.value) if topic.record is bytes else decode(m.value, topic.record)
            for m in messages
            if TICK_HEADER not in m.headers
        ]

    async def progress(self, plan: HopPlan) -> list[Progress]:
        """The newest progress of every partition of a hop."""
        markers = [decode(value, Progress) for key, value in await self.read(plan.state_topic) if key == PROGRESS_KEY]
        newest: dict[int, Progress] = {}
        for index, marker in enumerate(markers):
            newest[index] = marker
        return list(newest.values())

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(SECONDS):
            while not await condition():
                assert not self.fatal, self.fatal
                await asyncio.sleep(0.1)

    async def has_clusters(self, n: int) -> None:
        async def enough() -> bool:
            return len(await self.read(CLUSTERS)) >= n

        await self.until(enough)


@pytest.fixture
async def river(kafka: str) -> AsyncIterator[River]:
    river = River(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=river.prefix)
    yield river
    await river.stop()


def calls(n: int, tools: int = 7, first: int = 0) -> list[tuple[int, ToolCall]]:
    """Calls 0..n-1 spread over partitions and tools; `seq` is the number, the time grows with it."""
    return [
        (
            number % TOOL_CALLS.partitions,
            ToolCall(
                source="s",
                run_id="run",
                tool=f"tool-{number % tools}",
                event_id=f"event-{number}",
                seq=number,
                started_at=1_000_000 + number,
            ),
        )
        for number in range(first, first + n)
    ]


def totals(n: int, tools: int = 7) -> dict[str, int]:
    return {f"tool-{tool}": sum(range(tool, n, tools)) for tool in range(tools)}


def last_total(clusters: list[Cluster]) -> dict[str, int]:
    return {cluster.tool: cluster.window_end for cluster in clusters}


async def test_two_chained_hops_give_every_record_once_and_in_the_order_of_time(river: River) -> None:
    await river.publish(calls(1_000))
    await river.tick()
    await river.start(Relay, Adder)
    await river.has_clusters(1_000)
    clusters = await river.read(CLUSTERS)
    assert len(clusters) == len({cluster.id for cluster in clusters}) == 1_000
    assert last_total(clusters) == totals(1_000)
    for tool in totals(1_000):
        order = [int(cluster.id.removeprefix("event-")) for cluster in clusters if cluster.tool == tool]
        assert order == sorted(order)


async def test_a_stopped_hop_goes_on_where_it_stopped(river: River) -> None:
    hops = await river.start(Relay, Adder)
    await river.publish(calls(500))
    await river.tick()
    await river.has_clusters(500)
    await river.stop(*hops)
    await river.publish(calls(500, first=500))
    await river.tick()
    await river.start(Relay, Adder)
    await river.has_clusters(1_000)
    clusters = await river.read(CLUSTERS)
    assert len({cluster.id for cluster in clusters}) == len(clusters) == 1_000
    assert last_total(clusters) == totals(1_000)


async def test_a_second_worker_takes_half_and_gives_it_back(river: River) -> None:
    await river.start(Relay, Adder)
    await river.publish(calls(300))
    await river.tick()
    await river.has_clusters(300)
    second = await river.start(Relay, Adder)

    async def shared() -> bool:
        return all(sum(hop.owns(p) for p in range(4)) == 2 for hop in second)

    await river.until(shared)
    await river.publish(calls(300, first=300))
    await river.tick()
    await river.has_clusters(600)
    await river.stop(*second)
    await river.publish(calls(300, first=600))
    await river.tick()
    await river.has_clusters(900)
    clusters = await river.read(CLUSTERS)
    assert len({cluster.id for cluster in clusters}) == len(clusters) == 900
    assert last_total(clusters) == totals(900)


async def test_what_cannot_be_read_becomes_a_dead_letter_and_the_rest_goes_on(river: River) -> None:
    good = calls(4)
    await river.publish([good[0], (0, b"{not json"), (0, b'{"source": "s"}'), *good[1:]])
    await river.tick()
    await river.start(Relay, Adder)
    await river.has_clusters(4)
    letters: list[DeadLetter] = await river.read(DEAD_LETTERS)
    assert [(letter.hop, letter.topic, letter.partition, letter.offset) for letter in letters] == [
        ("land", TOOL_CALLS.named(river.prefix), 0, 1),
        ("land", TOOL_CALLS.named(river.prefix), 0, 2),
    ]
    assert letters[0].reason.startswith("not JSON:")
    assert letters[1].reason == "not a valid ToolCall: Object missing required field `run_id`"
    read = [progress for progress in await river.progress(LAND) if progress.dead]
    assert read[-1].dead == 2 and read[-1].read == read[-1].emitted + read[-1].dead


async def test_nothing_of_an_epoch_is_handled_before_every_partition_has_ticked(river: River) -> None:
    await river.start(Relay, Adder)
    await river.publish(calls(8))
    await river.publish([(partition, Tick(slot=1, at=1)) for partition in (0, 1, 2)])

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) == 8

    await river.until(relayed)
    assert await river.read(CLUSTERS) == []
    await river.publish([(3, Tick(slot=1, at=1))])
    await river.has_clusters(8)


async def test_a_zombie_cannot_commit(river: River) -> None:
    [zombie] = await river.start(Relay)
    await river.publish(calls(40))
    await river.tick()

    async def owned() -> bool:
        return all(zombie.owns(partition) for partition in range(4))

    await river.until(owned)
    await zombie._consumer._coordinator.close()  # the group believes it has gone; it believes it is still a member
    [heir] = await river.start(Relay)

    async def inherited() -> bool:
        return all(heir.owns(partition) for partition in range(4))

    await river.until(inherited)
    await river.publish(calls(40, first=40))

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) >= 80

    async with asyncio.timeout(SECONDS):
        while not await relayed():
            await asyncio.sleep(0.1)
    ids = [episode.id for episode in await river.read(EPISODES)]
    assert len(ids) == len(set(ids)) == 80


async def test_a_lost_state_topic_is_said_and_nothing_is_handled_again(river: River) -> None:
    [hop] = await river.start(Relay)
    await river.publish(calls(40))
    await river.tick()

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) == 40

    await river.until(relayed)
    await river.stop(hop)
    await asyncio.to_thread(delete_topics, river.broker, [LAND.state_topic.named(river.prefix)])
    await asyncio.to_thread(ensure_topics, river.broker, prefix=river.prefix)
    await river.start(Relay)
    async with asyncio.timeout(SECONDS):
        while not river.fatal:
            await asyncio.sleep(0.1)
    assert "was lost or cut" in river.fatal[0]
    assert len(await river.read(EPISODES)) == 40


class Rebuilding(Relay):
    """A relay whose own store has been emptied."""

    stored: Progress | None = None

    async def stored_progress(self, partition: int) -> Progress | None:
        return self.stored


async def test_a_hop_whose_store_is_empty_handles_all_again_and_emits_nothing_twice(river: River) -> None:
    [hop] = await river.start(Relay)
    await river.publish(calls(40))
    await river.tick()

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) == 40

    await river.until(relayed)
    await river.stop(hop)
    handled: list[str] = []

    class Emptied(Rebuilding):
        stored = Progress(resume=0)

        def on_record(self, turn: Turn, arrival: Arrival[ToolCall]) -> None:
            handled.append(arrival.record.event_id)
            super().on_record(turn, arrival)

    await river.start(Emptied)
    await river.publish(calls(20, first=40))

    async def all_relayed() -> bool:
        return len(await river.read(EPISODES)) >= 60

    await river.until(all_relayed)
    ids = [episode.id for episode in await river.read(EPISODES)]
    assert len(ids) == len(set(ids)) == 60
    assert sorted(handled) == sorted(f"event-{number}" for number in range(60))
