"""The transactional hop on a real broker: exactly once over restarts, rebalances and zombies, and in a fixed order."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from support.hops import Adder, Relay
from support.river import River

from fluvial.schemas.cluster import Cluster
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, DEAD_LETTERS, EPISODES, LAND, TOOL_CALLS
from fluvial.streams.admin import delete_topics, ensure_topics
from fluvial.streams.turn import Arrival, Turn


@pytest.fixture
async def river(kafka: str) -> AsyncIterator[River]:
    river = River(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=river.prefix)
    yield river
    await river.stop()
    gc.collect()  # a fenced producer's futures log their errors when they are collected: not amid an import (gh-106905)


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


@pytest.mark.parametrize(
    "headers",
    [
        [("origin", b"\xff\xfe")],
        [("origin", b"land/0"), ("epoch", b"abc")],
        [("origin", b"stranger"), ("epoch", b"0")],
        [("origin", b"stranger"), ("epoch", b"99999999999999")],
    ],
)
async def test_a_record_with_headers_that_are_no_hops_becomes_a_dead_letter(
    river: River, headers: list[tuple[str, bytes]]
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=river.broker)
    await producer.start()
    await producer.send_and_wait(EPISODES.named(river.prefix), b"{}", partition=0, headers=headers)
    await producer.stop()
    await river.publish(calls(4))
    await river.tick()
    await river.start(Relay, Adder)
    await river.has_clusters(4)
    [letter] = await river.read(DEAD_LETTERS)
    assert letter.hop == "gather"
    assert letter.reason.startswith("the headers origin and epoch are the hops' own:")


async def test_nothing_of_an_epoch_is_handled_before_every_partition_has_ticked(river: River) -> None:
    _, adder = await river.start(Relay, Adder)
    await river.publish(calls(8))
    await river.publish([(partition, Tick(slot=1, at=1)) for partition in (0, 1, 2)])

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) == 8

    await river.until(relayed)
    await river.has_handled(adder, EPISODES)
    assert await river.read(CLUSTERS) == []
    await river.publish([(3, Tick(slot=1, at=1))])
    await river.has_clusters(8)


@pytest.mark.parametrize("amid", [False, True], ids=["between transactions", "amid its first transaction"])
async def test_a_zombie_cannot_commit(river: River, amid: bool) -> None:
    [zombie] = await river.start(Relay)
    await river.publish(calls(40))
    await river.tick()

    async def owned() -> bool:
        return all(zombie.owns(partition) for partition in range(4))

    async def begun() -> bool:
        return len(await river.read(EPISODES)) == 40

    await river.until(owned if amid else begun)
    await zombie._consumer._coordinator.close()  # the group believes it has gone; it believes it is still a member
    [heir] = await river.start(Relay)

    async def inherited() -> bool:
        return all(heir.owns(partition) for partition in range(4))

    await river.until(inherited, even_if_fatal=True)  # the zombie may notice that it is fenced, and die
    await river.publish(calls(40, first=40))

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) >= 80

    async def died() -> bool:
        return bool(river.fatal)

    await river.until(relayed, even_if_fatal=True)
    await river.until(died, even_if_fatal=True)
    # Amid a transaction the broker may say that it is fenced, or only that it does not know what is wrong (error -1).
    assert all("Fenced" in said or (amid and "KafkaError" in said) for said in river.fatal), river.fatal
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

    async def said() -> bool:
        return bool(river.fatal)

    await river.until(said, even_if_fatal=True)
    assert "was lost or cut" in river.fatal[0]
    assert len(await river.read(EPISODES)) == 40


class Rebuilding(Relay):
    """A relay whose own store has been emptied."""

    stored: Progress | None = None

    async def stored_progress(self, partition: int, known: Progress) -> Progress | None:
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
