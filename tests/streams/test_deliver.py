"""What the agent of notify does with an alert, without Faust."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import stamina

from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter, dead_letter_id
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.sinks.alerts import Webhook
from fluvial.streams.deliver import deliver

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


@dataclass
class Message:
    value: bytes
    offset: int
    topic: str = "alerts"
    partition: int = 0
    timestamp: float = 1_700_000_000.5
    key: bytes = b"f1"


@dataclass
class Event:
    message: Message
    headers: dict[str, bytes] = field(default_factory=dict)

    @property
    def value(self) -> bytes:
        return self.message.value


class Stream:
    def __init__(self, *events: Event) -> None:
        self._events = events

    async def events(self) -> AsyncIterator[Any]:
        for event in self._events:
            yield event


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


async def run(receiver: Receiver, *events: Event, broken: bool = False) -> tuple[list[DeadLetter], list[str]]:
    letters: list[DeadLetter] = []
    fatal: list[str] = []

    async def put_aside(letter: DeadLetter) -> None:
        if broken:
            raise ConnectionError("no broker")
        letters.append(letter)

    with stamina.set_testing(True, attempts=2):
        async with receiver.webhook() as webhook:
            try:
                await deliver(Stream(*events), webhook, put_aside, fatal.append)
            except ConnectionError:
                assert broken
    return letters, fatal


async def test_alerts_are_delivered_in_order_and_ticks_passed_over() -> None:
    receiver = Receiver()
    letters, fatal = await run(
        receiver,
        Event(Message(encode(alert("a1")), 0)),
        Event(Message(b'{"type":"tick","slot":1,"at":1}', 1), {"record": b"tick"}),
        Event(Message(encode(alert("a2")), 2)),
    )
    assert (receiver.keys, letters, fatal) == (["a1", "a2"], [], [])


async def test_what_the_receiver_refuses_is_put_aside_and_the_next_one_goes_on() -> None:
    receiver = Receiver(410)
    letters, fatal = await run(receiver, Event(Message(encode(alert("a1")), 4)), Event(Message(encode(alert("a2")), 5)))
    assert receiver.keys == ["a1", "a2"]
    assert fatal == []
    assert [letter.id for letter in letters] == [dead_letter_id("alerts", 0, offset) for offset in (4, 5)]
    assert letters[0].reason == "the webhook at receiver.test answered 410"
    assert (letters[0].hop, letters[0].key, letters[0].at) == ("deliver", "f1", 1_700_000_000_500_000)


async def test_what_is_no_alert_is_put_aside_without_a_request() -> None:
    receiver = Receiver()
    letters, _ = await run(receiver, Event(Message(b"\xff\x00", 0)))
    assert receiver.keys == []
    assert letters[0].reason.startswith("not JSON")


async def test_where_nothing_can_be_put_aside_the_process_ends_before_the_event_is_acknowledged() -> None:
    letters, fatal = await run(Receiver(400), Event(Message(encode(alert("a1")), 0)), broken=True)
    assert letters == []
    assert fatal == [
        "deliver: an alert could neither be delivered (the webhook at receiver.test answered 400) "
        "nor put aside (ConnectionError('no broker'))"
    ]


@pytest.mark.parametrize("status", [500, 429])
async def test_a_receiver_that_stays_away_costs_a_bounded_number_of_tries(status: int) -> None:
    receiver = Receiver(status)
    letters, _ = await run(receiver, Event(Message(encode(alert("a1")), 0)))
    assert receiver.keys == ["a1", "a1"]
    assert len(letters) == 1


async def test_what_nobody_foresaw_is_put_aside_too_and_the_next_one_goes_on() -> None:
    receiver = Receiver(error=RuntimeError("broken at https://receiver.test/a-secret-path"))
    letters, fatal = await run(receiver, Event(Message(encode(alert("a1")), 0)), Event(Message(encode(alert("a2")), 1)))
    assert receiver.keys == ["a1", "a2"]
    assert fatal == []
    assert [letter.reason for letter in letters] == ["sending it failed: RuntimeError"] * 2
