"""Join: the parts of tool calls to tool calls. State is given in and handed back; the only time is that of the ticks.

Spans and evaluations are joined by trace (join_spans.py), requests and responses by session and id (join_mcp.py).
"""

from fluvial.processors import join_mcp, join_spans
from fluvial.processors.joined import Joined, Node, Request, Response, Tables, Trace
from fluvial.schemas.call_part import CallParts, EvaluationPart, RequestPart, SpanPart

__all__ = ["Joined", "Node", "Request", "Response", "Tables", "Trace", "expire", "take"]


def take(tables: Tables, parts: CallParts, now: int) -> Joined:
    """The calls that become whole by these parts. `now` is the last tick's time in microseconds, 0 before the first."""
    joined = Joined()
    join_spans.take(tables, [part for part in parts.parts if isinstance(part, SpanPart | EvaluationPart)], now, joined)
    for part in parts.parts:
        if isinstance(part, RequestPart):
            join_mcp.take_request(tables, part, now, joined)
        elif not isinstance(part, SpanPart | EvaluationPart):
            join_mcp.take_response(tables, part, now, joined)
    return joined


def expire(tables: Tables, now: int, wait: int, mcp_wait: int, flush: bool = False) -> Joined:
    """A tick has come: what has waited for `wait` (spans, evaluations) or `mcp_wait` microseconds (halves of MCP).

    To flush, all spans and evaluations; a call of MCP whose result has not come is still under way.
    """
    joined = Joined()
    join_spans.expire(tables, now, wait, flush, joined)
    join_mcp.expire(tables, now, mcp_wait, joined)
    return joined
