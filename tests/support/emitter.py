"""An agent that emits by the OpenTelemetry Python SDK: nested spans and an evaluation, to Kafka or to a Collector."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka import KafkaProducer
from opentelemetry.exporter.otlp.json.common import _log_encoder as json_logs
from opentelemetry.exporter.otlp.json.common import trace_encoder as json_spans
from opentelemetry.exporter.otlp.proto.common import _log_encoder as proto_logs
from opentelemetry.exporter.otlp.proto.common import trace_encoder as proto_spans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from fluvial.schemas.topics import OTLP_LOGS, OTLP_SPANS

SERVICE = "trading-desk"


class KafkaSpans(SpanExporter):
    """Each export is one message, as the Collector's exporter writes it: no key, so that partitions change."""

    def __init__(self, producer: Any, topic: str, json: bool) -> None:
        self._producer, self._topic, self._json = producer, topic, json

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        value = (
            json_spans.encode_spans(spans).to_json().encode()
            if self._json
            else proto_spans.encode_spans(spans).SerializeToString()
        )
        self._producer.send(self._topic, value)
        return SpanExportResult.SUCCESS


class KafkaLogs(LogRecordExporter):
    """The same for log records."""

    def __init__(self, producer: Any, topic: str, json: bool) -> None:
        self._producer, self._topic, self._json = producer, topic, json

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        value = (
            json_logs.encode_logs(batch).to_json().encode()
            if self._json
            else proto_logs.encode_logs(batch).SerializeToString()
        )
        self._producer.send(self._topic, value)
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._producer.close()


class Emitted(NamedTuple):
    """Span ids of the two calls of a run, as event ids."""

    swap: str
    quote: str


class Emitter:
    """One span or record an export, as soon as it has ended: ancestors come after what is below them."""

    def __init__(self, spans: SpanExporter, logs: LogRecordExporter) -> None:
        resource = Resource.create({"service.name": SERVICE})
        self._tracing = TracerProvider(resource=resource)
        self._tracing.add_span_processor(SimpleSpanProcessor(spans))
        self._logging = LoggerProvider(resource=resource)
        self._logging.add_log_record_processor(SimpleLogRecordProcessor(logs))

    @classmethod
    def to_kafka(cls, broker: str, prefix: str, *, json: bool) -> "Emitter":
        producer = KafkaProducer(bootstrap_servers=broker, linger_ms=0, max_in_flight_requests_per_connection=1)
        return cls(
            KafkaSpans(producer, OTLP_SPANS.named(prefix), json), KafkaLogs(producer, OTLP_LOGS.named(prefix), json)
        )

    @classmethod
    def to_collector(cls, port: int) -> "Emitter":
        return cls(
            OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces"), OTLPLogExporter(f"http://127.0.0.1:{port}/v1/logs")
        )

    def run(self, conversation: str) -> Emitted:
        """An agent makes two calls: a swap by way of an MCP server, which is judged, and a quote that fails."""
        tracer, logger = self._tracing.get_tracer("desk"), self._logging.get_logger("desk")
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "trader",
            "gen_ai.conversation.id": conversation,
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.provider.name": "openai",
        }
        with tracer.start_as_current_span("invoke_agent trader", attributes=agent):
            with tracer.start_as_current_span("execute_tool swap", attributes=_tool("swap", '{"usd": 500}')) as swap:
                served = _tool("swap", '{"usd": 500}') | {"mcp.method.name": "tools/call"}
                with tracer.start_as_current_span("tools/call swap", kind=SpanKind.CLIENT, attributes=served):
                    pass
                swap.set_attributes({"gen_ai.tool.call.result": '{"price": 1713.2}', "slippage_bps": 12.5})
            judged = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 0.75}
            logger.emit(context=set_span_in_context(swap), event_name="gen_ai.evaluation.result", attributes=judged)
            with tracer.start_as_current_span("execute_tool quote", attributes=_tool("quote", "{}")) as quote:
                quote.set_attribute("error.type", "timeout")
                quote.set_status(Status(StatusCode.ERROR, "no answer in 5 s"))
        return Emitted(*(f"{span.get_span_context().span_id:016x}" for span in (swap, quote)))

    def close(self) -> None:
        """Everything has gone out."""
        self._tracing.shutdown()
        self._logging.shutdown()


def _tool(name: str, arguments: str) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": arguments,
    }
