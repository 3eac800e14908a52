"""Whatever the message: a reading or a reason, and never longer than a second."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from support.wire import calls_of, mapped, message, protobuf

from fluvial.processors.validate import problem_of
from fluvial.schemas.call_part import CallParts
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.formats import Message, Reading, read
from fluvial.schemas.tool_call import ToolCall

WORDS = [
    "type",
    "source",
    "run_id",
    "tool",
    "jsonrpc",
    "id",
    "method",
    "params",
    "result",
    "resourceSpans",
    "specversion",
]
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "53995c3f42cd8ad8"


def read_in_time(given: Message) -> Reading | None:
    """The reading, None where the message is refused, and what is read can be written and read again."""
    began = time.process_time()
    try:
        reading = read(given, mapped)
    except Undecodable as refused:
        assert str(refused)
        reading = None
    assert time.process_time() - began < 1.0
    if reading is not None:
        assert any(reading)
        for call in reading.calls:
            assert decode(encode(call), ToolCall)
        for parts in reading.parts:
            assert decode(encode(parts), CallParts)
    return reading


def in_every_format(row: dict[str, Any]) -> Iterator[Message]:
    """The row as it would come in each format."""
    envelope = {"specversion": "1.0", "id": SPAN, "source": "/a", "type": "agent.tool_call", "subject": "r"}
    text = row.get("result_text")
    spans = span(
        [
            {"key": "gen_ai.tool.name", "value": {"stringValue": row["tool"]}},
            {"key": "gen_ai.tool.call.arguments", "value": {"stringValue": json.dumps(row["args"])}},
            {"key": "gen_ai.tool.call.result", "value": {"stringValue": str(text)}},
        ],
    )
    yield message(row)
    yield message(envelope | {"data": row}, {"content-type": "application/cloudevents+json"})
    yield message(row, {f"ce_{name}": value for name, value in envelope.items()})
    yield message(spans)
    if all(character < "\ud800" or character > "\udfff" for character in json.dumps(row, ensure_ascii=False)):
        yield message(protobuf(spans))
    yield message(
        {
            "request": {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": row["tool"], "arguments": row["args"]},
            },
            "response": {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}},
        }
    )


def span(attributes: Any, **fields: Any) -> Any:
    one = {"traceId": TRACE, "spanId": SPAN, "name": "execute_tool", "attributes": attributes}
    one["attributes"].append({"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}})
    return {"resourceSpans": [{"scopeSpans": [{"spans": [one | fields]}]}]}


def test_the_hard_records_are_read_in_every_format_but_those_without_a_tool(shared: Path) -> None:
    lines = (shared / "data" / "hard" / "hard_cases.jsonl").read_text().splitlines()
    assert len(lines) == 81
    refused = 0
    for line in lines:
        row = json.loads(line)
        readings = [read_in_time(given) for given in in_every_format(row)]
        assert {reading is not None for reading in readings} == {row["tool"] != ""}, line[:300]
        refused += not row["tool"]
    assert refused == 4


def test_a_name_with_nul_is_read_and_land_says_what_is_wrong_with_it() -> None:
    for given in in_every_format({"source": "s", "run_id": "r", "tool": "a\x00b", "args": {}, "result_text": "\x00"}):
        (call,) = calls_of(given)
        assert "U+0000" in (problem_of(call) or "")


@pytest.mark.parametrize(
    "data",
    [
        b'{"source":"s","run_id":"r","tool":"\\ud800"}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"\\udfff"}]}]}]}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}',
        b'{"specversion":"1.0","id":"\\ud800","source":"s","type":"t","data":{}}',
        b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":"\\ud800"}}]',
    ],
)
def test_half_a_surrogate_pair_is_refused(data: bytes) -> None:
    assert read_in_time(message(data)) is None


@pytest.mark.parametrize("levels", [199, 201, 900, 1_000, 100_000])
@pytest.mark.parametrize(
    "around",
    [
        b'{"source":"s","run_id":"r","tool":"t","args":%s}',
        b'{"specversion":"1.0","id":"1","source":"s","type":"tool_call","data":{"run_id":"r","tool":"t","args":%s}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":%s}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":%s}}',
        b'{"resourceSpans":%s}',
        b'{"x":%s}',
        b"%s",
    ],
)
def test_levels_beyond_200_are_refused(around: bytes, levels: int) -> None:
    reading = read_in_time(message(around % (b"[" * levels + b"]" * levels)))
    if levels > 200:
        assert reading is None


def deep_attribute(levels: int) -> bytes:
    """A span with an attribute of so many lists in each other."""
    value = b'{"arrayValue":{"values":[' * levels + b'{"intValue":"1"}' + b"]}}" * levels
    spans = json.dumps(span([{"key": "a", "value": "here"}], name="execute_tool t")).encode()
    return spans.replace(b'"here"', value)


def test_levels_of_otlp_beyond_200_are_refused() -> None:
    assert read_in_time(message(deep_attribute(190))) is not None
    for levels in (201, 320, 2_000):
        assert read_in_time(message(deep_attribute(levels))) is None


def test_times_of_the_first_and_the_last_year_and_a_skew_of_a_year_are_kept() -> None:
    for at in (-62_135_596_800_000_000, 253_402_300_799_999_999, 1_798_761_600_000_000):
        data = {"source": "s", "run_id": "r", "tool": "t", "started_at": at}
        assert read(message(data)).calls[0].started_at == at
    far = span([], name="execute_tool t", startTimeUnixNano=str(2**64 - 1), endTimeUnixNano="1000000")
    (call,) = calls_of(message(far))
    assert "before started_at" in (problem_of(call) or "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=15,
)
any_headers = st.dictionaries(
    st.sampled_from(["content-type", "ce_specversion", "ce_id", "source"]) | st.text(), st.binary()
)


@for_all(data=st.binary(), headers=any_headers, key=st.text())
def test_any_bytes_under_any_headers_are_read_or_refused(data: bytes, headers: dict[str, bytes], key: str) -> None:
    read_in_time(Message(data, headers, key, 1))


@for_all(data=json_values, headers=any_headers)
def test_any_json_under_any_headers_is_read_or_refused(data: Any, headers: dict[str, bytes]) -> None:
    read_in_time(Message(json.dumps(data).encode(), headers, "", 1))


@for_all(args=json_values, result=json_values)
def test_arguments_and_results_of_any_shape_come_through_mcp_and_otlp_as_they_are(args: Any, result: Any) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "structuredContent": {"is": result}}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": args}}
    given = message({"request": asked, "response": answer})
    assert [(call.args, call.result) for call in read(given).calls] == [(args, {"is": result})]
    text = {"stringValue": json.dumps(args)}
    (call,) = calls_of(message(span([{"key": "gen_ai.tool.call.arguments", "value": text}], name="execute_tool t")))
    assert call.args == args
