"""The messages of MCP."""

from typing import Any

import pytest
from support.wire import AT, message

from fluvial.schemas.call_part import RequestPart, ResponsePart
from fluvial.schemas.codec import Undecodable
from fluvial.schemas.formats import read
from fluvial.schemas.formats.mcp import NO_SESSION
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall

SPAN = "53995c3f42cd8ad8"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def request(number: Any = 1, name: Any = "swap", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name} | params}


def result(number: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": {"content": []} | fields}


def texts(*given: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in given]


def part(value: Any, headers: dict[str, str] | None = None, key: str = "") -> RequestPart | ResponsePart:
    ((together,), (one,)) = (
        read(message(value, headers, key)).parts,
        read(message(value, headers, key)).parts[0].parts,
    )
    assert isinstance(one, RequestPart | ResponsePart) and together.key == one.session
    return one


def call(value: Any, headers: dict[str, str] | None = None, key: str = "") -> ToolCall:
    one = part(value, headers, key)
    assert isinstance(one, RequestPart)
    return one.call


def outcome(**fields: Any) -> ResponsePart:
    one = part(result(**fields))
    assert isinstance(one, ResponsePart)
    return one


def test_the_session_is_the_header_else_the_key_else_empty() -> None:
    assert part(request(), {"MCP-Session-ID": "s"}, "k").session == "s"
    assert part(request(), None, "k").session == "k"
    assert part(request()).session == ""


def test_a_session_longer_than_256_characters_is_its_hash() -> None:
    long, other = "s" * 200_000, "s" * 199_999 + "t"
    assert part(request(), None, "k" * 256).session == "k" * 256
    assert part(request(), None, long).session == part(result(), {"mcp-session-id": long}).session
    assert call(request(), None, long).run_id == part(request(), None, long).session == stable_id("session", long)
    assert part(request(), None, other).session != stable_id("session", long)


def test_the_run_is_the_session_else_the_trace_else_none() -> None:
    meta = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    assert call(request(_meta=meta), None, "k").run_id == "k"
    assert call(request(_meta=meta)).run_id == TRACE
    assert call(request()).run_id == NO_SESSION


def test_the_event_is_the_span_that_made_the_request_else_what_it_asks() -> None:
    assert call(request(_meta={"traceparent": f"00-{TRACE.upper()}-{SPAN.upper()}-01"})).event_id == SPAN
    asked = call(request(arguments={"a": 1}), None, "k")
    assert asked.event_id == stable_id("mcp", "k", "1", "swap", {"a": 1})
    others = [request("1", arguments={"a": 1}), request(arguments={"a": 2}), request(name="quote", arguments={"a": 1})]
    assert len({asked.event_id, *(call(other, None, "k").event_id for other in others)}) == 4


@pytest.mark.parametrize(
    "traceparent", [None, 7, "", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", "x" * 999]
)
def test_a_traceparent_that_is_none_does_not_count(traceparent: Any) -> None:
    assert call(request(_meta={"traceparent": traceparent})).event_id == stable_id("mcp", "", "1", "swap", None)


def test_a_number_and_its_text_are_two_ids() -> None:
    assert (part(request(1)).request_id, part(request("1")).request_id) == ("1", '"1"')


def test_a_request_has_the_source_of_its_header_and_the_time_of_its_record_and_no_outcome() -> None:
    asked = call(request(arguments=[1]), {"source": "shop"})
    assert (asked.source, asked.started_at, asked.status, asked.args) == ("shop", AT, "unknown", [1])
    assert call(request()).source == "mcp"


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"content": texts("a")}, "a"),
        ({"content": texts("a", "b")}, ["a", "b"]),
        ({"content": texts("a"), "structuredContent": {"n": 1}}, "a"),
        ({"structuredContent": {"n": 1}}, {"n": 1}),
        ({"content": []}, None),
        ({"content": [{"type": "audio", "data": "AA", "mimeType": "m"}]}, [{"type": "audio", "mimeType": "m"}]),
        ({"content": [7, None]}, [7, None]),
    ],
)
def test_the_result_is_the_text_else_what_there_is(fields: dict[str, Any], result: Any) -> None:
    assert (outcome(**fields).status, outcome(**fields).result) == ("ok", result)


