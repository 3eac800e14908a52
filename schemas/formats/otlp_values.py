"""What spans and log records are made of: ids, times, attribute values; and the trace context of W3C.

Ids are given in hexadecimal of either case (OTLP/JSON) or base64 (the JSON of protobuf); 64-bit integers as numbers or
as text. A span id is 64 bits of chance: among a million calls two share one with a probability of 3e-8, among a hundred
million of 3e-4, among a thousand million of 3 % (n² / 2^65); the second of the two then counts as a duplicate.
"""

import base64
import re
from typing import Any, NamedTuple

from msgspec import Struct

from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Unusable
from fluvial.schemas.nesting import DEEPEST

TRACE_BYTES, SPAN_BYTES = 16, 8
_NO_SPAN = bytes(SPAN_BYTES)
SERVICE = "service.name"
"""The attribute of a resource that names who emits."""
_TRACEPARENT = re.compile(r"[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-([0-9a-fA-F]{16})-[0-9a-fA-F]{2}(-.*)?")
_NANOS = 2**64


class SpanContext(NamedTuple):
    """Ids in lower-case hexadecimal."""

    trace_id: str
    span_id: str


class Span(Struct, gc=False):
    """One span. Times in nanoseconds since 1970 UTC, 0 where there is none."""

    context: SpanContext
    parent_id: str | None
    name: str
    start: int
    end: int
    failed: bool
    message: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    source: str | None
    """The service of its resource."""


class LogRecord(NamedTuple):
    """One log record. `context` is None where it belongs to no span; time in nanoseconds, 0 where there is none."""

    context: SpanContext | None
    event: str
    time: int
    attributes: dict[str, Any]


def text_of(value: Any, most: int = 256) -> str | None:
    """Text, or a whole number as text, cut; None where it is empty or anything else."""
    if isinstance(value, str):
        return cut(value, most) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def span_of_traceparent(value: Any) -> SpanContext | None:
    """The span that a W3C `traceparent` names; None where the value is none."""
    match = _TRACEPARENT.fullmatch(value) if isinstance(value, str) and len(value) <= 256 else None
    if match is None:
        return None
    context = SpanContext(match[1].lower(), match[2].lower())
    return context if all(part.strip("0") for part in context) else None


def context_of(trace_id: bytes | str, span_id: bytes | str) -> SpanContext:
    """Ids as they came. Raises Unusable where they are not 16 and 8 bytes, or all zero."""
    return SpanContext(_hex(trace_id, TRACE_BYTES, "trace id"), _hex(span_id, SPAN_BYTES, "span id"))


def parent_of(span_id: bytes | str) -> str | None:
    """The parent's id; None for a root, whose parent id is empty or all zero. Raises Unusable."""
    if not span_id or span_id in (_NO_SPAN, _NO_SPAN.hex()):
        return None
    return _hex(span_id, SPAN_BYTES, "parent span id")


def _hex(given: bytes | str, length: int, what: str) -> str:
    raw = _bytes_of(given, length) if isinstance(given, str) else given
    if len(raw) != length:
        raise Unusable(f"a {what} that is not {length} bytes: {cut(repr(given), 64)}")
    if not any(raw):
        raise Unusable(f"a {what} that is all zero")
    return raw.hex()


def _bytes_of(text: str, length: int) -> bytes:
    try:
        return bytes.fromhex(text) if len(text) == 2 * length else base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def whole_number(given: int | str) -> int:
    """A 64-bit integer as a number or as text. Raises Unusable."""
    try:
        number = int(given)
    except ValueError as error:
        said = f"{cut(given, 40)!r} is" if isinstance(given, str) else "it is"
        raise Unusable(f"{said} no whole number") from error
    if not -(2**63) <= number < _NANOS:
        raise Unusable("a whole number beyond 64 bits")
    return number


def nanos(given: int | str | None) -> int:
    """A time in nanoseconds since 1970, 0 where there is none. Raises Unusable."""
    number = whole_number(given) if given else 0
    if number < 0:
        raise Unusable("a time before 1970")
    return number


def too_deep(levels: int) -> None:
    """Raises Unusable where a value is nested too deeply."""
    if levels > DEEPEST:
        raise Unusable(f"a value nested more than {DEEPEST} levels deep: give it as text")
