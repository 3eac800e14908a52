"""What a well-formed tool call must also be, so that stores, keys and people can deal with it."""

import math
import re

from fluvial.schemas.nesting import DEEPEST, is_deeper
from fluvial.schemas.tool_call import ToolCall

MOST_LABELS = 64
MOST_METRICS = 256
MOST_LABEL_CHARACTERS = 65_536
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of the text around them."""


def problem_of(call: ToolCall) -> str | None:
    """Why the call cannot be landed, as a sentence for whoever published it; None if it can."""
    return _names(call) or _figures(call) or _sizes(call)


def _names(call: ToolCall) -> str | None:
    for name in ("source", "run_id", "tool"):
        if not getattr(call, name).strip():
            return f"{name} is blank: give a name"
    for name in ("source", "run_id", "tool", "chain", "token_pair"):
        if unreadable := _UNREADABLE.search(getattr(call, name) or ""):
            return f"{name} has the control character U+{ord(unreadable.group()):04X}: names must be readable"
    return None


def _figures(call: ToolCall) -> str | None:
    if call.status == "ok" and (call.error_type or call.error_message):
        return "status is ok (or not given), but an error is named: give status as error, or leave the error out"
    if call.started_at is not None and call.ended_at is not None and call.ended_at < call.started_at:
        early = (call.started_at - call.ended_at) / 1e6
        return f"ended_at is {early:,.6g} s before started_at: check both (microseconds UTC)"
    for name, value in (*call.metrics.items(), ("reward", call.reward)):
        if value is not None and not math.isfinite(value):
            return f"{name[:128]} is {value}: leave out what was not measured"
    if call.seq is not None and not -(2**63) <= call.seq < 2**63:
        return "seq is beyond 64 bits: number the calls of a run from 0"
    return None


def _sizes(call: ToolCall) -> str | None:
    if len(call.labels) > MOST_LABELS or sum(map(len, call.labels.values())) > MOST_LABEL_CHARACTERS:
        return f"too many labels: at most {MOST_LABELS}, of {MOST_LABEL_CHARACTERS:,} characters together, are kept"
    if len(call.metrics) > MOST_METRICS:
        return f"{len(call.metrics):,} metrics: at most {MOST_METRICS} are kept"
    for name in ("args", "result"):
        if is_deeper(getattr(call, name)):
            return f"{name} is nested more than {DEEPEST} levels deep: flatten it, or give it as text"
    return None