def test_a_tool_error_has_its_text_as_message() -> None:
    failed = outcome(content=texts("no", "funds"), isError=True)
    assert (failed.status, failed.error_type, failed.error_message) == ("error", "tool_error", "no\nfunds")
    assert failed.result is None


def test_a_message_of_a_megabyte_is_cut() -> None:
    assert 65_000 < len(outcome(content=texts("no " * 1_000_000), isError=True).error_message or "") <= 65_536


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"code": -32602, "message": "Unknown tool"}, "-32602", "Unknown tool"),
        ({"code": -32603}, "-32603", None),
        ("gone wrong", None, "gone wrong"),
        ({"message": {"deep": 1}}, None, '{"deep":1}'),
    ],
)
def test_a_protocol_error_has_its_code_as_type(error: Any, kind: str | None, said: str | None) -> None:
    failed = part({"jsonrpc": "2.0", "id": 1, "error": error})
    assert isinstance(failed, ResponsePart)
    assert (failed.status, failed.error_type, failed.error_message) == ("error", kind, said)


def test_a_pair_is_a_whole_call_without_an_end() -> None:
    (whole,) = read(message({"request": request(), "response": result(content=texts("done"))})).calls
    assert (whole.status, whole.result, whole.ended_at) == ("ok", "done", None)


def test_a_pair_without_its_response_is_a_request() -> None:
    assert part({"request": request(), "response": None}) == part(request())


@pytest.mark.parametrize("response", [result(2), result("1"), 7, {"jsonrpc": "2.0", "id": 1}])
def test_a_pair_that_does_not_belong_together_is_refused(response: Any) -> None:
    with pytest.raises(Undecodable):
        read(message({"request": request(), "response": response}))


@pytest.mark.parametrize(
    "value",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
        {"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant", "content": [], "model": "m"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant", "content": {"type": "text", "text": "hi"}}},
        {
            "request": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            "response": {"jsonrpc": "2.0", "id": 1, "result": {}},
        },
    ],
)
def test_other_methods_and_their_results_are_ignored(value: Any) -> None:
    assert read(message(value)) == ((), (), 1, ())


def test_of_a_batch_what_can_be_used_is_used_and_the_rest_is_said() -> None:
    batch = [
        request(1),
        result(1, content=texts("a")),
        {"jsonrpc": "2.0", "method": "ping"},
        request(None),
        request(3, 7),
    ]
    reading = read(message(batch))
    assert len(reading.parts[0].parts) == 2
    assert reading.ignored == 1
    assert len(reading.problems) == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (request(None), "without an id"),
        (request(True), "without an id"),
        (request("x" * 300), "a JSON-RPC id of 302 characters"),
        (request(1, ""), "tool is empty"),
        (request(1, "t" * 257), "no valid call"),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, "no params.name"),
        ({"jsonrpc": "2.0", "error": {}}, "without an id"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(value: Any, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        read(message(value))


def test_in_a_cloudevent_the_session_is_its_key_and_a_batch_keeps_its_own_identities() -> None:
    envelope = {"specversion": "1.0", "id": SPAN, "source": "/a", "type": "mcp", "partitionkey": "s"}
    one = read(message(envelope | {"data": request()})).parts[0]
    assert isinstance(one.parts[0], RequestPart)
    assert (one.key, one.parts[0].call.event_id, one.parts[0].call.source) == ("s", SPAN, "/a")
    two = read(message(envelope | {"data": [request(1), request(2)]})).parts[0]
    assert len({each.call.event_id for each in two.parts if isinstance(each, RequestPart)}) == 2
