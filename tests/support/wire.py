"""The same calls in each format, as messages, and the way from there to calls without Kafka."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.recorded import MAPPING

from fluvial.mapping import load_mapping
from fluvial.processors.join import Tables, expire, take
from fluvial.schemas.formats import Message, Reading, read
from fluvial.schemas.tool_call import ToolCall

AT = 1_767_225_600_000_000
"""The Kafka time of the messages."""
_mapping = load_mapping(MAPPING)


def mapped(row: Any) -> ToolCall:
    """The recorded rows as calls; what a failed one said is its message, as in the other formats."""
    call = _mapping.call(row)
    failed = call.status == "error" and isinstance(call.result, str)
    return replace(call, result=None, error_message=call.result[:65_536]) if failed else call


def message(value: Any, headers: Mapping[str, str] | None = None, key: str = "", at: int = AT) -> Message:
    """A message of bytes, or of anything else as JSON."""
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Message(data, {name: text.encode() for name, text in (headers or {}).items()}, key, at)


def rows(shared: Path, name: str) -> list[Any]:
    """The rows of ../shared/data/wire/NAME.jsonl."""
    return [json.loads(line) for line in (shared / "data" / "wire" / f"{name}.jsonl").read_text().splitlines()]


def protobuf(spans: Any) -> bytes:
    """OTLP/JSON as OTLP/protobuf."""
    spans = json.loads(json.dumps(spans))
    for group in spans["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = _base64(span[name])
    return ParseDict(spans, ExportTraceServiceRequest()).SerializeToString()


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def calls_of(*messages: Message) -> list[ToolCall]:
    """The calls in the messages once all of them have come and have waited long enough."""
    tables = Tables({}, {}, {}, {})
    calls: list[ToolCall] = []
    for one in messages:
        calls += joined(tables, read(one, mapped))
    return calls + expire(tables, 2, 1, 1, flush=True).calls


def joined(tables: Tables, reading: Reading) -> list[ToolCall]:
    """The whole calls of a reading, and those that its parts complete."""
    return [*reading.calls, *(call for parts in reading.parts for call in take(tables, parts, 1).calls)]
