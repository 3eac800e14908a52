from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import INSIGHT_OPS
from fluvial.streams.distil import Distil
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn

DISTIL = Distil("broker.test:9092")


def arrival(number: int, calls: int = 40) -> Arrival[Cluster]:
    """Half of the calls have no deadline, and fail."""
    rows = tuple(
        Row(
            event_id=f"e{number}-{n}",
            run_id=f"r{number}-{n // 2}",
            failed=n % 2 == 0,
            at=1_000 * number + n,
            features={"args.deadline_s": 5 if n % 2 == 0 else 60},
        )
        for n in range(calls)
    )
    record = Cluster(id=f"c{number}", source="bot", tool="swap", window_start=0, window_end=1, rows=rows)
    return Arrival(record, "bot", "clusters", 0, number, 0, encode(record))


def turn(state: State) -> Turn:
    return Turn("distil", 0, state, Progress(resume=0, slot=7))


def ops(turn: Turn) -> list[InsightOp]:
    found = [o for o in turn.outputs if isinstance(o, Output) and o.topic == INSIGHT_OPS]
    records = [decode(o.value, InsightOp) for o in found]
    assert [o.key for o in found] == [record.insight_id for record in records]
    return records


def test_a_cluster_becomes_operations_under_their_insight() -> None:
    one = turn(State())
    DISTIL.on_record(one, arrival(1))
    (op,) = ops(one)
    assert (op.op, op.cause, op.at) == ("ADD", "c1", 1_039)
    assert op.content == (
        "swap fails when deadline_s is at most 5: 20 of 20 calls (100 %) in 20 runs, against 0 % otherwise."
    )


def test_only_a_tick_that_flushes_brings_sentences_up_to_date() -> None:
    state = State()
    for number in (1, 2):
        DISTIL.on_record(turn(state), arrival(number, calls=30))
    one = turn(state)
    DISTIL.on_tick(one, Tick(slot=8, at=9))
    assert ops(one) == []
    DISTIL.on_record(turn(state), arrival(3, calls=4))
    DISTIL.on_tick(one, Tick(slot=9, at=9, flush=True))
    (op,) = ops(one)
    assert op.op == "EDIT" and "32 of 32 calls" in (op.content or "")


def test_what_is_known_survives_a_restart() -> None:
    state = State()
    DISTIL.on_record(turn(state), arrival(1))
    restored = State()
    for key, row in state.changes():
        restored.load(key, row)
    without_break = turn(state)
    after_restart = turn(restored)
    DISTIL.on_record(without_break, arrival(2))
    DISTIL.on_record(after_restart, arrival(2))
    assert ops(after_restart) == ops(without_break)
    assert [op.op for op in ops(after_restart)] == ["UPVOTE", "EDIT"]
