from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluvial.processors import window as module
from fluvial.processors.window import (
    DAY,
    LANE_IDLE,
    MOST_ROW_BYTES,
    SECOND,
    Carried,
    Lane,
    Pane,
    WindowPlan,
    Windows,
    forget,
    place,
    row_of,
    sweep,
)
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode

HOUR = 3_600 * SECOND
NOON = 1_692_273_600 * SECOND  # 2023-08-17 12:00 UTC, the start of a window
NOW = 1_764_547_200 * SECOND  # years later
PLAN = WindowPlan()


def episode(name: str, at: int, **fields: object) -> Episode:
    known: dict[str, object] = {
        "id": name,
        "source": "bot",
        "run_id": "r",
        "tool": "swap",
        "status": "ok",
        "started_at": at,
        "text": "",
        "reflection_source": "template",
        "embedding_model": "none",
        "log_partition": 0,
        "log_offset": 0,
    }
    return Episode(**(known | fields))  # type: ignore[arg-type]


class Stream:
    """Windows with a hand-moved tick clock."""

    def __init__(self, plan: WindowPlan = PLAN, now: int = 0) -> None:
        self.plan, self.now, self.late = plan, now, 0
        self.windows = Windows({}, {}, {}, {})
        self.closed: list[Cluster] = []

    def take(self, *episodes: Episode) -> "Stream":
        for each in episodes:
            clusters, late = place(self.windows, self.plan, each, self.now)
            self.closed += clusters
            self.late += late
        return self

    def tick(self, at: int, flush: bool = False) -> "Stream":
        self.closed += sweep(self.windows, self.plan, at, flush)
        self.now = at
        return self

    def members(self) -> list[list[str]]:
        return [[row.event_id for row in cluster.rows] for cluster in self.closed]


def spread(names: str, start: int = NOON) -> list[Episode]:
    return [episode(name, start + place * SECOND) for place, name in enumerate(names)]


def test_a_pane_closes_with_its_hundredth_episode() -> None:
    stream = Stream().take(*(episode(str(n), NOON + n) for n in range(250)))
    assert [len(cluster.rows) for cluster in stream.closed] == [100, 100]
    assert {(c.window_start, c.window_end) for c in stream.closed} == {(NOON, NOON + 4 * HOUR)}


def test_carried_rows_count_towards_the_hundred() -> None:
    stream = Stream().take(*spread("ab", NOON - 4 * HOUR)).tick(NOW, flush=True)
    stream.take(*(episode(str(n), NOON + n) for n in range(98)))
    assert [len(cluster.rows) for cluster in stream.closed] == [100]


def test_a_pane_closes_when_event_time_passes_its_end_and_the_lateness() -> None:
    end = NOON + 4 * HOUR
    stream = Stream().take(*spread("abc"), episode("d", end + PLAN.lateness - 1))
    assert stream.closed == []
    stream.take(episode("e", end + PLAN.lateness))
    assert stream.members() == [["a", "b", "c"]]


def test_a_pane_closes_by_a_tick_when_its_window_is_over_and_nothing_came_for_a_minute() -> None:
    end = NOON + 4 * HOUR
    stream = Stream(now=NOON).take(*spread("abc"))
    assert stream.tick(end + PLAN.lateness - 1).closed == []
    assert stream.tick(end + PLAN.lateness).members() == [["a", "b", "c"]]


def test_an_old_window_waits_for_a_minute_of_ticks_after_its_last_episode() -> None:
    stream = Stream(now=NOW).take(*spread("abc")).tick(NOW + 59 * SECOND)
    stream.take(episode("d", NOON)).tick(NOW + 118 * SECOND)
    assert stream.closed == []
    assert stream.tick(NOW + 119 * SECOND).members() == [["a", "b", "c", "d"]]


def test_before_the_first_tick_the_minute_begins_with_it() -> None:
    stream = Stream(now=0).take(*spread("abc")).tick(NOW)
    assert stream.closed == []
    assert len(stream.tick(NOW + 60 * SECOND).closed) == 1


def test_a_flush_closes_every_pane_and_keeps_what_is_too_little() -> None:
    stream = Stream(now=NOW).take(*spread("abc"), episode("x", NOON, tool="quote"))
    assert stream.tick(NOW + 1, flush=True).members() == [["a", "b", "c"]]
    assert [row.event_id for carried in stream.windows.carried.values() for row in carried.rows] == ["x"]


