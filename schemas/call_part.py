"""CallPart: what one message says of a tool call whose other parts come in other messages.

Spans of a trace and the evaluations of its spans belong together by trace id, a request and its response by session and
request id. `CallParts` carries those that one message has for one key, so that all parts of a key come to one partition
(processors/join.py puts them together).
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.types import Micros, Status


class SpanPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="span"):
    """One span, ids in lower-case hexadecimal, with what it says itself; the rest may stand in its ancestors.

    `call` is there where the span is a tool call. Its source and run_id are those to fall back on.
    """

    trace_id: str
    span_id: str
    started_at: Micros
    parent_id: str | None = None
    source: str | None = None
    agent_id: str | None = None
    model: str | None = None
    run_id: str | None = None
    """The conversation's id."""
    call: ToolCall | None = None
    is_mcp: bool = False


class EvaluationPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="evaluation"):
    """How well the work of a span was found to be."""

    trace_id: str
    span_id: str
    name: str
    score: float
    at: Micros


class RequestPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mcp_request"):
    """A call that has no result yet. `request_id` is the id's JSON: 1 and "1" are two."""

    session: str
    request_id: str
    call: ToolCall


class ResponsePart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mcp_response"):
    """The result or the error of the request of that id."""

    session: str
    request_id: str
    at: Micros
    status: Status = "ok"
    result: Any = None
    error_type: str | None = None
    error_message: str | None = None


CallPart = SpanPart | EvaluationPart | RequestPart | ResponsePart


class CallParts(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_parts"):
    """The parts that one message has for one key. `at` is the message's time, microseconds UTC."""

    key: str
    """Trace id, or session."""
    parts: tuple[CallPart, ...]
    at: Micros


def answered(call: ToolCall, response: ResponsePart) -> ToolCall:
    """The call of a request with the outcome that the response to it says."""
    began = call.started_at
    return replace(
        call,
        status=response.status,
        result=response.result,
        error_type=response.error_type,
        error_message=response.error_message,
        ended_at=response.at if began is None or response.at > began else None,
    )
