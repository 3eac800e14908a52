from msgspec.structs import replace

from fluvial.processors.alert import Told
from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import ALERTS
from fluvial.streams.notify import TOLD_IDLE, Notify
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn

DRIFT = DriftEvent(
    event_id="e1",
    fingerprint="f1",
    key=MetricKey(tool="swap", metric="slippage_bps"),
    direction="up",
    polarity="degrade",
    before=Level(mean=10.0, median=10.0, n=300),
    after=Level(mean=40.0, median=40.0, n=40),
    effect_sigma=3.0,
    rel_change=3.0,
    change_time=ChangeTime(est=0, lo=0, hi=0),
    detected_at=0,
    severity="warning",
)


def arrival(drift: DriftEvent) -> Arrival[DriftEvent]:
    return Arrival(drift, "key", "drift", 0, 0, 0, encode(drift))


def turn(state: State) -> Turn:
    return Turn("notify", 0, state, Progress(resume=0, slot=7))


def alerts(turn: Turn) -> list[Alert]:
    return [decode(output.value, Alert) for output in turn.outputs if isinstance(output, Output)]


def test_a_drift_becomes_one_alert_under_its_fingerprint() -> None:
    notify, one = Notify("broker.test:9092"), turn(State())
    notify.on_record(one, arrival(DRIFT))
    (output,) = one.outputs
    assert isinstance(output, Output)
    assert (output.topic, output.key, output.epoch) == (ALERTS, "f1", 7)
    (alert,) = alerts(one)
    assert alert.drift == DRIFT
    assert alert.summary.startswith("slippage_bps of swap rose for the worse from 10 bps to 40 bps")


def test_the_cool_down_is_kept_in_the_state_of_the_partition() -> None:
    notify, state = Notify("broker.test:9092", cooldown_seconds=60.0), State()
    notify.on_record(turn(state), arrival(DRIFT))
    restored = State()
    for key, row in state.changes():
        restored.load(key, row)
    later = turn(restored)
    notify.on_record(later, arrival(replace(DRIFT, event_id="e2", detected_at=59_999_999)))
    assert alerts(later) == []
    notify.on_record(later, arrival(replace(DRIFT, event_id="e3", detected_at=60_000_000)))
    assert [alert.drift.event_id for alert in alerts(later)] == ["e3"]


def test_a_fingerprint_is_forgotten_a_week_of_ticks_after_its_last_drift() -> None:
    notify, state = Notify("broker.test:9092"), State()
    for fingerprint, now in (("f1", 1), ("f2", 9), ("before the first tick", 0)):
        one = Turn("notify", 0, state, Progress(resume=0, at=now))
        notify.on_record(one, arrival(replace(DRIFT, fingerprint=fingerprint)))
    notify.on_tick(turn(state), Tick(slot=8, at=TOLD_IDLE + 1))
    assert len(state.table("told", Told)) == 3
    notify.on_tick(turn(state), Tick(slot=9, at=TOLD_IDLE + 1 + 3_600_000_000))
    assert list(state.table("told", Told)) == ["before the first tick"]


def test_a_tick_alone_changes_nothing() -> None:
    state = State()
    one = turn(state)
    Notify("broker.test:9092").on_tick(one, Tick(slot=8, at=8_000))
    assert (one.outputs, list(state.changes())) == ([], [])