def test_too_few_rows_wait_for_the_next_pane_of_their_key() -> None:
    stream = Stream().take(*spread("ab"), *spread("cd", NOON + 8 * HOUR)).tick(NOW, flush=True)
    assert stream.members() == [["a", "b", "c", "d"]]
    (cluster,) = stream.closed
    assert (cluster.window_start, cluster.window_end) == (NOON, NOON + 12 * HOUR)


def test_a_lane_idle_for_long_is_forgotten_and_sends_out_what_it_carries() -> None:
    stream = Stream(now=NOW).take(*spread("ab"), episode("x", NOON, tool="quote")).tick(NOW + 1, flush=True)
    stream.now = NOW + 9
    stream.take(episode("y", NOON + 12 * HOUR, tool="quote")).tick(NOW + 10, flush=True)
    assert forget(stream.windows, NOW + LANE_IDLE) == []
    (cluster,) = forget(stream.windows, NOW + LANE_IDLE + 1)
    assert ([row.event_id for row in cluster.rows], cluster.tool) == (["a", "b"], "swap")
    assert (cluster.window_start, cluster.window_end) == (NOON, NOON + 4 * HOUR)
    assert len(stream.windows.lanes) == len(stream.windows.carried) == 1


def test_of_too_many_lanes_the_longest_idle_go_but_none_with_an_open_pane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LANES_KEPT", 2)
    stream = Stream(now=NOW).take(episode("open", NOON, tool="open"))
    for number in range(5):
        stream.now += 1
        stream.take(episode(str(number), NOON, tool=f"tool {number}"))
    for key in [key for key, pane in stream.windows.panes.items() if pane.tool != "open"]:
        module._close(stream.windows, PLAN, key)
    assert [cluster.tool for cluster in forget(stream.windows, NOW + 9)] == ["tool 0", "tool 1", "tool 2"]
    assert len(stream.windows.lanes) == 3
    assert sorted(carried.pane.tool for carried in stream.windows.carried.values()) == ["tool 3", "tool 4"]


def test_keys_do_not_mix() -> None:
    stream = Stream().take(
        *(episode(f"a{n}", NOON, chain="base") for n in range(3)),
        *(episode(f"b{n}", NOON, chain="base", token_pair="WETH/USDC") for n in range(3)),
        *(episode(f"c{n}", NOON, source="other") for n in range(3)),
    )
    stream.tick(NOW, flush=True)
    assert sorted((c.source, c.chain, c.token_pair) for c in stream.closed if c.token_pair is None) == [
        ("bot", "base", None),
        ("other", None, None),
    ]
    assert len(stream.closed) == 3


def test_a_late_episode_is_counted_and_gathered_into_a_pane_of_its_own_window() -> None:
    stream = Stream(now=NOW).take(*spread("abc"), *spread("def", NOON + 12 * HOUR))
    assert stream.members() == [["a", "b", "c"]]
    stream.take(*spread("xyz"))
    assert stream.late == 3
    assert len(stream.closed) == 1, "a late pane does not close by the time that has passed it"
    stream.tick(NOW + 60 * SECOND)
    assert [(c.window_start, c.late, len(c.rows)) for c in stream.closed[1:]] == [
        (NOON, 3, 3),
        (NOON + 12 * HOUR, 0, 3),
    ]


def test_a_time_more_than_a_day_ahead_of_the_clock_does_not_move_the_watermark() -> None:
    stream = Stream(now=NOON).take(*spread("abc"), episode("mars", NOON + 30 * DAY), episode("d", NOON))
    assert stream.closed == []
    assert stream.late == 0


def test_before_the_first_tick_every_time_counts() -> None:
    stream = Stream(now=0).take(*spread("abc"), episode("later", NOON + 30 * DAY))
    assert stream.members() == [["a", "b", "c"]]


def test_a_window_in_the_future_closes_once_left_alone_for_a_window() -> None:
    ahead = [episode(name, NOON + 30 * DAY) for name in "abc"]
    stream = Stream(now=NOON).take(*ahead).tick(NOON + 4 * HOUR + PLAN.lateness - 1)
    assert stream.closed == []
    assert len(stream.tick(NOON + 4 * HOUR + PLAN.lateness).closed) == 1


