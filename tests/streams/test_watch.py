"""Watch turns the metrics of episodes into drift, and drift for the worse into doubt."""

import random
from collections.abc import Sequence

import msgspec

from fluvial.drift.bank import Counts, DetectorState, restore
from fluvial.drift.detector import RATE
from fluvial.schemas.codec import decode
from fluvial.schemas.drift_event import DriftEvent, MetricKey
from fluvial.schemas.episode import Episode, stream_key
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.topics import DRIFT, INSIGHT_OPS
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn
from fluvial.streams.watch import Watch

MINUTE = 60_000_000
Outputs = list[tuple[str, str, DriftEvent | InsightOp]]


def episode(number: int, metrics: dict[str, float], *, failed: bool = False, tool: str = "swap") -> Episode:
    return Episode(
        id=f"e{number}",
        source="s",
        run_id="r",
        tool=tool,
        status="error" if failed else "ok",
        started_at=number * MINUTE,
        text="",
        reflection_source="template",
        embedding_model="none",
        log_partition=0,
        log_offset=number,
        chain="polygon",
        token_pair="USDC/WETH",
        metrics=metrics,
    )


def run(watch: Watch, state: State, episodes: Sequence[Episode], per_turn: int = 100) -> Outputs:
    """Turns of so many episodes in partition 0, each committed."""
    outputs: Outputs = []
    for start in range(0, len(episodes), per_turn):
        turn = Turn("watch", 0, state, Progress(resume=start))
        for record in episodes[start : start + per_turn]:
            key = stream_key(record.tool, record.chain, record.token_pair)
            watch.on_record(turn, Arrival(record, key, "episodes", 0, record.log_offset, 0))
        watch.before_commit(turn)
        state.settle()
        for output in turn.outputs:
            assert isinstance(output, Output)
            outputs.append((output.topic.name, output.key, decode(output.value, output.topic.record)))
    return outputs


def market(n: int = 1200) -> list[Episode]:
    """Gas doubles at 600 and depth falls, the error rate rises at 700, latency gets better at 800."""
    dice = random.Random(1)
    return [
        episode(
            number,
            {
                "gas_gwei": dice.gauss(100 if number >= 600 else 50, 5),
                "pool_depth_usd": dice.gauss(9e6 if number >= 600 else 1e7, 2e5),
                "latency_ms": dice.gauss(80 if number >= 800 else 120, 8),
                "volatility": dice.gauss(3 if number >= 900 else 1, 0.2),
            },
            failed=dice.random() < (0.5 if number >= 700 else 0.05),
        )
        for number in range(n)
    ]


def restored(state: State) -> State:
    """The state as another worker reads it from the log."""
    again = State()
    for name, kind in (("detectors", DetectorState), ("counts", Counts)):
        for key, row in state.table(name, kind).items():
            again.load(f"{name}\x1f{key}".encode(), msgspec.json.encode(row))
    return again


def test_each_changed_metric_is_one_drift_event_under_its_key() -> None:
    outputs = run(Watch("broker.test:9092"), State(), market())
    drifts = [(key, drift) for topic, key, drift in outputs if topic == DRIFT.name and isinstance(drift, DriftEvent)]
    assert [(key, drift.direction, drift.polarity) for key, drift in drifts] == [
        ("swap|polygon|USDC/WETH|gas_gwei", "up", "degrade"),
        ("swap|polygon|USDC/WETH|pool_depth_usd", "down", "degrade"),
        ("swap|polygon|USDC/WETH|error_rate", "up", "degrade"),
        ("swap|polygon|USDC/WETH|latency_ms", "down", "improve"),
        ("swap|polygon|USDC/WETH|volatility", "up", "neutral"),
    ]
    for (_, drift), minute in zip(drifts, (600, 600, 700, 800, 900), strict=True):
        assert abs(drift.change_time.est - minute * MINUTE) <= 8 * MINUTE
        assert 0 <= drift.detected_at - minute * MINUTE <= 40 * MINUTE
    assert drifts[0][1].key == MetricKey(tool="swap", metric="gas_gwei", chain="polygon", token_pair="USDC/WETH")
    assert drifts[2][1].config_version == RATE.version()


def test_a_call_whose_result_never_came_says_nothing_of_the_error_rate() -> None:
    watch, state = Watch("broker.test:9092"), State()
    run(watch, state, [msgspec.structs.replace(episode(1, {"gas_gwei": 1.0}), status="unknown")])
    watched = {key.rpartition("|")[2] for key in state.table("detectors", DetectorState)}
    assert len(watched) == 1, watched


