"""CloudEvents, as the `cloudevents` package writes them for Kafka and as others do."""

from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from support.wire import AT, mapped, message

from fluvial.schemas.codec import Undecodable
from fluvial.schemas.formats import Message, read
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall

SPAN = "53995c3f42cd8ad8"
TRACEPARENT = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{SPAN}-01"
ENVELOPE = {"specversion": "1.0", "id": "e-1", "source": "/agents/a", "type": "agent.tool_call.completed"}
CALL = {"source": "shop", "run_id": "r", "tool": "swap"}


def structured(data: Any = None, **attributes: Any) -> Message:
    fields = ENVELOPE | attributes | ({} if data is None else {"data": data})
    return message(fields, {"content-type": "application/cloudevents+json"})


def only(given: Message) -> ToolCall:
    (call,) = read(given).calls
    return call


def of_package(written: KafkaMessage) -> Message:
    key = written.key.decode() if isinstance(written.key, bytes) else written.key or ""
    return Message(written.value, written.headers, key, AT)


@pytest.mark.parametrize("write", [to_binary, to_structured])
def test_what_the_package_writes_is_read(write: Any) -> None:
    attributes = {
        **ENVELOPE,
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "datacontenttype": "application/json",
        "partitionkey": "run-1",
    }
    event = CloudEvent(attributes=attributes, data={"tool": "swap", "args": {"n": 1}})
    call = only(of_package(write(event, JSONFormat())))
    assert (call.source, call.run_id, call.tool, call.args) == ("/agents/a", "run-1", "swap", {"n": 1})
    assert (call.started_at, call.event_id) == (AT, stable_id("cloudevent", "/agents/a", "e-1"))


@pytest.mark.parametrize("write", [to_binary, to_structured])
def test_data_that_are_bytes_for_the_package_are_read(write: Any) -> None:
    attributes = {**ENVELOPE, "datacontenttype": "application/octet-stream"}
    event = CloudEvent(attributes=attributes, data=b'{"source":"shop","run_id":"r","tool":"swap"}')
    assert only(of_package(write(event, JSONFormat()))).source == "shop"


def test_what_the_data_say_counts_before_the_envelope() -> None:
    call = only(structured(CALL | {"event_id": "mine", "started_at": 7}, time="2026-01-01T00:00:00Z", subject="other"))
    assert (call.source, call.run_id, call.event_id, call.started_at) == ("shop", "r", "mine", 7)


@pytest.mark.parametrize(
    ("attributes", "run"), [({"subject": "s"}, "s"), ({"subject": "s", "partitionkey": "p"}, "p"), ({}, "the key")]
)
def test_the_run_is_the_partitionkey_else_the_subject_else_the_key_of_the_record(
    attributes: dict[str, str], run: str
) -> None:
    given = structured({"source": None, "run_id": None, "tool": "swap"}, **attributes)
    assert only(given._replace(key="the key")).run_id == run


@pytest.mark.parametrize(
    ("attributes", "event_id"),
    [
        ({"traceparent": TRACEPARENT}, SPAN),
        ({"id": SPAN}, SPAN),
        ({"id": SPAN.upper()}, stable_id("cloudevent", "/agents/a", SPAN.upper())),
        ({"traceparent": "00-0-0-01"}, stable_id("cloudevent", "/agents/a", "e-1")),
    ],
)
def test_the_event_is_the_span_where_one_is_named(attributes: dict[str, str], event_id: str) -> None:
    assert only(structured(CALL, **attributes)).event_id == event_id


def test_the_source_is_part_of_the_identity() -> None:
    assert only(structured(CALL)).event_id != only(structured(CALL, source="/agents/b")).event_id


@pytest.mark.parametrize(
    ("time", "micros"),
    [
        ("2026-01-01T01:00:00.000001999+01:00", AT + 1),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ("9999-12-31T23:59:59.999999-14:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
    ],
)
def test_a_time_of_the_years_1_to_9999_is_the_start_another_is_none(time: str, micros: int | None) -> None:
    assert only(structured(CALL, time=time)).started_at == micros


def test_header_names_and_content_types_have_no_case() -> None:
    headers = {f"CE_{name.upper()}": text for name, text in ENVELOPE.items()}
    assert only(message(CALL, headers)).source == "shop"
    assert only(message(ENVELOPE | {"data": CALL}, {"Content-Type": "Application/CloudEvents+JSON"})).source == "shop"


def test_an_event_is_known_by_its_shape_too() -> None:
    assert only(message(ENVELOPE | {"data": CALL})).source == "shop"


def test_data_that_are_json_once_more_as_text_are_read() -> None:
    assert only(structured('{"source":"shop","run_id":"r","tool":"swap"}')).source == "shop"


@pytest.mark.parametrize("data", [None, "just text", 7, [1, 2], {"order": 1}])
def test_an_event_of_another_type_is_ignored(data: Any) -> None:
    reading = read(structured(data, type="com.example.order.placed"))
    assert (reading.calls, reading.ignored) == ((), 1)


def test_an_event_of_another_type_whose_data_are_a_call_is_read() -> None:
    assert only(structured(CALL, type="com.example.agent.step")).source == "shop"


def test_a_tombstone_is_ignored_with_and_without_an_envelope() -> None:
    headers = {f"ce_{name}": text for name, text in ENVELOPE.items()}
    assert read(message(None, headers)).ignored == 1
    assert read(message(None)).ignored == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (structured({"order": 1}), "neither a tool call"),
        (structured({"tool": ""}, subject="r"), "tool is empty"),
        (structured(CALL, id=""), "a CloudEvent without id"),
        (structured(CALL, id=None, source={}), "a CloudEvent without id and source"),
        (structured(CALL, specversion="0.3"), "specversion 0.3: 1.0 is read"),
        (structured(data_base64="?"), "no base64"),
        (structured(data_base64="\u00e9\u00e9\u00e9\u00e9"), "no base64"),
        (structured(data_base64=7), "Expected `str`"),
        (message([1], {"content-type": "application/cloudevents+json"}), "no JSON object"),
        (message(CALL, {"ce_specversion": "1.0"}), "without id and source and type"),
    ],
)
def test_what_is_wrong_with_an_event_is_said(given: Message, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        read(given)


def test_the_mapping_reads_the_data_and_may_take_source_and_run_of_the_envelope() -> None:
    given = structured({"tool": "swap", "is_error": True, "agent": "a"}, subject="run-1")
    (call,) = read(given, mapped).calls
    assert (call.source, call.run_id, call.status, call.agent_id) == ("/agents/a", "run-1", "error", "a")
