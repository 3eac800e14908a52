"""Exactly once, through the project's own hops, under kill -9, pauses beyond the session timeout and a dead broker."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import lancedb
import pytest
from support.river import River
from support.storm import Profile, Storm

from fluvial.publish import Publisher
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, DEAD_LETTERS, GATHER
from fluvial.streams.admin import BrokerAway, ensure_topics
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import marks

SHORT = Profile(events=6_000, keys=300, kills=4, pauses=1, pause_seconds=10, calm_seconds=4, within_seconds=240)
LONG = Profile(events=50_000, keys=1_000, kills=12, pauses=4, pause_seconds=10, calm_seconds=8, within_seconds=1_200)
PROFILE = LONG if os.environ.get("FLUVIAL_CHAOS") == "long" else SHORT


def call(number: int) -> ToolCall:
    key = number % PROFILE.keys
    return ToolCall(
        source="storm",
        run_id=f"run-{number % 97}",
        tool=f"tool-{key}",
        event_id=f"event-{number}",
        seq=number,
        args={"key": key},
        started_at=1_700_000_000_000_000 + number * 1_000,
    )


@pytest.mark.parametrize("seed", [1])
def test_every_sum_every_episode_and_every_output_is_exact_after_a_storm(tmp_path: Path, seed: int) -> None:
    storm = Storm(tmp_path, seed)
    try:
        river = River(storm.broker.address)
        ensure_topics(storm.broker.address, prefix=river.prefix)
        publisher = Publisher(storm.broker.address, topic_prefix=river.prefix, buffer_calls=PROFILE.events)
        storm.start_workers(river.prefix)
        for number in range(PROFILE.events):
            publisher.publish(call(number))

        def all_added() -> bool:
            try:
                with LogReader(storm.broker.address) as reader:
                    known = marks(reader, [GATHER], river.prefix)
            except BrokerAway:
                return False
            return sum(mark.progress.read for mark in known.values()) >= PROFILE.events

        storm.blow_until(all_added, PROFILE)
        assert publisher.close()
        counts = publisher.counts()
        assert (counts.delivered, counts.failed, counts.dropped) == (PROFILE.events, 0, 0)

        clusters: list[Cluster] = asyncio.run(river.read(CLUSTERS))
        outputs = Counter(cluster.id for cluster in clusters)
        assert set(outputs) == {f"event-{number}" for number in range(PROFILE.events)}
        assert set(outputs.values()) == {1}
        totals: dict[str, int] = {}
        for number in range(PROFILE.events):
            key = f"tool-{number % PROFILE.keys}||"
            totals[key] = totals.get(key, 0) + number
        assert {cluster.tool: cluster.window_end for cluster in clusters} == totals
        assert asyncio.run(river.read(DEAD_LETTERS)) == []

        episodes = lancedb.connect(tmp_path / "episodes").open_table("episodes").to_arrow().column("id").to_pylist()
        assert len(episodes) == len(set(episodes)) == PROFILE.events
    finally:
        storm.stop()