def test_drift_for_the_worse_and_only_that_downvotes_once() -> None:
    outputs = run(Watch("broker.test:9092"), State(), market())
    drifts = [drift for _, _, drift in outputs if isinstance(drift, DriftEvent)]
    ops = [(topic, key, op) for topic, key, op in outputs if isinstance(op, InsightOp)]
    assert len({op.op_id for _, _, op in ops}) == 3
    for (topic, key, op), drift in zip(ops, drifts[:3], strict=True):
        assert (topic, key) == (INSIGHT_OPS.name, "")
        assert op == InsightOp(
            op_id=op.op_id,
            op="DOWNVOTE",
            reason="drift",
            actor="watch",
            at=drift.detected_at,
            about=drift.key,
            cause=drift.event_id,
        )


def test_neither_the_size_of_turns_nor_a_restart_changes_anything() -> None:
    episodes = market()
    whole = State()
    expected = run(Watch("broker.test:9092"), whole, episodes)
    assert len(expected) == 8
    for per_turn, cut in ((1, 300), (7, 640), (256, 1000)):
        state = State()
        outputs = run(Watch("broker.test:9092"), state, episodes[:cut], per_turn)
        state = restored(state)
        assert outputs + run(Watch("broker.test:9092"), state, episodes[cut:], per_turn) == expected
        for name, kind in (("detectors", DetectorState), ("counts", Counts)):
            assert dict(state.table(name, kind)) == dict(whole.table(name, kind))


def test_a_partition_that_comes_back_goes_on_from_its_state_not_from_memory() -> None:
    episodes = market()
    watch, state = Watch("broker.test:9092"), State()
    before = run(watch, state, episodes[:650])
    run(watch, restored(state), episodes[:50])  # what this worker did with another state must not count
    watch.close_partition(0)
    assert before + run(watch, restored(state), episodes[650:]) == run(Watch("broker.test:9092"), State(), episodes)


def test_only_keys_of_the_turn_are_written() -> None:
    watch, state = Watch("broker.test:9092"), State()
    turn = Turn("watch", 0, state, Progress(resume=0))
    for number, tool in enumerate(("swap", "quote")):
        watch.on_record(turn, Arrival(episode(number, {"gas_gwei": 1.0}, tool=tool), tool, "episodes", 0, number, 0))
    watch.before_commit(turn)
    assert len(list(state.changes())) == 5  # two keys a tool, and the counts
    state.settle()
    turn = Turn("watch", 0, state, Progress(resume=2))
    watch.on_record(turn, Arrival(episode(2, {}, tool="quote"), "quote", "episodes", 0, 2, 0))
    watch.before_commit(turn)
    assert [key.split(b"\x1f")[0] for key, _ in state.changes()] == [b"detectors", b"counts"]
    state.settle()
    watch.before_commit(Turn("watch", 0, state, Progress(resume=3)))
    assert list(state.changes()) == []


def test_a_tool_without_chain_pair_or_metrics_is_watched_for_errors() -> None:
    dice = random.Random(2)
    episodes = [
        msgspec.structs.replace(
            episode(number, {}, failed=dice.random() < (0.6 if number >= 300 else 0.1)), chain=None, token_pair=None
        )
        for number in range(400)
    ]
    outputs = run(Watch("broker.test:9092"), State(), episodes)
    assert [(topic, key) for topic, key, _ in outputs] == [("drift", "swap|||error_rate"), ("insight-ops", "")]


def test_the_outcome_of_the_call_is_its_error_rate_whatever_the_agent_measured() -> None:
    state = State()
    run(Watch("broker.test:9092"), state, [episode(0, {"error_rate": 0.25}, failed=True)])
    (row,) = state.table("detectors", DetectorState).values()
    assert restore(row, RATE).memory.history.values == [1.0]


def test_idle_keys_make_room_and_everything_refused_or_forgotten_is_counted() -> None:
    state = State()
    episodes = [episode(number, {"gas_gwei": 1e300}, tool=f"tool-{number % 7}") for number in range(70)]
    run(Watch("broker.test:9092", keys=6), state, episodes)
    assert len(state.table("detectors", DetectorState)) == 6
    counts = state.table("counts", Counts)[""]
    assert counts.values == 140
    assert counts.refused == 70
    assert counts.forgotten == 134
    assert counts.cold_starts == 0
