"""OTLP/JSON, as the Collector's kafka exporter writes it with the encoding `otlp_json`: one export request a value."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from fluvial.schemas.codec import decode
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Unusable
from fluvial.schemas.formats.otlp_values import (
    SERVICE,
    LogRecord,
    Span,
    context_of,
    nanos,
    parent_of,
    text_of,
    too_deep,
    whole_number,
)


class _Any(Struct):
    stringValue: str | None = None
    boolValue: bool | None = None
    intValue: int | str | None = None
    doubleValue: float | str | None = None
    arrayValue: "_Array | None" = None
    kvlistValue: "_Object | None" = None
    bytesValue: str | None = None


class _Pair(Struct):
    key: str = ""
    value: _Any | None = None


class _Array(Struct):
    values: list[_Any] | None = None


class _Object(Struct):
    values: list[_Pair] | None = None


class _Resource(Struct):
    attributes: list[_Pair] | None = None


class _Status(Struct):
    code: int | str | None = None
    message: str | None = None


class _Event(Struct):
    name: str | None = None
    attributes: list[_Pair] | None = None


class _Span(Struct):
    traceId: str = ""
    spanId: str = ""
    parentSpanId: str | None = None
    name: str | None = None
    startTimeUnixNano: int | str | None = None
    endTimeUnixNano: int | str | None = None
    attributes: list[_Pair] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _Record(Struct):
    timeUnixNano: int | str | None = None
    observedTimeUnixNano: int | str | None = None
    eventName: str | None = None
    attributes: list[_Pair] | None = None
    traceId: str | None = None
    spanId: str | None = None


class _Scope(Struct):
    spans: list[Raw] | None = None
    logRecords: list[Raw] | None = None


class _ResourceItems(Struct):
    resource: _Resource | None = None
    scopeSpans: list[_Scope] | None = None
    scopeLogs: list[_Scope] | None = None


_span = msgspec.json.Decoder(_Span)
_record = msgspec.json.Decoder(_Record)
_FAILED = (2, "2", "STATUS_CODE_ERROR")


def spans_in(resource_spans: Raw) -> Iterator[Span | str]:
    """The spans under `resourceSpans`, and for each that cannot be used why. Raises Undecodable."""
    for group in decode(bytes(resource_spans), list[_ResourceItems]):
        source = _service(group.resource)
        for scope in group.scopeSpans or ():
            for raw in scope.spans or ():
                try:
                    yield _to_span(_span.decode(raw), source)
                except (Unusable, msgspec.DecodeError, UnicodeDecodeError) as error:
                    yield f"a span: {error}"


def records_in(resource_logs: Raw) -> Iterator[LogRecord | str]:
    """The log records under `resourceLogs`, and for each that cannot be used why. Raises Undecodable."""
    for group in decode(bytes(resource_logs), list[_ResourceItems]):
        for scope in group.scopeLogs or ():
            for raw in scope.logRecords or ():
                try:
                    yield _to_record(_record.decode(raw))
                except (Unusable, msgspec.DecodeError, UnicodeDecodeError) as error:
                    yield f"a log record: {error}"


def _service(resource: _Resource | None) -> str | None:
    pairs = (resource.attributes if resource else None) or ()
    names = (pair.value.stringValue for pair in pairs if pair.key == SERVICE and pair.value is not None)
    return text_of(next(names, None))


def _to_span(span: _Span, source: str | None) -> Span:
    status = span.status
    return Span(
        context=context_of(span.traceId, span.spanId),
        parent_id=parent_of(span.parentSpanId or ""),
        name=span.name or "",
        start=nanos(span.startTimeUnixNano),
        end=nanos(span.endTimeUnixNano),
        failed=status is not None and status.code in _FAILED,
        message=(status and status.message) or "",
        attributes=_attributes(span.attributes),
        events=[(event.name or "", _attributes(event.attributes)) for event in span.events or ()],
        source=source,
    )


def _to_record(record: _Record) -> LogRecord:
    attributes = _attributes(record.attributes)
    return LogRecord(
        context=context_of(record.traceId, record.spanId or "") if record.traceId else None,
        event=record.eventName or str(attributes.get("event.name") or ""),
        time=nanos(record.timeUnixNano or record.observedTimeUnixNano),
        attributes=attributes,
    )


def _attributes(pairs: Iterable[_Pair] | None, level: int = 0) -> dict[str, Any]:
    return {pair.key: _plain(pair.value, level + 1) for pair in pairs if pair.value is not None} if pairs else {}


def _plain(value: _Any, level: int) -> Any:
    """The value as JSON has it; bytes become base64 text. Raises Unusable."""
    too_deep(level)
    if value.stringValue is not None:
        return value.stringValue
    if value.boolValue is not None:
        return value.boolValue
    if value.intValue is not None:
        return whole_number(value.intValue)
    if value.doubleValue is not None:
        return _double(value.doubleValue)
    if value.arrayValue is not None:
        return [_plain(one, level + 1) for one in value.arrayValue.values or ()]
    if value.kvlistValue is not None:
        return _attributes(value.kvlistValue.values, level)
    return value.bytesValue


def _double(value: float | str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise Unusable(f"{cut(value, 40)!r} is no number" if isinstance(value, str) else "no number") from error
