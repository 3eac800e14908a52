from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fluvial.processors.window import DAY, SECOND, Lane
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.episode import Episode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import CLUSTERS
from fluvial.streams.gather import Gather
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn

NOW = 1_764_547_200 * SECOND
GATHER = Gather("broker.test:9092")


def arrival(name: str, at: int = NOW, source: str = "bot") -> Arrival[Episode]:
    record = Episode(
        id=name,
        source=source,
        run_id="r",
        tool="swap",
        status="ok",
        started_at=at,
        text="",
        reflection_source="template",
        embedding_model="none",
        log_partition=0,
        log_offset=0,
    )
    return Arrival(record, "swap||", "episodes", 0, 0, at, encode(record))


def turn(state: State) -> Turn:
    return Turn("gather", 0, state, Progress(resume=0, slot=7, at=NOW))


def outputs(turn: Turn) -> list[tuple[str, Cluster]]:
    return [(o.key, decode(o.value, Cluster)) for o in turn.outputs if isinstance(o, Output) and o.topic == CLUSTERS]


def flush(at: int) -> Tick:
    return Tick(slot=8, at=at, flush=True)


def test_a_cluster_goes_out_under_its_source() -> None:
    one = turn(State())
    for name in "abc":
        GATHER.on_record(one, arrival(name))
    assert outputs(one) == []
    GATHER.on_tick(one, flush(NOW + SECOND))
    ((key, cluster),) = outputs(one)
    assert key == cluster.source == "bot"
    assert [row.event_id for row in cluster.rows] == ["a", "b", "c"]


def test_late_episodes_are_counted() -> None:
    one = turn(State())
    for name, at in (("a", NOW), ("b", NOW - 86_400 * SECOND)):
        GATHER.on_record(one, arrival(name, at))
    assert one.progress.late == 1


def test_nothing_is_learnt_from_a_call_whose_result_never_came() -> None:
    one, whole = turn(State()), arrival("a")
    GATHER.on_record(one, replace(whole, record=structs.replace(whole.record, status="unknown")))
    GATHER.on_tick(one, flush(NOW + SECOND))
    assert outputs(one) == []
    assert one.progress.done == 1


def test_what_is_open_survives_a_restart() -> None:
    state = State()
    for name in "abcd":
        GATHER.on_record(turn(state), arrival(name))
    restored = State()
    for key, row in state.changes():
        restored.load(key, row)
    one = turn(restored)
    GATHER.on_tick(one, flush(NOW + SECOND))
    assert [len(cluster.rows) for _, cluster in outputs(one)] == [4]


def test_one_episode_changes_three_small_rows_of_the_state() -> None:
    state = State()
    for name in map(str, range(90)):
        GATHER.on_record(turn(state), arrival(name))
    state.settle()
    GATHER.on_record(turn(state), arrival("last"))
    changed = dict(state.changes())
    assert len(changed) == 3
    assert sum(len(row or b"") for row in changed.values()) < 600


def test_a_closed_pane_leaves_only_tombstones_its_lane_and_the_time_of_the_sweep() -> None:
    state = State()
    for name in "abc":
        GATHER.on_record(turn(state), arrival(name))
    GATHER.on_tick(turn(state), flush(NOW + SECOND))
    assert [key.split(b"\x1f")[0] for key, row in state.changes() if row is not None] == [
        b"lanes",
        b"swept",
    ]


def test_what_a_lane_carries_goes_out_once_nothing_came_for_a_week() -> None:
    state = State()
    GATHER.on_record(turn(state), arrival("a"))
    GATHER.on_tick(turn(state), flush(NOW + SECOND))
    GATHER.on_tick(early := turn(state), flush(NOW + 7 * DAY))
    assert outputs(early) == []
    GATHER.on_tick(late := turn(state), flush(NOW + 7 * DAY + 3_600 * SECOND))
    assert [[row.event_id for row in cluster.rows] for _, cluster in outputs(late)] == [["a"]]
    assert list(state.table("lanes", Lane)) == []


@pytest.mark.parametrize(
    ("setting", "value", "at"),
    [
        ("window_episodes", 3, NOW),
        ("window_hours", 1.0, NOW + 3_600 * SECOND + 600 * SECOND),
        ("lateness_seconds", 0.0, NOW + 4 * 3_600 * SECOND),
    ],
)
def test_windows_are_cut_as_the_settings_say(setting: str, value: Any, at: int) -> None:
    gather, one = Gather("broker.test:9092", **{setting: value}), turn(State())
    for name in "abc":
        gather.on_record(one, arrival(name))
    gather.on_record(one, arrival("d", at))
    assert [len(cluster.rows) for _, cluster in outputs(one)] == [3]
