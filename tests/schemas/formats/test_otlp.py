"""Spans and log records of OpenTelemetry."""

import base64
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.wire import AT, message, protobuf

from fluvial.schemas.call_part import EvaluationPart, SpanPart
from fluvial.schemas.codec import Undecodable
from fluvial.schemas.formats import Reading, read
from fluvial.schemas.nesting import DEEPEST
from fluvial.schemas.tool_call import ToolCall

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "53995c3f42cd8ad8"


def value(given: Any) -> dict[str, Any]:
    """An attribute's value as OTLP/JSON has it."""
    match given:
        case bool():
            return {"boolValue": given}
        case int():
            return {"intValue": str(given)}
        case float():
            return {"doubleValue": given}
        case dict():
            return {"kvlistValue": {"values": attributes(given)}}
        case list():
            return {"arrayValue": {"values": [value(one) for one in given]}}
    return {"stringValue": given}


def attributes(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value(one)} for name, one in given.items()]


def span(given: dict[str, Any] | None = None, name: str = "execute_tool swap", **fields: Any) -> dict[str, Any]:
    return {"traceId": TRACE, "spanId": SPAN, "name": name, "attributes": attributes(given or {})} | fields


def batch(*spans: Any, **resource: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"spans": [*spans]}]}]}


def part(given: Any) -> SpanPart:
    """The part in a span, which must be the same in both encodings."""
    ((together,), (other,)) = (read(message(given)).parts, read(message(protobuf(given))).parts)
    assert together == other
    (one,) = together.parts
    assert isinstance(one, SpanPart)
    return one


def call(given: dict[str, Any] | None = None, **fields: Any) -> ToolCall:
    found = part(batch(span(given, **fields))).call
    assert found is not None
    return found


@pytest.mark.parametrize(
    "given",
    [
        span(name="execute_tool swap"),
        span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "swap"}, name="anything"),
        span({"mcp.method.name": "tools/call"}, name="tools/call swap"),
        span({"mcp.method.name": "tools/call", "gen_ai.tool.name": "swap"}, name="POST"),
    ],
)
def test_a_tool_call_is_known_by_its_operation_its_name_or_its_method(given: dict[str, Any]) -> None:
    found = part(batch(given)).call
    assert found is not None and (found.tool, found.event_id, found.run_id) == ("swap", SPAN, TRACE)


@pytest.mark.parametrize(
    "given",
    [
        span(name="invoke_agent a"),
        span(name="execute_toolbox"),
        span({"gen_ai.operation.name": "chat"}, name="chat gpt"),
        span({"mcp.method.name": "tools/list", "gen_ai.operation.name": "execute_tool"}, name="tools/list"),
    ],
)
def test_every_other_span_is_kept_as_an_ancestor(given: dict[str, Any]) -> None:
    assert part(batch(given)).call is None


def test_the_span_of_mcp_is_told_from_an_execute_tool_span_that_has_its_attributes_too() -> None:
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "swap"}
    assert part(batch(span(mcp, name="tools/call swap"))).is_mcp
    assert not part(batch(span(mcp, name="execute_tool swap"))).is_mcp


def test_the_service_is_the_source() -> None:
    assert part(batch(span(), **{"service.name": "shop"})).source == "shop"
    assert call().source == "opentelemetry"


def test_a_resource_whose_attributes_cannot_be_read_spoils_no_span() -> None:
    bad = {"key": "host.cpus", "value": {"intValue": "1e5"}}
    given = batch(span(), **{"service.name": "shop"})
    given["resourceSpans"][0]["resource"]["attributes"].append(bad)
    (one,) = read(message(given)).parts[0].parts
    assert isinstance(one, SpanPart) and one.source == "shop"


def test_agent_model_and_conversation_have_current_and_older_names() -> None:
    one = part(
        batch(
            span(
                {"gen_ai.agent.name": "a", "gen_ai.request.model": "m", "gen_ai.conversation.id": "c"}, "invoke_agent a"
            )
        )
    )
    assert (one.agent_id, one.model, one.run_id) == ("a", "m", "c")
    one = part(batch(span({"gen_ai.agent.id": "7", "gen_ai.response.model": "m-2026"}, name="invoke_agent")))
    assert (one.agent_id, one.model, one.run_id) == ("7", "m-2026", None)
    assert call({"gen_ai.system": "openai"}).labels == {"provider": "openai"}


