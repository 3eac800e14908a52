"""What becomes of one alert."""

import httpx
import pytest
import stamina
from aiokafka import ConsumerRecord

from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.dead_letter import DeadLetter, dead_letter_id
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.sinks.alerts import Webhook
from fluvial.streams.deliver import Deliver

LEVEL = Level(mean=1.0, median=1.0, n=1)


def alert(alert_id: str) -> Alert:
    drift = DriftEvent(
        event_id="e1",
        fingerprint="f1",
        key=MetricKey(tool="swap", metric="slippage_bps"),
        direction="up",
        polarity="degrade",
        before=LEVEL,
        after=LEVEL,
        effect_sigma=3.0,
        rel_change=0.0,
        change_time=ChangeTime(est=0, lo=0, hi=0),
        detected_at=0,
        severity="warning",
    )
    return Alert(alert_id=alert_id, severity="warning", summary="It rose.", at=0, drift=drift)


def message(value: bytes, offset: int, key: bytes = b"f1") -> ConsumerRecord:
    return ConsumerRecord(
        topic="alerts",
        partition=0,
        offset=offset,
        timestamp=1_700_000_000_500,
        timestamp_type=0,
        key=key,
        value=value,
        checksum=None,
        serialized_key_size=len(key),
        serialized_value_size=len(value),
        headers=(),
    )


class Letters:
    """Takes dead letters in the place of a producer."""

    def __init__(self, broken: bool) -> None:
        self.written: list[DeadLetter] = []
        self._broken = broken

    async def send_and_wait(self, topic: str, value: bytes, key: bytes) -> None:
        if self._broken:
            raise ConnectionError("no broker")
        self.written.append(decode(value, DeadLetter))


class Receiver:
    """Answers every request; keeps the idempotency keys."""

    def __init__(self, status: int = 200, error: Exception | None = None) -> None:
        self.keys: list[str] = []
        self.status = status
        self.error = error

    def webhook(self) -> Webhook:
        return Webhook("http://receiver.test/", transport=httpx.MockTransport(self._receive))

    def _receive(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if self.error is not None:
            raise self.error
        return httpx.Response(self.status)


async def run(receiver: Receiver, *values: bytes, broken: bool = False) -> tuple[list[DeadLetter], list[str], int]:
    """Dead letters, what was fatal, and the signs of life."""
    letters, fatal = Letters(broken), list[str]()
    with stamina.set_testing(True, attempts=2):
        async with receiver.webhook() as webhook:
            deliver = Deliver("broker.test:9092", webhook, fatal=fatal.append)
            deliver._producer = letters
            try:
                for offset, value in enumerate(values):
                    await deliver.deliver(message(value, offset))
            except ConnectionError:
                assert broken
    return letters.written, fatal, deliver.life.beats


async def test_alerts_are_delivered_in_order_each_with_its_id() -> None:
    receiver = Receiver()
    letters, fatal, beats = await run(receiver, encode(alert("a1")), encode(alert("a2")))
    assert (receiver.keys, letters, fatal) == (["a1", "a2"], [], [])
    assert beats == 4  # a try and an end each


async def test_what_the_receiver_refuses_is_put_aside_and_the_next_one_goes_on() -> None:
    receiver = Receiver(410)
    letters, fatal, _ = await run(receiver, encode(alert("a1")), encode(alert("a2")))
    assert receiver.keys == ["a1", "a2"]
    assert fatal == []
    assert [letter.id for letter in letters] == [dead_letter_id("alerts", 0, offset) for offset in (0, 1)]
    assert letters[0].reason == "the webhook at receiver.test answered 410"
    assert (letters[0].hop, letters[0].key, letters[0].at) == ("deliver", "f1", 1_700_000_000_500_000)


async def test_what_is_no_alert_is_put_aside_without_a_request() -> None:
    receiver = Receiver()
    letters, _, _ = await run(receiver, b"\xff\x00")
    assert receiver.keys == []
    assert letters[0].reason.startswith("not JSON")


async def test_where_nothing_can_be_put_aside_the_process_ends_before_the_event_is_acknowledged() -> None:
    letters, fatal, _ = await run(Receiver(400), encode(alert("a1")), broken=True)
    assert letters == []
    assert fatal == [
        "deliver: an alert could neither be delivered (the webhook at receiver.test answered 400) "
        "nor put aside (ConnectionError('no broker'))"
    ]


@pytest.mark.parametrize("status", [500, 429])
async def test_a_receiver_that_stays_away_costs_a_bounded_number_of_tries(status: int) -> None:
    receiver = Receiver(status)
    letters, _, beats = await run(receiver, encode(alert("a1")))
    assert receiver.keys == ["a1", "a1"]
    assert len(letters) == 1
    assert beats == 3  # each try is one


async def test_what_nobody_foresaw_is_put_aside_too_and_the_next_one_goes_on() -> None:
    receiver = Receiver(error=RuntimeError("broken at https://receiver.test/a-secret-path"))
    letters, fatal, _ = await run(receiver, encode(alert("a1")), encode(alert("a2")))
    assert receiver.keys == ["a1", "a2"]
    assert fatal == []
    assert [letter.reason for letter in letters] == ["sending it failed: RuntimeError"] * 2
