"""Which format a message has: by its headers, then by its shape.

1. headers `content-type: application/cloudevents...` or `ce_specversion`, or an object with a CloudEvent's attributes:
   a CloudEvent (cloudevents.py). Its data are read by the rules that follow.
2. `resourceSpans`, `resourceLogs`: OTLP/JSON (otlp.py). `jsonrpc`, a batch of such, or `request` and `response`:
   MCP (mcp.py). Any other JSON object: a tool call of ours, or a row for the mapping (native.py).
3. Bytes that are no JSON: OTLP/protobuf, where they have its spans or log records (otlp_protobuf.py).

The identity of a call is the same in each: the id of its span, where the message has one; see the formats' own words.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fluvial.schemas.call_part import CallPart, CallParts, RequestPart, ResponsePart, SpanPart
from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.formats.cloudevents import Event, event_of
from fluvial.schemas.formats.mcp import is_mcp, read_mcp
from fluvial.schemas.formats.message import NO_ORIGIN, Map, Message, Origin, Reading, Unrecognized
from fluvial.schemas.formats.native import read_row
from fluvial.schemas.formats.otlp import read_otlp_json, read_otlp_protobuf
from fluvial.schemas.nesting import DEEPEST, is_deeper
from fluvial.schemas.tool_call import ToolCall

_IGNORED = Reading(ignored=1)
_MOST_SAID = 5


def read(message: Message, mapping: Map | None = None) -> Reading:
    """What the message holds. `mapping` reads JSON objects that have no shape of ours.

    Raises Undecodable, with a sentence that says why, where nothing of it can be used.
    """
    try:
        reading = _without_deep(_read(message, mapping))
    except RecursionError as error:
        raise Undecodable("nested too deeply (about 1,000 levels are read)") from error
    if reading.problems and not (reading.calls or reading.parts or reading.ignored):
        more = len(reading.problems) - _MOST_SAID
        raise Undecodable("; ".join(reading.problems[:_MOST_SAID]) + (f"; and {more:,} more" if more > 0 else ""))
    return reading if any(reading) else _IGNORED


def _read(message: Message, mapping: Map | None) -> Reading:
    fields = _fields(message.value or b"")
    event = event_of(message, fields)
    if event is not None:
        return _in_event(event, message, mapping)
    if message.value is None:
        return _IGNORED
    return _plain(message, fields, mapping, NO_ORIGIN)


def _fields(value: bytes) -> Mapping[str, msgspec.Raw] | None:
    """The fields of a JSON object; None where the value is anything else."""
    if value.lstrip()[:1] != b"{":
        return None
    try:
        return msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _in_event(event: Event, message: Message, mapping: Map | None) -> Reading:
    """What the data of an event hold. An event of another type, whose data are no tool call, is ignored."""
    if event.data is None:
        return _IGNORED
    inner = message._replace(value=event.data)
    try:
        return _plain(inner, _fields(event.data), mapping, event.origin(message.key))
    except Unrecognized:
        if event.says_tool_call:
            raise
        return _IGNORED


def _plain(message: Message, fields: Mapping[str, msgspec.Raw] | None, mapping: Map | None, origin: Origin) -> Reading:
    """A value without an envelope, or what stood in one."""
    value = message.value or b""
    if fields is None:
        return _no_object(message, value, origin)
    reading = read_otlp_json(fields, message)
    if reading is not None:
        return reading
    if "jsonrpc" in fields or fields.keys() >= {"request", "response"}:
        decoded = decode(value, Any)
        if is_mcp(decoded):
            return read_mcp(decoded, message, origin)
    return Reading((read_row(value, fields, origin, mapping),))


def _no_object(message: Message, value: bytes, origin: Origin) -> Reading:
    """A batch of JSON-RPC, or protobuf."""
    reading = read_otlp_protobuf(value, message)
    if reading is not None:
        return reading
    try:
        decoded = decode(value, Any)
    except Undecodable as error:
        raise Unrecognized(f"neither JSON nor OTLP protobuf with spans or log records; {error}") from error
    if is_mcp(decoded):
        return read_mcp(decoded, message, origin)
    raise Unrecognized(f"JSON, but {_kind(decoded)}: an object is read, or a list of JSON-RPC messages")


def _kind(value: Any) -> str:
    return (
        "a list" if isinstance(value, list) else "text" if isinstance(value, str) else "a number, true, false or null"
    )


def _without_deep(reading: Reading) -> Reading:
    """Without the calls that nothing behind could write as JSON any more; each becomes a problem."""
    problems = list(reading.problems)
    calls = tuple(call for call in reading.calls if _is_flat(call, problems))
    parts = []
    for together in reading.parts:
        flat = tuple(part for part in together.parts if _is_flat_part(part, problems))
        if len(flat) == len(together.parts):
            parts.append(together)
        elif flat:
            parts.append(CallParts(key=together.key, parts=flat, at=together.at))
    return Reading(calls, tuple(parts), reading.ignored, tuple(problems))


def _is_flat_part(part: CallPart, problems: list[str]) -> bool:
    if isinstance(part, SpanPart | RequestPart):
        return part.call is None or _is_flat(part.call, problems)
    return not isinstance(part, ResponsePart) or _is_flat(part, problems)


def _is_flat(call: ToolCall | ResponsePart, problems: list[str]) -> bool:
    for name in ("args", "result"):
        if is_deeper(getattr(call, name, None)):
            problems.append(f"{name} is nested more than {DEEPEST} levels deep: flatten it, or give it as text")
            return False
    return True