@pytest.mark.parametrize(
    ("given", "args"),
    [
        ('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ('"text"', "text"),
        ("no json {", "no json {"),
        ("[" * 3_000, "[" * 3_000),
        ({"a": [1, 2.5, True, {}], "b": "x"}, {"a": [1, 2.5, True, {}], "b": "x"}),
        (7, 7),
    ],
)
def test_arguments_are_json_or_an_object_or_stay_as_they_are(given: Any, args: Any) -> None:
    assert call({"gen_ai.tool.call.arguments": given}).args == args


def test_a_result_that_is_text_stays_text() -> None:
    assert call({"gen_ai.tool.call.result": '{"a": 1}'}).result == '{"a": 1}'
    assert call({"gen_ai.tool.call.result": {"a": [1]}}).result == {"a": [1]}


def test_bytes_become_base64() -> None:
    blob = [{"key": "gen_ai.tool.call.result", "value": {"bytesValue": "AAEC"}}]
    assert call(attributes=blob).result == "AAEC"


def event(name: str, **given: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes({key.replace("__", "."): one for key, one in given.items()})}


def test_an_older_tool_message_is_the_result() -> None:
    told = call(events=[event("gen_ai.tool.message", content="noon", id="c")])
    assert (told.args, told.result) == (None, "noon")


def test_an_older_tool_message_before_a_choice_is_the_arguments() -> None:
    events = [event("gen_ai.tool.message", content='{"a": 1}'), event("gen_ai.choice", message="noon")]
    assert (call(events=events).args, call(events=events).result) == ({"a": 1}, "noon")


@pytest.mark.parametrize(
    ("given", "fields", "kind", "said"),
    [
        ({"error.type": "timeout"}, {}, "timeout", None),
        ({}, {"status": {"code": 2, "message": "no funds"}}, None, "no funds"),
        (
            {},
            {
                "status": {"code": 2},
                "events": [event("exception", exception__type="KeyError", exception__message="'a'")],
            },
            "KeyError",
            "'a'",
        ),
        ({"gen_ai.tool.call.result": "Error: 7"}, {"status": {"code": 2}}, None, "Error: 7"),
        ({"gen_ai.tool.call.result": {"code": 7}}, {"status": {"code": 2}}, None, '{"code":7}'),
    ],
)
def test_a_failed_call_has_type_and_message_and_no_result(
    given: dict[str, Any], fields: dict[str, Any], kind: str | None, said: str | None
) -> None:
    failed = call(given, **fields)
    assert (failed.status, failed.error_type, failed.error_message, failed.result) == ("error", kind, said, None)


def test_an_exception_that_was_mended_is_no_failure() -> None:
    assert call(status={"code": 1}, events=[event("exception", exception__type="KeyError")]).error_type is None


def test_times_are_cut_to_microseconds_and_the_latency_is_measured_in_full() -> None:
    timed = call(startTimeUnixNano="1767225600000001999", endTimeUnixNano="1767225600000501999")
    assert (timed.started_at, timed.ended_at, timed.metrics) == (AT + 1, AT + 501, {"latency_ms": 0.5})


def test_numbers_of_64_bits_come_as_text_or_as_numbers() -> None:
    as_number = span({}, startTimeUnixNano=1767225600000001999)
    as_number["attributes"] = [{"key": "gas_gwei", "value": {"intValue": 48}}]
    (one,) = read(message(batch(as_number))).parts[0].parts
    assert isinstance(one, SpanPart) and one.call
    assert (one.call.started_at, one.call.metrics) == (AT + 1, {"gas_gwei": 48.0})


def test_a_negative_duration_has_no_latency_and_a_span_without_times_that_of_its_message() -> None:
    assert call(startTimeUnixNano="2000", endTimeUnixNano="1000").metrics == {}
    assert (call().started_at, part(batch(span())).started_at) == (None, AT)


def test_numbers_that_are_named_like_metrics_become_metrics() -> None:
    given = {
        "slippage_bps": 3,
        "gas_gwei": 48.5,
        "volatility": 0.1,
        "fluvial.metric.hops": 2,
        "http.response.status_code": 200,
        "thread.id": 5,
        "retry_ms": True,
        "pnl_usd": "7",
        "fluvial.metric.": 1,
    }
    assert call(given).metrics == {"slippage_bps": 3.0, "gas_gwei": 48.5, "volatility": 0.1, "hops": 2.0}


def test_what_is_no_finite_number_is_no_metric() -> None:
    for number in ("NaN", "Infinity", "-Infinity"):
        given = [{"key": "gas_gwei", "value": {"doubleValue": number}}]
        assert call(attributes=given).metrics == {}


def test_chain_pair_and_labels_are_attributes_of_ours() -> None:
    given = {"fluvial.chain": "base", "fluvial.token_pair": "A/B", "fluvial.label.strategy": "momentum", "other": "no"}
    made = call(given)
    assert (made.chain, made.token_pair, made.labels) == ("base", "A/B", {"strategy": "momentum"})


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [
        (TRACE.upper(), SPAN.upper()),
        (base64.b64encode(bytes.fromhex(TRACE)).decode(), base64.b64encode(bytes.fromhex(SPAN)).decode()),
    ],
)
def test_ids_are_hexadecimal_of_either_case_or_base64(trace_id: str, span_id: str) -> None:
    (one,) = read(message(batch(span(traceId=trace_id, spanId=span_id, parentSpanId=span_id)))).parts[0].parts
    assert isinstance(one, SpanPart)
    assert (one.trace_id, one.span_id, one.parent_id) == (TRACE, SPAN, SPAN)


