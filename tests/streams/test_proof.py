"""The proof sees what is still there, wherever that is."""

from pathlib import Path
from typing import Any

import pytest
from support.episodes import episode, put
from support.lessons import add, apply, opened

from fluvial.processors.lessons import packed
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import AGENT_EVENTS, CLUSTERS, DEAD_LETTERS, DISTIL, EPISODES, LAND, TOOL_CALLS
from fluvial.settings import Settings
from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams.log_reader import LogReader
from fluvial.streams.proof import event_ids, look

RUN = Erasure(what="run", value="secret-5f0c2b7e9d3a41c8")
ROW = Row(event_id="e1", run_id=RUN.value, failed=True, at=1)
OTHER = Row(event_id="e2", run_id="other", failed=True, at=1)


@pytest.fixture
def settings(dry_river: Any, tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", broker=dry_river.broker, topic_prefix=dry_river.prefix)


def found(settings: Settings, erasure: Erasure = RUN) -> dict[str, int]:
    """Places where it was found, and in how many rows, records or files."""
    with LogReader(settings.broker_address()) as reader:
        places = list(look(settings, reader, erasure, event_ids(settings, erasure)))
    return {place.name: place.found for place in places if place.found}


def test_where_nothing_is_nothing_is_found(settings: Settings, dry_river: Any) -> None:
    assert found(settings) == {}
    dry_river.write(EPISODES, [Tick(slot=1, at=1, erase=RUN)])  # the order itself
    assert found(settings) == {}


def test_topics_and_the_last_word_of_every_state_are_read(settings: Settings, dry_river: Any) -> None:
    call = ToolCall(source="s", run_id=RUN.value, tool="pay")
    dry_river.write(TOOL_CALLS, [call, ToolCall(source="s", run_id="other", tool="pay")])
    dry_river.write(AGENT_EVENTS, [b"\xff binary " + RUN.value.encode()])
    dry_river.write(EPISODES, [episode(1, RUN.value), episode(2)])
    dry_river.write(
        CLUSTERS, [Cluster(id="c", source="s", tool="pay", window_start=0, window_end=1, rows=(OTHER, ROW))]
    )
    letter = DeadLetter(
        id="l", hop="land", topic="tool-calls", partition=0, offset=1, reason="why", value=encode(call).decode(), at=1
    )
    dry_river.write(DEAD_LETTERS, [letter])
    dry_river.write(DISTIL.state_topic, [(b"evidence\x1fk:0", encode(packed((OTHER, ROW))))])
    dry_river.write(LAND.state_topic, [(f"runs\x1fs|{RUN.value}".encode(), b"{}")], 1)
    assert found(settings) == {
        "tool-calls": 1,
        "agent-events": 1,
        "episodes": 1,
        "clusters": 1,
        "dead-letters": 1,
        "distil-state": 1,
        "land-state": 1,
    }
    dry_river.write(DISTIL.state_topic, [(b"evidence\x1fk:0", encode(packed((OTHER,))))])
    assert "distil-state" not in found(settings)


def test_stores_their_older_versions_and_their_bytes_are_read(settings: Settings) -> None:
    store = EpisodeStore.create(settings.episodes)
    put(store, [episode(1, RUN.value), episode(2)])
    store._table.delete(f"run_id = '{RUN.value}'")
    assert found(settings) == {"episode store: versions": 1, "episode store: bytes": 3}
    store.erase(0, [])
    assert found(settings) == {}
    lessons = opened(settings.live_insights)
    apply(lessons, [add("i1", content="Ask Marmaduke Fitzgerald.")])
    lessons.close()
    settings.live_insights.rename(settings.insights)
    told = found(settings, Erasure(what="subject", value="marmaduke fitzgerald"))
    assert told == {"insight store, insights": 1, "insight store, operations": 1} | {
        "snapshot, insights": 1,
        "snapshot, operations": 1,
    }
