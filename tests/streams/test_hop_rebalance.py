"""A rebalance that comes at the worst moment: while records are on their way from the broker to the hop.

A worker that was paused, or whose broker was away, is thrown out of its group and gets the same partitions again. The
consumer's position then moves back to the state, and what had been fetched before or meanwhile must neither be lost nor
handled twice.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.hops import Adder, Relay
from support.river import River

from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, EPISODES, TOOL_CALLS
from fluvial.streams.admin import ensure_topics
from fluvial.streams.hop import Hop

CALLS = 400
TOOLS = 7


@pytest.fixture
async def river(kafka: str) -> AsyncIterator[River]:
    river = River(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=river.prefix)
    yield river
    await river.stop()


def calls() -> list[tuple[int, ToolCall]]:
    return [
        (
            number % TOOL_CALLS.partitions,
            ToolCall(
                source="s",
                run_id="run",
                tool=f"tool-{number % TOOLS}",
                event_id=f"event-{number}",
                seq=number,
                started_at=1_000_000 + number,
            ),
        )
        for number in range(CALLS)
    ]


async def rebalance(hop: Hop) -> None:
    """The group takes every partition away and gives it back, as the consumer tells the hop of it."""
    await hop.on_partitions_revoked(hop._consumer.assignment())
    await hop.on_partitions_assigned(hop._consumer.assignment())


async def started(river: River, *kinds: type[Hop]) -> list[Hop]:
    hops = await river.start(*kinds)

    async def settled() -> bool:
        return all(hop.owns(partition) for hop in hops for partition in range(hop.plan.source.partitions))

    await river.until(settled)
    return hops


async def test_what_is_fetched_while_a_rebalance_ends_is_not_lost(
    river: River, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hop,) = await started(river, Relay)
    getmany, left = hop._consumer.getmany, 3

    async def across_a_rebalance(**how: Any) -> Any:
        nonlocal left
        if left:
            await rebalance(hop)
        fetched = await getmany(**how)
        left = max(0, left - bool(fetched))
        return fetched

    monkeypatch.setattr(hop._consumer, "getmany", across_a_rebalance)
    await river.publish(calls())

    async def relayed() -> bool:
        return not left and len(await river.read(EPISODES)) >= CALLS

    await river.until(relayed)
    assert sorted(e.id for e in await river.read(EPISODES)) == sorted(f"event-{number}" for number in range(CALLS))


async def test_what_is_fetched_while_the_state_is_sought_is_not_handled_twice(
    river: River, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops = await started(river, Relay, Adder)
    for hop in hops:
        beginnings = hop._consumer.beginning_offsets

        async def slow_beginnings(where: Any, beginnings: Any = beginnings) -> Any:
            await asyncio.sleep(0.2)
            return await beginnings(where)

        monkeypatch.setattr(hop._consumer, "beginning_offsets", slow_beginnings)
    await river.publish(calls())
    await river.tick()
    for _ in range(4):
        await asyncio.gather(*(rebalance(hop) for hop in hops))
        await asyncio.sleep(0.1)
    await river.tick()
    await river.has_clusters(CALLS)
    await river.tick()
    clusters = await river.read(CLUSTERS)
    assert len(clusters) == len({cluster.id for cluster in clusters}) == CALLS
    last = {cluster.tool: cluster.window_end for cluster in clusters}
    assert last == {f"tool-{tool}": sum(range(tool, CALLS, TOOLS)) for tool in range(TOOLS)}


async def test_rebalances_without_end_are_no_progress(river: River, monkeypatch: pytest.MonkeyPatch) -> None:
    (hop,) = await started(river, Relay)
    getmany, rounds = hop._consumer.getmany, 0

    async def across_a_rebalance(**how: Any) -> Any:
        nonlocal rounds
        fetched = await getmany(**how)
        await rebalance(hop)
        rounds += 1
        return fetched

    monkeypatch.setattr(hop._consumer, "getmany", across_a_rebalance)
    beats = hop.life.beats
    await river.publish(calls())

    async def many() -> bool:
        return rounds > 10

    await river.until(many)
    assert hop.life.beats <= beats + 1  # a round that was under way when the storm began
    assert "the group has handed out its partitions" in hop.life.doing()
    assert await river.read(EPISODES) == []
    monkeypatch.setattr(hop._consumer, "getmany", getmany)

    async def relayed() -> bool:
        return len(await river.read(EPISODES)) == CALLS

    await river.until(relayed)
    assert hop.life.beats > beats + 1
