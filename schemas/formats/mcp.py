"""MCP's `tools/call` as JSON-RPC 2.0 messages: a request, a response, both in one value, or a batch of them.

The session is the header `mcp-session-id`, else the Kafka key; of one longer than 256 characters, a hash. The source is
the header `source`, else "mcp"; the times are those of the Kafka records. A call's run is its session, else the trace
id of `params._meta.traceparent`, else NO_SESSION. Its event_id is the span id of that traceparent, else BLAKE2b-128 of
("mcp", session, request id, tool, arguments).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fluvial.schemas.call_part import CallPart, CallParts, RequestPart, ResponsePart, answered
from fluvial.schemas.codec import Undecodable, in_words
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Message, Origin, Reading, Unusable, text_header
from fluvial.schemas.formats.otlp_values import span_of_traceparent
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall

NO_SESSION = "no-session"
_MOST_ID = 256
_MOST_MESSAGE = 65_536
MOST_MESSAGES = 10_000
"""Messages of a batch."""


class _Session(NamedTuple):
    """Where and when the messages were seen."""

    name: str
    source: str
    at: int
    event_id: str
    """That of the envelope, where it holds one request only."""


def is_mcp(value: Any) -> bool:
    """Whether a decoded JSON value is a JSON-RPC message, a pair of them, or a batch."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, dict) and "jsonrpc" in one for one in value)
    return isinstance(value, dict) and ("jsonrpc" in value or _is_pair(value))


def read_mcp(value: Any, message: Message, origin: Origin) -> Reading:
    """The calls and parts of calls in a value that `is_mcp`. Raises Undecodable where a batch is too long."""
    session = _Session(
        name=_session_name(text_header(message, "mcp-session-id") or origin.run_id or message.key),
        source=cut(origin.source or text_header(message, "source"), _MOST_ID) or "mcp",
        at=message.timestamp if origin.at is None else origin.at,
        event_id="" if isinstance(value, list) else origin.event_id,
    )
    calls: list[ToolCall] = []
    parts: list[CallPart] = []
    problems: list[str] = []
    ignored = 0
    messages = value if isinstance(value, list) else [value]
    if len(messages) > MOST_MESSAGES:
        raise Undecodable(f"a batch of {len(messages):,} messages: at most {MOST_MESSAGES:,} are read")
    for one in messages:
        try:
            found = _pair(one, session) if _is_pair(one) else _part(one, session)
        except Unusable as problem:
            problems.append(str(problem))
            continue
        if isinstance(found, ToolCall):
            calls.append(found)
        elif found is not None:
            parts.append(found)
        else:
            ignored += 1
    together = (CallParts(key=session.name, parts=tuple(parts), at=session.at),) if parts else ()
    return Reading(tuple(calls), together, ignored, tuple(problems))


def _session_name(given: str) -> str:
    """At most 256 characters, and different for different sessions."""
    return given if len(given) <= _MOST_ID else stable_id("session", given)


def _is_pair(value: Mapping[str, Any]) -> bool:
    request = value.get("request")
    return isinstance(request, dict) and "jsonrpc" in request and "response" in value


def _pair(pair: Mapping[str, Any], session: _Session) -> ToolCall | CallPart | None:
    """The call of a request and its response; the request alone where the response is missing."""
    request, response = _part(pair["request"], session), pair["response"]
    if not isinstance(request, RequestPart) or response is None:
        return request
    if not isinstance(response, dict) or _request_id(response) != request.request_id:
        raise Unusable(f"the response beside the request of id {request.request_id} is not the one to it")
    return answered(request.call, _response(response, session))


def _part(message: Mapping[str, Any], session: _Session) -> CallPart | None:
    """A request of `tools/call`, or what may be the response to one; None for what else there is."""
    if "method" in message:
        return _request(message, session) if message["method"] == "tools/call" else None
    if "error" not in message and not _is_of_tool(message.get("result")):
        return None
    return _response(message, session)


def _is_of_tool(result: Any) -> bool:
    """Whether a result is one of a tool: other methods' results have no list `content`, or a role beside it."""
    if not isinstance(result, dict):
        return False
    return (isinstance(result.get("content"), list) and "role" not in result) or "structuredContent" in result


def _request(message: Mapping[str, Any], session: _Session) -> RequestPart:
    request_id = _request_id(message)
    params = message.get("params")
    if not isinstance(params, dict) or not isinstance(params.get("name"), str):
        raise Unusable(f"the tools/call of id {request_id} has no params.name")
    tool, args, meta = params["name"], params.get("arguments"), params.get("_meta")
    span = span_of_traceparent(meta.get("traceparent") if isinstance(meta, dict) else None)
    event_id = span.span_id if span else session.event_id or stable_id("mcp", session.name, request_id, tool, args)
    fields = {
        "source": session.source,
        "run_id": session.name or (span.trace_id if span else NO_SESSION),
        "tool": tool,
        "event_id": event_id,
        "call_id": request_id.strip('"')[:_MOST_ID] or None,
        "status": "unknown",
        "started_at": session.at,
    }
    try:
        call = msgspec.convert(fields, ToolCall)
    except msgspec.ValidationError as error:
        raise Unusable(f"the tools/call of id {request_id} is no valid call: {in_words(str(error))}") from error
    return RequestPart(session=session.name, request_id=request_id, call=msgspec.structs.replace(call, args=args))


def _request_id(message: Mapping[str, Any]) -> str:
    """The id's JSON: 1 and "1" are two."""
    given = message.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise Unusable("a JSON-RPC message of tools/call without an id that is a number or text")
    request_id = msgspec.json.encode(given).decode()
    if len(request_id) > _MOST_ID:
        raise Unusable(f"a JSON-RPC id of {len(request_id):,} characters: at most {_MOST_ID} are read")
    return request_id


def _response(message: Mapping[str, Any], session: _Session) -> ResponsePart:
    request_id = _request_id(message)
    error = message.get("error")
    if error is not None:
        error = error if isinstance(error, dict) else {"message": error}
        return ResponsePart(
            session=session.name,
            request_id=request_id,
            at=session.at,
            status="error",
            error_type=cut(str(error.get("code", "")), _MOST_ID) or None,
            error_message=_as_text(error.get("message")),
        )
    result = message.get("result")
    if not isinstance(result, dict):
        raise Unusable(f"the response of id {request_id} has neither a result that is an object nor an error")
    failed = result.get("isError") is True
    outcome = _outcome(result)
    return ResponsePart(
        session=session.name,
        request_id=request_id,
        at=session.at,
        status="error" if failed else "ok",
        result=None if failed else outcome,
        error_type="tool_error" if failed else None,
        error_message=_as_text(outcome) if failed else None,
    )


def _outcome(result: Mapping[str, Any]) -> Any:
    """The one text of the content, the list of several; without text the structured content, else the content."""
    content = result.get("content")
    items = content if isinstance(content, list) else []
    texts = [one["text"] for one in items if isinstance(one, dict) and one.get("type") == "text" and "text" in one]
    if texts:
        return texts[0] if len(texts) == 1 else texts
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    return [_without_bytes(one) for one in items] or None


def _without_bytes(item: Any) -> Any:
    """An image or a sound is kept as what it is, without its data."""
    return {name: value for name, value in item.items() if name != "data"} if isinstance(item, dict) else item


def _as_text(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = "\n".join(value)
    if value is None or isinstance(value, str):
        return value and cut(value, _MOST_MESSAGE)
    return cut(msgspec.json.encode(value).decode(), _MOST_MESSAGE)
