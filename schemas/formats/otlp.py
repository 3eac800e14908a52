"""OTLP of either encoding to the parts of tool calls, one CallParts a trace."""

from collections.abc import Iterable, Mapping

from msgspec import Raw

from fluvial.schemas.call_part import CallPart, CallParts, EvaluationPart, SpanPart
from fluvial.schemas.formats.message import Message, Reading, Unusable
from fluvial.schemas.formats.otlp_json import records_in, spans_in
from fluvial.schemas.formats.otlp_logs import evaluation_of
from fluvial.schemas.formats.otlp_protobuf import records_of, spans_of
from fluvial.schemas.formats.otlp_spans import part_of
from fluvial.schemas.formats.otlp_values import LogRecord, Span


def read_otlp_json(fields: Mapping[str, Raw], message: Message) -> Reading | None:
    """What a JSON object with these fields holds; None if it is no OTLP. Raises Undecodable."""
    if "resourceSpans" in fields:
        return _reading(spans_in(fields["resourceSpans"]), message)
    if "resourceLogs" in fields:
        return _reading(records_in(fields["resourceLogs"]), message)
    return None


def read_otlp_protobuf(value: bytes, message: Message) -> Reading | None:
    """What a protobuf holds; None if it is no OTLP."""
    items = spans_of(value) or records_of(value)
    return None if items is None else _reading(items, message)


MOST_PROBLEMS = 1_000
"""After so many things of a message that cannot be used, the rest of it is not read."""


def _reading(items: Iterable[Span | LogRecord | str], message: Message) -> Reading:
    traces: dict[str, list[CallPart]] = {}
    problems: list[str] = []
    ignored = 0
    for item in items:
        if len(problems) == MOST_PROBLEMS:
            problems.append("the rest was not read: too much of the message cannot be used")
            break
        try:
            part = _part(item, message.timestamp)
        except Unusable as problem:
            problems.append(str(problem))
            continue
        if part is None:
            ignored += 1
        else:
            traces.setdefault(part.trace_id, []).append(part)
    parts = tuple(
        CallParts(key=trace_id, parts=tuple(its_parts), at=message.timestamp) for trace_id, its_parts in traces.items()
    )
    return Reading((), parts, ignored, tuple(problems))


def _part(item: Span | LogRecord | str, at: int) -> SpanPart | EvaluationPart | None:
    if isinstance(item, str):
        raise Unusable(item)
    return part_of(item, at) if isinstance(item, Span) else evaluation_of(item, at)
