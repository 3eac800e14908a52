"""Sixty real calls are the same events, and the same episodes, in whichever format they come."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.wire import AT, calls_of, mapped, message, protobuf, rows

from fluvial.processors.reflect import reflect
from fluvial.schemas.codec import Undecodable
from fluvial.schemas.formats import Message, read
from fluvial.schemas.tool_call import ToolCall

OTLP_HAS_NO_NAME = "no attribute of the conventions says it"
MCP_DOES_NOT_KNOW = "the messages of MCP do not say it"
DIFFERENCES = {
    "otlp": {
        "task_id": OTLP_HAS_NO_NAME,
        "seq": OTLP_HAS_NO_NAME,
        "labels": OTLP_HAS_NO_NAME,
        "call_id": "the recorded rows have none of the span's",
        "ended_at": "a span has an end, the recorded rows have none",
        "metrics": "latency_ms is measured from start and end",
    },
    "mcp": {
        "agent_id": MCP_DOES_NOT_KNOW,
        "model": MCP_DOES_NOT_KNOW,
        "task_id": MCP_DOES_NOT_KNOW,
        "seq": MCP_DOES_NOT_KNOW,
        "labels": MCP_DOES_NOT_KNOW,
        "reward": MCP_DOES_NOT_KNOW,
        "call_id": "it is the id of the request",
        "error_type": "it is always tool_error",
    },
}
"""Where a call differs from the CloudEvent's, and why. docs/formats.md has the same."""
CUT = 200
"""Characters of a status message in the recorded spans."""


class Wire:
    """The messages of one call."""

    def __init__(self, structured: Any, binary: Any, spans: Any, pair: Any) -> None:
        data = structured["value"]["data"]
        for event in (structured["value"]["data"], binary["value"]):
            event["ts"] = None  # the spans were recorded with times of their own: those of the envelopes
        self.data = data
        self.structured = message(structured["value"], structured["headers"], structured["key"])
        self.binary = message(binary["value"], binary["headers"], binary["key"])
        self.spans, self.pair = spans, pair
        ((group,),) = [spans["resourceSpans"]]
        (self.span,) = group["scopeSpans"][0]["spans"]
        self.at = int(self.span["startTimeUnixNano"]) // 1_000

    def otlp(self, as_protobuf: bool) -> list[Message]:
        """The span, the agent's span above it, and the evaluation of the call."""
        agent = {
            "traceId": self.span["traceId"],
            "spanId": self.span["parentSpanId"],
            "name": f"invoke_agent {self.data['agent']}",
            "startTimeUnixNano": "1",
            "attributes": [{"key": "gen_ai.request.model", "value": {"stringValue": self.data["model"]}}],
        }
        above = {"resourceSpans": [{"scopeSpans": [{"spans": [agent]}]}]}
        encoded = [protobuf(one) if as_protobuf else one for one in (self.spans, above)]
        return [
            *(message(one) for one in encoded),
            *([self.evaluation()] if self.data["final_reward"] is not None else []),
        ]

    def evaluation(self) -> Message:
        score = {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": self.data["final_reward"]}}
        record = {
            "eventName": "gen_ai.evaluation.result",
            "traceId": self.span["traceId"].upper(),
            "spanId": self.span["spanId"].upper(),
            "attributes": [score],
        }
        return message({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})

    def mcp(self) -> list[list[Message]]:
        """The pair in one value, and request and response in either order."""
        headers, key = {"source": self.data["source"]}, self.data["run_id"]
        pair = message(self.pair, headers, key, self.at)
        request, response = (message(self.pair[half], headers, key, self.at) for half in ("request", "response"))
        return [[pair], [request, response], [response, request]]

    def every_way(self) -> list[list[Message]]:
        return [[self.structured], [self.binary], self.otlp(False), self.otlp(True), *self.mcp()]


@pytest.fixture(scope="module")
def wires(shared: Path) -> list[Wire]:
    names = ("cloudevents_structured", "cloudevents_binary", "otlp_json", "mcp_tools_call")
    return [Wire(*one) for one in zip(*(rows(shared, name) for name in names), strict=True)]


@pytest.fixture(scope="module")
def usable(wires: list[Wire]) -> list[Wire]:
    return [wire for wire in wires if wire.data["tool"]]


def test_there_are_sixty_and_those_without_a_tools_name_are_refused_in_every_format(
    wires: list[Wire], usable: list[Wire]
) -> None:
    assert (len(wires), len(usable)) == (60, 56)
    for wire in wires:
        if wire not in usable:
            for first, *_ in wire.every_way()[:5]:
                with pytest.raises(Undecodable, match="tool is empty"):
                    read(first, mapped)


def test_every_way_is_one_event_of_the_id_of_its_span(usable: list[Wire]) -> None:
    for wire in usable:
        assert [[call.event_id for call in calls_of(*way)] for way in wire.every_way()] == [[wire.span["spanId"]]] * 7


def test_both_encodings_of_a_cloudevent_are_the_same_call(usable: list[Wire]) -> None:
    for wire in usable:
        assert calls_of(wire.structured) == calls_of(wire.binary)


def test_both_encodings_of_otlp_are_the_same_call(usable: list[Wire]) -> None:
    for wire in usable:
        assert calls_of(*wire.otlp(False)) == calls_of(*wire.otlp(True))


def test_the_call_differs_between_formats_in_nothing_but_the_listed_fields(usable: list[Wire]) -> None:
    found: dict[str, set[str]] = {"otlp": set(), "mcp": set()}
    for wire in usable:
        (event,) = calls_of(wire.structured)
        event = replace(event, error_message=event.error_message and event.error_message[:CUT])
        for name, way in (("otlp", wire.otlp(False)), ("mcp", wire.mcp()[0])):
            (call,) = calls_of(*way)
            call = replace(call, error_message=call.error_message and call.error_message[:CUT])
            found[name] |= {
                field for field in ToolCall.__struct_fields__ if getattr(call, field) != getattr(event, field)
            }
    assert found == {name: set(fields) for name, fields in DIFFERENCES.items()}


def test_the_text_that_is_embedded_is_the_same_but_for_latency_and_the_type_of_the_error(usable: list[Wire]) -> None:
    for wire in usable:
        (event,), (span,), (pair,) = calls_of(wire.structured), calls_of(*wire.otlp(False)), calls_of(*wire.mcp()[0])
        assert reflect(replace(span, metrics={})) == reflect(event)
        assert reflect(replace(pair, error_type=event.error_type)) == reflect(event)


def test_a_message_without_a_time_of_its_own_has_that_of_its_record(usable: list[Wire]) -> None:
    (call,) = calls_of(message(usable[0].pair, key="run", at=AT + 5))
    assert call.started_at == AT + 5