@pytest.mark.parametrize("parent", ["", "0" * 16, None])
def test_a_root_has_no_parent(parent: str | None) -> None:
    (one,) = read(message(batch(span(parentSpanId=parent)))).parts[0].parts
    assert isinstance(one, SpanPart) and one.parent_id is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (span(spanId="0" * 16), "a span id that is all zero"),
        (span(traceId="abc"), "a trace id that is not 16 bytes"),
        (span(traceId="z" * 32), "a trace id that is not 16 bytes"),
        (span({"gen_ai.operation.name": "execute_tool"}, name="execute_tool"), "tool is empty"),
        (span(name="execute_tool " + "x" * 300), "no valid tool call"),
        (span(startTimeUnixNano="soon"), "no whole number"),
        (span(startTimeUnixNano=str(2**64)), "beyond 64 bits"),
        (span(startTimeUnixNano=-1), "before 1970"),
        (span(attributes=7), "Expected `array"),
        (span(attributes=[{"key": "a", "value": {"intValue": "x"}}]), "'x' is no whole number"),
    ],
)
def test_one_bad_span_does_not_spoil_the_others(given: dict[str, Any], said: str) -> None:
    reading = read(message(batch(given, span(name="invoke_agent"))))
    assert len(reading.parts[0].parts) == 1
    (problem,) = reading.problems
    assert said in problem


def test_the_spans_of_several_traces_go_by_trace() -> None:
    other = TRACE[::-1]
    reading = read(message(batch(span(), span(traceId=other), span(spanId=SPAN[::-1]))))
    assert [(parts.key, len(parts.parts)) for parts in reading.parts] == [(TRACE, 2), (other, 1)]


def test_a_batch_of_nothing_is_ignored() -> None:
    assert read(message({"resourceSpans": []})) == Reading(ignored=1)


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"intValue": 1}
    for _ in range(levels):
        inner = {"arrayValue": {"values": [inner]}}
    return inner


