"""What a run has been through before a call."""

from typing import Any

from fluvial.processors.run_context import CALLS_KEPT, NEW_RUN, RESULT_KEPT, RunState, step
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.episode import RunContext
from fluvial.schemas.tool_call import ToolCall


def call(tool: str = "search", status: Any = "ok", **fields: Any) -> ToolCall:
    return ToolCall(source="bot", run_id="r", tool=tool, status=status, **fields)


def contexts(*calls: ToolCall) -> list[RunContext]:
    state, seen = NEW_RUN, []
    for number, one in enumerate(calls):
        context, state = step(state, one, number)
        seen.append(context)
    return seen


def test_the_first_call_has_no_past() -> None:
    assert contexts(call(status="error")) == [RunContext()]


def test_calls_and_errors_are_counted_and_the_previous_call_is_known() -> None:
    last = contexts(
        call(args="a"), call(args="b", status="error", error_type="not_found"), call("look", status="error"), call()
    )[-1]
    assert last == RunContext(
        calls_before=3, errors_before=2, errors_in_a_row=2, previous_tool="look", previous_status="error"
    )


def test_a_call_without_a_result_neither_adds_to_the_failures_in_a_row_nor_ends_them() -> None:
    last = contexts(call(status="error"), call(status="unknown"), call())[-1]
    assert (last.calls_before, last.errors_before, last.errors_in_a_row) == (2, 1, 1)
    assert last.previous_status == "unknown"


def test_an_identical_call_is_recognised_and_whether_it_failed() -> None:
    again = contexts(
        call(args={"q": "x"}, status="error"), call(args={"q": "y"}), call(args={"q": "x"}), call(args={"q": "x"})
    )
    assert [(one.same_call_before, one.same_call_failed) for one in again] == [
        (0, False),
        (0, False),
        (1, True),
        (2, True),
    ]


def test_the_order_of_argument_names_does_not_matter() -> None:
    assert contexts(call(args={"a": 1, "b": 2}), call(args={"b": 2, "a": 1}))[1].same_call_before == 1


def test_the_state_is_bounded_and_survives_its_own_bytes() -> None:
    state = NEW_RUN
    for number in range(3 * CALLS_KEPT):
        _, state = step(state, call(f"tool {number}", "error", args=number, result="é" * 9_000), number)
    assert len(state.seen) == CALLS_KEPT
    assert len(state.previous_result) == RESULT_KEPT
    assert state.calls == 3 * CALLS_KEPT
    assert len(encode(state)) < 30_000
    assert decode(encode(state), RunState) == state
    assert step(state, call(f"tool {number}", args=number), 0)[0].same_call_failed


def test_the_end_of_a_result_of_any_shape_is_kept_as_text() -> None:
    assert step(NEW_RUN, call(result={"a": ["é", 1]}), 0)[1].previous_result == '{"a":["é",1]}'
    assert step(NEW_RUN, call(result="x" * RESULT_KEPT + "end"), 0)[1].previous_result.endswith("xend")
    assert step(NEW_RUN, call(error_message="no route"), 0)[1].previous_result == "no route"
