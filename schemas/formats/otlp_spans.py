"""Spans to parts of tool calls, by OpenTelemetry's conventions for generative AI and MCP, current and older ones.

A span is a tool call where `gen_ai.operation.name` is `execute_tool`, its name begins with `execute_tool `, or
`mcp.method.name` is `tools/call`. Its event_id is its span id. What becomes what:

- `gen_ai.tool.name`, else the name after `execute_tool ` or `tools/call `: tool. `gen_ai.tool.call.id`: call_id.
- `gen_ai.tool.call.arguments`: args; text that is JSON becomes its value. `gen_ai.tool.call.result`: result, text stays
  text. Older: the span events `gen_ai.tool.message` and `gen_ai.choice` hold the result, or the first the arguments and
  the second the result.
- status error, or `error.type`: failed. error_type from `error.type`, else the exception event's type; error_message
  from the status, else the exception event's message. A failed call has no result.
- `fluvial.chain`, `fluvial.token_pair`; numbers under `fluvial.metric.NAME`, or named like `slippage_bps`, `gas_gwei`,
  `pool_depth_usd`, `wait_ms`, `fill_pct`, `volatility`: metrics; text under `fluvial.label.NAME` and the provider
  (`gen_ai.provider.name`, `gen_ai.system`): labels. `latency_ms` is measured from start to end.

Of every span, also of those that are no tool call: `gen_ai.agent.name` (or id), `gen_ai.request.model` (or response
model), `gen_ai.conversation.id`, and `service.name` of its resource as source.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fluvial.schemas.call_part import SpanPart
from fluvial.schemas.codec import in_words
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Unusable
from fluvial.schemas.formats.otlp_values import Span, text_of
from fluvial.schemas.tool_call import ToolCall

NO_SERVICE = "opentelemetry"
MOST_LABELS = 16
_EXECUTE, _TOOLS_CALL = "execute_tool", "tools/call"
_NAME, _TEXT = 128, 65_536
_LABEL, _METRIC = "fluvial.label.", "fluvial.metric."
_LIKE_A_METRIC = re.compile(r"[a-z][a-z0-9_]{0,100}_(bps|gwei|usd|ms|pct)|volatility")


def part_of(span: Span, at: int) -> SpanPart:
    """What the span says. `at`: the message's time in microseconds, for a span without. Raises Unusable."""
    get = span.attributes.get
    return SpanPart(
        trace_id=span.context.trace_id,
        span_id=span.context.span_id,
        parent_id=span.parent_id,
        started_at=span.start // 1_000 or at,
        source=span.source,
        agent_id=text_of(get("gen_ai.agent.name")) or text_of(get("gen_ai.agent.id")),
        model=text_of(get("gen_ai.request.model")) or text_of(get("gen_ai.response.model")),
        run_id=text_of(get("gen_ai.conversation.id")),
        call=_call(span) if _is_tool_call(span) else None,
        is_mcp="mcp.method.name" in span.attributes and not span.name.startswith(_EXECUTE),
    )


def _is_tool_call(span: Span) -> bool:
    method = span.attributes.get("mcp.method.name")
    if method is not None:
        return bool(method == _TOOLS_CALL)
    return span.attributes.get("gen_ai.operation.name") == _EXECUTE or span.name.startswith(f"{_EXECUTE} ")


def _call(span: Span) -> ToolCall:
    attributes = span.attributes
    events = dict(span.events)
    failed = span.failed or text_of(attributes.get("error.type")) is not None
    exception = events.get("exception", {})
    kind = text_of(attributes.get("error.type")) or text_of(exception.get("exception.type"))
    args, result = _args_and_result(attributes, events)
    message = span.message or _as_text(exception.get("exception.message")) or _as_text(result)
    fields = {
        "source": span.source or NO_SERVICE,
        "run_id": span.context.trace_id,
        "tool": _tool(span),
        "event_id": span.context.span_id,
        "call_id": text_of(attributes.get("gen_ai.tool.call.id")),
        "status": "error" if failed else "ok",
        "error_type": kind if failed else None,
        "error_message": cut(message, _TEXT) or None if failed else None,
        "started_at": span.start // 1_000 or None,
        "ended_at": span.end // 1_000 or None,
        "chain": text_of(attributes.get("fluvial.chain"), _NAME),
        "token_pair": text_of(attributes.get("fluvial.token_pair"), _NAME),
        "labels": _labels(attributes),
        "metrics": _metrics(span),
    }
    try:
        call = msgspec.convert(fields, ToolCall)
    except msgspec.ValidationError as error:
        raise Unusable(f"{span.context.span_id} is no valid tool call: {in_words(str(error))}") from error
    return replace(call, args=args, result=None if failed else result)


def _tool(span: Span) -> Any:
    named = span.attributes.get("gen_ai.tool.name")
    kind, _, name = span.name.partition(" ")
    return named or (name if kind in (_EXECUTE, _TOOLS_CALL) else "")


def _args_and_result(attributes: Mapping[str, Any], events: Mapping[str, Mapping[str, Any]]) -> tuple[Any, Any]:
    args = attributes.get("gen_ai.tool.call.arguments")
    result = attributes.get("gen_ai.tool.call.result")
    told = events.get("gen_ai.tool.message", {}).get("content")
    chosen = events.get("gen_ai.choice", {}).get("message")
    if args is None and chosen is not None:
        args, told = told, None
    if result is None:
        result = chosen if told is None else told
    return _json(args), result


def _json(value: Any) -> Any:
    """Text that is JSON as its value; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _as_text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _metrics(span: Span) -> dict[str, float]:
    metrics = {}
    for key, value in span.attributes.items():
        name = key.removeprefix(_METRIC)
        is_metric = (key.startswith(_METRIC) and name) or _LIKE_A_METRIC.fullmatch(key)
        if is_metric and len(name) <= _NAME and _is_number(value):
            metrics[name] = float(value)
    if 0 < span.start <= span.end:
        metrics.setdefault("latency_ms", (span.end - span.start) / 1e6)
    return metrics


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _labels(attributes: Mapping[str, Any]) -> dict[str, str]:
    provider = text_of(attributes.get("gen_ai.provider.name")) or text_of(attributes.get("gen_ai.system"))
    labels = {"provider": provider} if provider else {}
    for key, value in attributes.items():
        name = key.removeprefix(_LABEL)
        if key.startswith(_LABEL) and 0 < len(name) <= _NAME and isinstance(value, str) and len(labels) < MOST_LABELS:
            labels[name] = cut(value, 1_024)
    return labels
