"""Which format a message has, and what is said where it has none."""

import json
from typing import Any

import pytest
from support.wire import mapped, message

from fluvial.schemas.codec import Undecodable, encode
from fluvial.schemas.formats import Reading, read
from fluvial.schemas.tool_call import ToolCall

CALL = ToolCall(source="shop", run_id="r", tool="swap")
ROW = {"source": "shop", "run_id": "r", "tool": "swap", "is_error": True, "result_text": "no funds"}


def refuse(row: Any) -> ToolCall:
    raise ValueError("not mine")


def test_our_own_record_is_read_with_and_without_its_tag() -> None:
    assert read(message(encode(CALL))).calls == (CALL,)
    assert read(message({"source": "shop", "run_id": "r", "tool": "swap"})).calls == (CALL,)


def test_without_a_mapping_fields_that_are_not_ours_are_left_out() -> None:
    assert read(message(ROW)).calls == (CALL,)


def test_the_mapping_reads_rows_with_other_fields_but_not_our_own_records() -> None:
    assert read(message(ROW), mapped).calls[0].error_message == "no funds"
    assert read(message(encode(CALL)), refuse).calls == (CALL,)
    assert read(message({"source": "shop", "run_id": "r", "tool": "swap"}), refuse).calls == (CALL,)
    assert read(message(ROW | {"type": "tool_call"}), refuse).calls == (CALL,)


@pytest.mark.parametrize(
    "value", [{"resourceSpans": []}, {"jsonrpc": "2.0", "method": "ping"}, [{"jsonrpc": "2.0", "method": "ping"}]]
)
def test_the_mapping_does_not_read_what_has_a_format(value: Any) -> None:
    assert read(message(value), refuse) == Reading(ignored=1)


def test_a_row_with_a_request_and_a_response_of_its_own_is_no_mcp() -> None:
    row = {"source": "shop", "run_id": "r", "tool": "get", "request": {"url": "/"}, "response": {"code": 200}}
    assert read(message(row)).calls[0].tool == "get"


def test_space_around_the_json_does_not_matter() -> None:
    assert read(message(b" \r\n\t" + encode(CALL) + b"\n")).calls == (CALL,)


def test_of_a_field_that_is_given_twice_the_last_counts() -> None:
    data = b'{"source":"a","run_id":"r","tool":"swap","source":"shop"}'
    assert read(message(data)).calls == (CALL,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "neither JSON nor OTLP protobuf with spans or log records; not JSON: the record is empty"),
        (b"hello", "neither JSON nor OTLP protobuf with spans or log records; not JSON: JSON is malformed"),
        (b'{"a":', "not JSON"),
        (b'{"source":"s","run_id":"r","tool":"\xff"}', "not JSON"),
        (b"\xff\xfe{\x00", "neither JSON nor OTLP"),
        ([1, 2], "JSON, but a list: an object is read"),
        ("text", "JSON, but text"),
        (7, "JSON, but a number"),
        ({"a": 1, "b": 2}, "neither a tool call .* nor a CloudEvent, OTLP or MCP: a JSON object with the fields a, b;"),
        ({}, "with the fields none"),
        ({"type": "tool_call", "source": "s"}, "not a valid ToolCall"),
        (ROW | {"tool": ""}, "tool is empty"),
        (ROW | {"tool": 7}, "Expected `str`"),
        ({"resourceSpans": 7}, "Expected `array`"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": 7}]}]}, "Expected `array"),
        ({"type": "episode", "source": "s", "run_id": "r", "tool": "t"}, "Invalid value 'episode'"),
    ],
)
def test_what_has_no_format_is_refused_with_what_was_tried(value: Any, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        read(message(value))


def test_a_row_that_does_not_map_is_refused_in_the_words_of_the_mapping() -> None:
    with pytest.raises(Undecodable, match="the mapping does not fit: not mine"):
        read(message(ROW), refuse)


def test_many_problems_are_said_in_a_few() -> None:
    spans = [{"traceId": "", "spanId": ""}] * 100
    with pytest.raises(Undecodable) as wrong:
        read(message({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    assert str(wrong.value).endswith("; and 95 more")
    assert len(str(wrong.value)) < 400


def test_headers_of_other_software_do_not_matter() -> None:
    headers = {"content-type": "application/json", "traceparent": "00-1-2-01", "schema": "\u00e9"}
    assert read(message(json.loads(encode(CALL)), headers)).calls == (CALL,)
