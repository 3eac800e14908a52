"""The state of one run: enough of its earlier calls to say what was known before the next one (bounded)."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from fluvial.schemas.episode import RunContext
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.types import Status

V = TypeVar("V")

CALLS_KEPT = 256
"""Distinct calls of a run that are remembered, the latest ones."""
TOOLS_KEPT = 32
RESULT_KEPT = 4_000
"""Characters kept of the end of the previous call's result."""


class RunState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a run. `touched` is the tick time of its last call, microseconds."""

    calls: int = 0
    errors: int = 0
    errors_in_a_row: int = 0
    seen: dict[str, tuple[int, bool]] = {}
    """Hash of tool and arguments -> (how often, whether it ever failed); the latest last."""
    tool_errors: dict[str, int] = {}
    previous_tool: str | None = None
    previous_status: Status | None = None
    previous_error_type: str | None = None
    previous_result: str = ""
    touched: int = 0


NEW_RUN = RunState()


def step(state: RunState, call: ToolCall, now: int) -> tuple[RunContext, RunState]:
    """What was known of the run before `call`, and the run after it. `now` is the last tick's time, microseconds."""
    same = stable_id(call.tool, call.args)[:16]
    times, failed_before = state.seen.get(same, (0, False))
    context = RunContext(
        calls_before=state.calls,
        errors_before=state.errors,
        errors_in_a_row=state.errors_in_a_row,
        same_call_before=times,
        same_call_failed=failed_before,
        previous_tool=state.previous_tool,
        previous_status=state.previous_status,
        previous_error_type=state.previous_error_type,
    )
    failed = call.status == "error"
    return context, RunState(
        calls=state.calls + 1,
        errors=state.errors + failed,
        errors_in_a_row=0 if call.status == "ok" else state.errors_in_a_row + failed,
        seen=_latest(state.seen, same, (times + 1, failed_before or failed), CALLS_KEPT),
        tool_errors=_latest(state.tool_errors, call.tool, state.tool_errors.get(call.tool, 0) + 1, TOOLS_KEPT)
        if failed
        else state.tool_errors,
        previous_tool=call.tool,
        previous_status=call.status,
        previous_error_type=call.error_type,
        previous_result=result_text(call)[-RESULT_KEPT:],
        touched=now,
    )


def result_text(call: ToolCall) -> str:
    """The result as text: itself, or its JSON; the error message where there is no result."""
    if isinstance(call.result, str):
        return call.result
    if call.result is None:
        return call.error_message or ""
    return msgspec.json.encode(call.result).decode()


def _latest(kept: dict[str, V], key: str, value: V, most: int) -> dict[str, V]:
    rest = {k: v for k, v in kept.items() if k != key}
    rest[key] = value
    while len(rest) > most:
        del rest[next(iter(rest))]
    return rest
