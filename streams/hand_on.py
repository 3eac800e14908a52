"""Calls and parts of calls that came in another format, on their way into our own topics: checked and redacted."""

from collections.abc import Iterator

from msgspec.structs import replace

from fluvial.processors.redact import Redactor, within
from fluvial.processors.validate import problem_of
from fluvial.schemas.call_part import CallPart, CallParts, EvaluationPart, RequestPart, ResponsePart, SpanPart
from fluvial.schemas.codec import encode
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.nesting import DEEPEST, is_deeper
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import CALL_PARTS, MAX_RECORD_BYTES, TOOL_CALLS
from fluvial.streams.turn import Turn

LARGEST = MAX_RECORD_BYTES - 65_536
"""Bytes of a record's key and value; the rest is for its headers."""
LONGEST_NAME = 256
"""Characters of a name, also in a sentence."""
LONGEST_TEXT = 65_536
"""Characters of what is said of an error."""


def hand_on(turn: Turn, call: ToolCall, redactor: Redactor) -> Iterator[str]:
    """Send the call to `tool-calls` as the client does, with its id and keyed by its run; or say why that cannot be."""
    if problem := problem_of(call):
        yield f"{cut(call.tool, LONGEST_NAME)}: {problem}"
        return
    clean, _ = redactor.call(call)
    clean = replace(clean, event_id=event_id_of(clean))
    if (size := len(encode(clean))) > LARGEST:
        yield f"{cut(call.tool, LONGEST_NAME)}: {_too_large(size)}"
    else:
        turn.emit(TOOL_CALLS, f"{clean.source}|{clean.run_id}", clean)


def hand_on_parts(turn: Turn, parts: CallParts, redactor: Redactor) -> Iterator[str]:
    """Send the parts to `call-parts`, in as many records as they need; or say of which that cannot be, and why."""
    good = []
    for part in parts.parts:
        if problem := _problem_of_part(part):
            yield problem
        else:
            good.append(_clean(part, redactor))
    if good:
        yield from _send(turn, replace(parts, key=redactor.text(parts.key)[0], parts=tuple(good)))


def _send(turn: Turn, parts: CallParts) -> Iterator[str]:
    size = len(parts.key.encode()) + len(encode(parts))
    if size <= LARGEST:
        turn.emit(CALL_PARTS, parts.key, parts)
    elif (n := len(parts.parts)) == 1:
        yield f"part of {cut(parts.key, LONGEST_NAME)}: {_too_large(size)}"
    else:
        yield from _send(turn, replace(parts, parts=parts.parts[: n // 2]))
        yield from _send(turn, replace(parts, parts=parts.parts[n // 2 :]))


def _too_large(size: int) -> str:
    return f"it has {size:,} bytes as JSON, and at most {LARGEST:,} go into a record"


def _problem_of_part(part: CallPart) -> str | None:
    match part:
        case SpanPart(call=ToolCall() as call) | RequestPart(call=call):
            problem = problem_of(call)
            return f"{cut(call.tool, LONGEST_NAME)}: {problem}" if problem else None
        case ResponsePart() if is_deeper(part.result):
            request_id = cut(part.request_id, LONGEST_NAME)
            return f"the result of request {request_id} is nested more than {DEEPEST} levels deep"
    return None


def _clean(part: CallPart, redactor: Redactor) -> CallPart:
    """The part without secrets; times stay, and ids that are none. Equal ids of two parts stay equal."""

    def text(value: str | None) -> str | None:
        return value and redactor.text(value)[0]

    def name(value: str | None, most: int = LONGEST_NAME) -> str | None:
        return value and within(redactor.text(value)[0], most)

    match part:
        case SpanPart():
            return replace(
                part,
                source=name(part.source),
                agent_id=name(part.agent_id),
                model=name(part.model),
                run_id=name(part.run_id),
                call=part.call and redactor.call(part.call)[0],
            )
        case EvaluationPart():
            return replace(part, name=name(part.name))
        case RequestPart():
            request_id = text(part.request_id)
            return replace(part, session=text(part.session), request_id=request_id, call=redactor.call(part.call)[0])
        case ResponsePart():
            return replace(
                part,
                session=text(part.session),
                request_id=text(part.request_id),
                result=redactor.value(part.result)[0],
                error_type=name(part.error_type),
                error_message=name(part.error_message, LONGEST_TEXT),
            )