def test_a_value_nested_too_deeply_is_said() -> None:
    deep = [{"key": "gen_ai.tool.call.arguments", "value": nested(DEEPEST + 1)}]
    with pytest.raises(Undecodable, match="nested more than 200 levels"):
        read(message(batch(span(attributes=deep))))
    text = span({"gen_ai.tool.call.arguments": "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)})
    with pytest.raises(Undecodable, match="args is nested more than 200 levels"):
        read(message(batch(text)))


# Log records


def record(given: dict[str, Any], **fields: Any) -> dict[str, Any]:
    base = {"eventName": "gen_ai.evaluation.result", "traceId": TRACE, "spanId": SPAN, "timeUnixNano": "7000"}
    return base | {"attributes": attributes(given)} | fields


def logs(*records: Any) -> Any:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [*records]}]}]}


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ({"gen_ai.evaluation.score.value": 0.25}, 0.25),
        ({"gen_ai.evaluation.score.value": 1}, 1.0),
        ({"gen_ai.evaluation.score.value": 0.25, "gen_ai.evaluation.score.label": "pass"}, 0.25),
        ({"gen_ai.evaluation.score.label": "pass"}, 1.0),
        ({"gen_ai.evaluation.score.label": "Fail"}, 0.0),
    ],
)
def test_an_evaluation_has_its_score_else_that_of_pass_or_fail(given: dict[str, Any], score: float) -> None:
    (one,) = read(message(logs(record(given | {"gen_ai.evaluation.name": "quality"})))).parts[0].parts
    assert one == EvaluationPart(trace_id=TRACE, span_id=SPAN, name="quality", score=score, at=7)


@pytest.mark.parametrize(
    "given",
    [
        record({"gen_ai.evaluation.score.label": "relevant"}),
        record({"gen_ai.evaluation.score.value": "7"}),
        record({"gen_ai.evaluation.score.value": 1.0}, traceId=None, spanId=None),
        record({"gen_ai.evaluation.score.value": 1.0}, spanId=""),
    ],
)
def test_an_evaluation_without_score_or_span_is_refused(given: Any) -> None:
    with pytest.raises(Undecodable, match=r"evaluation|span id"):
        read(message(logs(given)))


def test_other_events_are_ignored() -> None:
    assert read(message(logs(record({}, eventName="gen_ai.choice"), record({}, eventName=None)))) == Reading(ignored=2)


# What is no OTLP


def foreign_protobufs() -> list[bytes]:
    metrics = ExportMetricsServiceRequest()
    point = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="requests", description="d")
    point.sum.data_points.add(time_unix_nano=7, as_int=1)
    without_ids = ExportTraceServiceRequest()
    without_ids.resource_spans.add().scope_spans.add().spans.add(name="execute_tool swap")
    without_time = ExportLogsServiceRequest()
    without_time.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    empty = ExportTraceServiceRequest()
    empty.resource_spans.add()
    requests = [one.SerializeToString() for one in (metrics, without_ids, without_time, empty)]
    return [*requests, b"\n\x00", b"\x0a\x03abc", b"\x08\x01", b"\n", b"\x00", b"\x80"]


@pytest.mark.parametrize("data", foreign_protobufs())
def test_a_protobuf_that_is_no_spans_and_no_logs_is_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read(message(data))


def test_a_log_in_protobuf_is_not_taken_for_a_span_nor_a_span_for_a_log() -> None:
    assert isinstance(read(message(protobuf(batch(span())))).parts[0].parts[0], SpanPart)
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1, body={"string_value": "hello"})
    assert read(message(request.SerializeToString())) == Reading(ignored=1)


def test_the_official_example_of_otlp_json_is_read() -> None:
    """opentelemetry-proto, examples/trace.json: numbers as numbers, capitals in the ids."""
    example = {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes({"service.name": "my.service"})},
                "scopeSpans": [
                    {
                        "scope": {"name": "my.library", "version": "1.0.0", "attributes": attributes({"a": "b"})},
                        "spans": [
                            {
                                "traceId": "5B8EFFF798038103D269B633813FC60C",
                                "spanId": "EEE19B7EC3C1B174",
                                "parentSpanId": "EEE19B7EC3C1B173",
                                "name": "I'm a server span",
                                "startTimeUnixNano": 1544712660000000000,
                                "endTimeUnixNano": 1544712661000000000,
                                "kind": 2,
                                "attributes": attributes({"my.span.attr": "some value"}),
                            }
                        ],
                    }
                ],
            }
        ]
    }
    (one,) = read(message(json.dumps(example).encode())).parts[0].parts
    assert isinstance(one, SpanPart)
    assert (one.span_id, one.parent_id, one.source) == ("eee19b7ec3c1b174", "eee19b7ec3c1b173", "my.service")
