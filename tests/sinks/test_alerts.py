import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
import stamina

from fluvial.schemas.alert import Alert
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.sinks import alerts
from fluvial.sinks.alerts import Undeliverable, Webhook

DRIFT = DriftEvent(
    event_id="e1",
    fingerprint="f1",
    key=MetricKey(tool="swap", metric="slippage_bps"),
    direction="up",
    polarity="degrade",
    before=Level(mean=10.0, median=9.0, n=300),
    after=Level(mean=40.0, median=39.0, n=40),
    effect_sigma=3.0,
    rel_change=3.0,
    change_time=ChangeTime(est=0, lo=0, hi=0),
    detected_at=0,
    severity="warning",
)
ALERT = Alert(alert_id="a1", severity="warning", summary="Slippage rose.", at=0, drift=DRIFT)


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=4):
        yield


def webhook(answers: list[int | Exception], seen: list[httpx.Request]) -> Webhook:
    """A webhook whose receiver gives these answers in order, the last one for ever."""

    def receive(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)

    return Webhook("http://receiver.test/hook", transport=httpx.MockTransport(receive))


async def test_an_alert_is_posted_as_json_with_its_id_as_idempotency_key() -> None:
    seen: list[httpx.Request] = []
    async with webhook([204], seen) as hook:
        assert await hook.send(ALERT) == 204
    (request,) = seen
    assert request.method == "POST"
    assert request.headers["Idempotency-Key"] == "a1"
    assert request.headers["Content-Type"] == "application/json"
    body = json.loads(request.content)
    assert (body["alert_id"], body["summary"]) == ("a1", "Slippage rose.")
    assert body["drift"]["key"] == {"tool": "swap", "metric": "slippage_bps"}


@pytest.mark.parametrize("passing", [500, 503, 408, 429, httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
async def test_what_may_pass_is_tried_again_with_the_same_key(passing: int | Exception) -> None:
    seen: list[httpx.Request] = []
    async with webhook([passing, passing, 200], seen) as hook:
        assert await hook.send(ALERT) == 200
    assert [request.headers["Idempotency-Key"] for request in seen] == ["a1"] * 3


@pytest.mark.parametrize("refusal", [301, 400, 401, 404, 410, 422])
async def test_a_refusal_is_not_tried_again(refusal: int) -> None:
    seen: list[httpx.Request] = []
    async with webhook([refusal], seen) as hook:
        with pytest.raises(Undeliverable, match=f"receiver.test answered {refusal}"):
            await hook.send(ALERT)
    assert len(seen) == 1


async def test_the_tries_are_bounded() -> None:
    seen: list[httpx.Request] = []
    async with webhook([503], seen) as hook:
        with pytest.raises(Undeliverable, match="answered 503"):
            await hook.send(ALERT)
    assert len(seen) == 4


async def test_a_receiver_that_is_away_is_named_without_its_path() -> None:
    async with webhook([httpx.ConnectError("refused")], []) as hook:
        with pytest.raises(Undeliverable) as caught:
            await hook.send(ALERT)
    assert str(caught.value) == "the webhook at receiver.test could not be reached: refused"


@pytest.mark.parametrize("address", ["", "receiver.test/hook", "ftp://receiver.test", "http://", "http://[::1"])
def test_an_address_that_is_not_http_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="the webhook's address"):
        Webhook(address)


@pytest.mark.parametrize(("told", "waited"), [("7", 7.0), ("999999", 30.0), ("soon", None), ("-1", None)])
def test_the_receivers_own_delay_is_followed_within_bounds(told: str, waited: float | None) -> None:
    request = httpx.Request("POST", "http://receiver.test")
    error = httpx.HTTPStatusError("", request=request, response=httpx.Response(429, headers={"Retry-After": told}))
    decide: Callable[[Exception], object] = alerts._retried
    answer = decide(error)
    assert answer is True if waited is None else answer.total_seconds() == waited  # type: ignore[attr-defined]


async def test_a_receiver_that_never_ends_its_answer_is_given_up_in_time() -> None:
    async def drip(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    tries: list[int] = []
    async with Webhook("http://receiver.test", timeout=0.05, transport=httpx.MockTransport(drip)) as hook:
        with pytest.raises(Undeliverable, match=r"could not be reached: no answer within 0\.05 s"):
            await hook.send(ALERT, on_try=lambda: tries.append(1))
    assert len(tries) == 4