def test_a_replay_of_sources_out_of_order_makes_no_crumbs() -> None:
    rows = [episode(f"{source}{n}", NOON + n * HOUR, source=source) for source in ("one", "two") for n in range(240)]
    shuffled = sorted(rows, key=lambda e: e.id[::-1])
    stream = Stream(now=NOW)
    for number, each in enumerate(shuffled):
        stream.take(each)
        if number % 40 == 39:
            stream.tick(stream.now + 2 * SECOND)
    stream.tick(stream.now + 1, flush=True)
    assert sum(len(c.rows) for c in stream.closed) >= len(rows) - 4
    assert min(len(c.rows) for c in stream.closed) >= 3
    assert len(stream.closed) <= len(rows) / 3


def test_the_state_is_one_row_an_episode_and_empty_after_closing() -> None:
    stream = Stream(now=NOW).take(*spread("abcd"))
    assert sorted(row.event_id for row in stream.windows.rows.values()) == list("abcd")
    (pane,) = stream.windows.panes.values()
    assert len(encode(pane)) < 300
    stream.tick(NOW + 60 * SECOND)
    assert not stream.windows.rows and not stream.windows.panes
    assert [lane.open for lane in stream.windows.lanes.values()] == [()]


def test_a_cluster_stays_well_below_a_mebibyte() -> None:
    features = {f"args.field_{n}": "x" * 48 for n in range(500)}
    stream = Stream(now=NOW).take(*(episode(str(n), NOON, features=features) for n in range(300)))
    stream.tick(NOW, flush=True)
    assert sum(len(c.rows) for c in stream.closed) == 300
    assert max(len(encode(c)) for c in stream.closed) < 600_000


def test_a_row_keeps_its_first_features_and_stays_small() -> None:
    row = row_of(episode("a", NOON, features={f"args.field_{n}": "x" * 48 for n in range(500)}))
    assert len(encode(row)) <= MOST_ROW_BYTES
    assert list(row.features)[:2] == ["args.field_0", "args.field_1"]
    assert len(row.features) > 80


def test_a_row_has_the_outcome_and_what_was_known_before_it() -> None:
    failed = episode("a", NOON, status="error", error_type="slippage", task_id="t", reward=0.5, features={"hour": 12})
    assert row_of(failed) == Row(
        event_id="a",
        run_id="r",
        failed=True,
        at=NOON,
        task_id="t",
        error_type="slippage",
        reward=0.5,
        features={"hour": 12},
    )


def test_ids_are_functions_of_key_window_and_members() -> None:
    def ids(*episodes: Episode) -> list[str]:
        return [cluster.id for cluster in Stream(now=NOW).take(*episodes).tick(NOW, flush=True).closed]

    assert ids(*spread("abc")) == ids(*spread("abc")) == ["c87763492e62017ae72de5989dfa4bba"]
    assert ids(*spread("abc")) != ids(*spread("abd"))
    assert ids(*spread("abc")) != ids(*spread("abc", NOON + 4 * HOUR))


@pytest.mark.parametrize("at", [-62_135_596_800 * SECOND, -1, 0, 253_402_300_799 * SECOND])
def test_every_time_has_its_window(at: int) -> None:
    start = PLAN.window_of(at)
    assert start <= at < start + PLAN.length and start % PLAN.length == 0


events = st.lists(
    st.tuples(
        st.sampled_from(["swap", "quote"]),
        st.integers(0, 40 * HOUR),
        st.booleans(),
    ),
    max_size=60,
)


@given(events)
def test_no_episode_is_lost_or_doubled(drawn: Iterable[tuple[str, int, bool]]) -> None:
    stream = Stream(WindowPlan(most=7), now=NOON)
    sent = []
    for number, (tool, offset, ticks) in enumerate(drawn):
        sent.append(str(number))
        stream.take(episode(str(number), NOON + offset, tool=tool))
        if ticks:
            stream.tick(stream.now + 30 * SECOND)
    stream.tick(stream.now, flush=True)
    kept = [row.event_id for carried in stream.windows.carried.values() for row in carried.rows]
    assert sorted([*kept, *(name for members in stream.members() for name in members)], key=int) == sent
    assert all(3 <= len(members) <= 9 for members in stream.members())
    assert all(len(carried.rows) < 3 for carried in stream.windows.carried.values())
    assert not stream.windows.panes and not stream.windows.rows


def test_the_kinds_of_state_are_records() -> None:
    assert encode(Lane()) == b"{}"
    pane = Pane(lane="l", source="s", tool="t", start=0, end=1)
    packed = b'{"lane":"l","source":"s","tool":"t","start":0,"end":1}'
    assert encode(pane) == packed
    assert encode(Carried(rows=(), pane=pane)) == b'{"rows":[],"pane":' + packed + b"}"
