"""Requests and responses of MCP to calls, by session and request id, in whichever order they come."""

from collections.abc import Mapping

from msgspec.structs import replace

from fluvial.processors.joined import Joined, Request, Response, Tables
from fluvial.schemas.call_part import RequestPart, ResponsePart, answered
from fluvial.schemas.tool_call import ToolCall

KEPT = 100_000
"""Requests, and responses, that a partition keeps; beyond them the oldest is taken to have waited long enough."""


def take_request(tables: Tables, part: RequestPart, now: int, joined: Joined) -> None:
    """A request: its call goes on where the response is there; else it waits.

    An id that is used again while its first request waits ends the first, with the status `unknown`.
    """
    key = _key(part)
    before = tables.requests.get(key)
    if before is not None and before.part.call.event_id == part.call.event_id:
        joined.duplicates += 1
        return
    if before is not None and not before.answered:
        joined.calls.append(before.part.call)
    response = tables.responses.pop(key, None)
    if response is not None:
        joined.calls.append(answered(part.call, response.part))
    tables.requests[key] = Request(
        part=part if response is None else _mark(part), answered=response is not None, came=now
    )


def take_response(tables: Tables, part: ResponsePart, now: int, joined: Joined) -> None:
    """A response: its call goes on where the request is there; else it waits. A second one is a duplicate."""
    key = _key(part)
    request = tables.requests.get(key)
    if request is None and key not in tables.responses:
        tables.responses[key] = Response(part=part, came=now)
    elif request is None or request.answered:
        joined.duplicates += 1
    else:
        joined.calls.append(answered(request.part.call, part))
        tables.requests[key] = Request(part=_mark(request.part), answered=True, came=now)


def expire(tables: Tables, now: int, wait: int, joined: Joined) -> None:
    """Requests without a response become calls of status `unknown`, responses without a request are given back.

    A flush ends no such wait: the call is still under way, and its result would be lost.
    """
    for key, came in _waiting(tables.requests):
        request = tables.requests[key]
        over = now >= (came or now) + wait or len(tables.requests) > KEPT
        if over:
            if not request.answered:
                joined.calls.append(request.part.call)
            del tables.requests[key]
        elif not came:
            tables.requests[key] = replace(request, came=now)
    for key, came in _waiting(tables.responses):
        response = tables.responses[key]
        if now >= (came or now) + wait or len(tables.responses) > KEPT:
            joined.orphans.append(response.part)
            del tables.responses[key]
        elif not came:
            tables.responses[key] = replace(response, came=now)


def _waiting(table: Mapping[str, Request] | Mapping[str, Response]) -> list[tuple[str, int]]:
    """Keys with the tick time of their coming, the first to come first."""
    return sorted(((key, row.came) for key, row in table.items()), key=lambda one: (one[1], one[0]))


def _mark(request: RequestPart) -> RequestPart:
    """What is kept of a request that was answered: enough to know it again."""
    call = request.call
    return replace(
        request, call=ToolCall(source=call.source, run_id=call.run_id, tool=call.tool, event_id=call.event_id)
    )


def _key(part: RequestPart | ResponsePart) -> str:
    return f"{part.request_id}\x1f{part.session}"
