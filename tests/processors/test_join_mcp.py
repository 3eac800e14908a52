"""Requests and responses to calls."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluvial.processors import join_mcp
from fluvial.processors.join import Joined, Tables, expire, take
from fluvial.schemas.call_part import CallParts, RequestPart, ResponsePart
from fluvial.schemas.tool_call import ToolCall

NOW = 1_000_000_000
WAIT = 300_000_000


def tables() -> Tables:
    return Tables({}, {}, {}, {})


def request(number: str = "1", session: str = "s", event: str = "e", at: int = 100) -> RequestPart:
    call = ToolCall(source="mcp", run_id="s", tool="t", event_id=event, status="unknown", started_at=at)
    return RequestPart(session=session, request_id=number, call=call)


def response(number: str = "1", session: str = "s", at: int = 200, **outcome: Any) -> ResponsePart:
    return ResponsePart(session=session, request_id=number, at=at, **({"result": "done"} | outcome))


def come(state: Tables, *parts: RequestPart | ResponsePart, now: int = NOW) -> Joined:
    return take(state, CallParts(key="s", parts=parts, at=1), now)


def later(state: Tables, seconds: float = 300.0, flush: bool = False) -> Joined:
    return expire(state, NOW + round(seconds * 1e6), WAIT, WAIT, flush)


@pytest.mark.parametrize("parts", [(request(), response()), (response(), request())])
def test_a_request_and_its_response_are_a_call_in_either_order(parts: tuple[Any, ...]) -> None:
    state = tables()
    joined = [come(state, part) for part in parts]
    assert joined[0] == Joined()
    (call,) = joined[1].calls
    assert (call.event_id, call.status, call.result, call.ended_at) == ("e", "ok", "done", 200)
    assert later(state) == Joined()


def test_an_error_is_the_calls_outcome() -> None:
    state = tables()
    failed = response(result=None, status="error", error_type="-32602", error_message="Unknown tool")
    (call,) = come(state, request(), failed).calls
    assert (call.status, call.error_type, call.error_message) == ("error", "-32602", "Unknown tool")


def test_a_number_and_its_text_are_two_ids_and_so_are_two_sessions() -> None:
    state = tables()
    assert come(state, request("1"), response('"1"'), response("1", "other")).calls == []


def test_a_response_before_its_request_in_time_gives_no_end() -> None:
    state = tables()
    (call,) = come(state, request(at=300), response(at=200)).calls
    assert call.ended_at is None


def test_a_request_without_a_response_becomes_a_call_of_unknown_outcome() -> None:
    state = tables()
    come(state, request())
    assert later(state, 299) == Joined()
    assert [(call.event_id, call.status) for call in later(state).calls] == [("e", "unknown")]
    assert not state.requests


def test_a_response_without_a_request_is_given_back() -> None:
    state = tables()
    come(state, response())
    assert later(state, 299) == Joined()
    assert later(state).orphans == [response()]
    assert not state.responses


def test_an_id_that_is_used_again_ends_the_call_that_still_waits() -> None:
    state = tables()
    come(state, request(event="first"))
    assert [(call.event_id, call.status) for call in come(state, request(event="second")).calls] == [
        ("first", "unknown")
    ]
    assert [(call.event_id, call.status) for call in come(state, response()).calls] == [("second", "ok")]


def test_an_id_that_is_used_again_after_its_answer_is_a_new_call() -> None:
    state = tables()
    come(state, request(event="first"), response())
    assert [call.event_id for call in come(state, request(event="second"), response()).calls] == ["second"]


def test_requests_and_responses_that_come_twice_are_duplicates() -> None:
    state = tables()
    assert come(state, request(), request()).duplicates == 1
    assert come(state, response(), response()).duplicates == 1
    assert come(state, request()).duplicates == 1
    assert later(state) == Joined()
    assert not state.requests and not state.responses


def test_a_flush_leaves_a_call_that_is_under_way_to_its_result() -> None:
    state = tables()
    come(state, request("1"))
    assert later(state, 0, flush=True) == Joined()
    (call,) = come(state, response("1")).calls
    assert call.status == "ok"


def test_what_came_before_the_first_tick_waits_from_it_on() -> None:
    state = tables()
    come(state, request("1"), response("2"), now=0)
    assert later(state, 0) == Joined()
    assert later(state, 299) == Joined()
    joined = later(state, 300)
    assert (len(joined.calls), len(joined.orphans)) == (1, 1)


def test_what_is_too_much_goes_at_the_next_tick_the_first_to_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_mcp, "KEPT", 2)
    state = tables()
    for number in range(3):
        come(state, request(str(number), event=f"e{number}"), now=NOW + number)
    assert [call.event_id for call in later(state, 1).calls] == ["e0"]
    assert len(state.requests) == 2


@given(st.permutations([(number, half) for number in range(6) for half in ("request", "response")]), st.integers(0, 12))
def test_in_whatever_order_they_come_each_pair_is_one_call(order: list[tuple[int, str]], flushed: int) -> None:
    state = tables()
    calls = []
    for place, (number, half) in enumerate(order):
        part = request(str(number), event=str(number)) if half == "request" else response(str(number))
        calls += come(state, part).calls
        if place == flushed:
            later(state, 1)
    assert sorted(call.event_id for call in calls) == [str(number) for number in range(6)]
    assert all(call.result == "done" for call in calls)
