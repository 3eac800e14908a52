"""OTLP/protobuf, the Collector's default: one ExportTraceServiceRequest or ExportLogsServiceRequest a value.

Many bytes are well-formed protobuf. OTLP is only what has a span with ids of 16 and 8 bytes, or log records with a time
and no field that a log record does not have.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from fluvial.schemas.formats.message import Unusable
from fluvial.schemas.formats.otlp_values import (
    SERVICE,
    SPAN_BYTES,
    TRACE_BYTES,
    LogRecord,
    Span,
    context_of,
    parent_of,
    text_of,
    too_deep,
)


def spans_of(value: bytes) -> Iterator[Span | str] | None:
    """The spans of an ExportTraceServiceRequest, and for each that cannot be used why; None if it is none."""
    try:
        request = ExportTraceServiceRequest.FromString(value)
    except DecodeError:
        return None
    ids = (
        (len(span.trace_id), len(span.span_id))
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    )
    return _spans(request) if (TRACE_BYTES, SPAN_BYTES) in ids else None


def records_of(value: bytes) -> Iterator[LogRecord | str] | None:
    """The records of an ExportLogsServiceRequest, and for each that cannot be used why; None if it is none."""
    try:
        request = ExportLogsServiceRequest.FromString(value)
    except DecodeError:
        return None
    records = [record for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records]
    is_log = bool(records) and all(_time(record) and not _has_foreign_fields(record) for record in records)
    return _records(records) if is_log else None


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span | str]:
    for group in request.resource_spans:
        names = (pair.value.string_value for pair in group.resource.attributes if pair.key == SERVICE)
        source = text_of(next(names, None))
        for scope in group.scope_spans:
            for span in scope.spans:
                try:
                    yield _to_span(span, source)
                except Unusable as error:
                    yield f"a span: {error}"


def _to_span(span: trace_pb2.Span, source: str | None) -> Span:
    return Span(
        context=context_of(span.trace_id, span.span_id),
        parent_id=parent_of(span.parent_span_id),
        name=span.name,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=_attributes(span.attributes),
        events=[(event.name, _attributes(event.attributes)) for event in span.events],
        source=source,
    )


def _records(records: Iterable[logs_pb2.LogRecord]) -> Iterator[LogRecord | str]:
    for record in records:
        try:
            attributes = _attributes(record.attributes)
            yield LogRecord(
                context=context_of(record.trace_id, record.span_id) if record.trace_id else None,
                event=record.event_name or str(attributes.get("event.name") or ""),
                time=_time(record),
                attributes=attributes,
            )
        except Unusable as error:
            yield f"a log record: {error}"


def _time(record: logs_pb2.LogRecord) -> int:
    return record.time_unix_nano or record.observed_time_unix_nano


def _has_foreign_fields(message: Message) -> bool:
    return len(UnknownFieldSet(message)) > 0


def _attributes(pairs: Iterable[KeyValue], level: int = 0) -> dict[str, Any]:
    return {pair.key: _plain(pair.value, level + 1) for pair in pairs}


def _plain(value: AnyValue, level: int) -> Any:
    """The value as JSON has it; bytes become base64 text. Raises Unusable."""
    too_deep(level)
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one, level + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values, level)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None
