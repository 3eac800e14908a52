"""Messages of ten megabytes hold nobody up, whatever is in them: none takes a second on a quiet machine."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.wire import message

from fluvial.schemas.codec import Undecodable
from fluvial.schemas.formats import Reading, read

SIZE = 10 * 1_048_576
HANG_SECONDS = 5.0
"""Of CPU. What grows with the square of the size takes minutes; a busy machine makes two seconds out of one."""
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "53995c3f42cd8ad8"
CALL = {"source": "s", "run_id": "r", "tool": "t"}
REQUEST = {"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": {"name": "t"}}
EVENT = {"specversion": "1.0", "id": "1", "source": "s", "type": "tool_call"}


def numbered(count: int, **fields: str) -> list[dict[str, str]]:
    """Spans; a field of hexadecimal digits ends in the span's number."""
    name, digits = next(iter(fields.items()))
    often = {"traceId": TRACE, "spanId": SPAN, "parentSpanId": SPAN, "name": "chat", "startTimeUnixNano": "1" * 19}
    return [often | {name: f"{number + 1:0{len(digits)}x}"} for number in range(count)]


def batch(spans: list[Any]) -> Any:
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def attributes(count: int) -> Any:
    given = [{"key": f"wait{n}_ms", "value": {"intValue": "1"}} for n in range(count)]
    return batch([{"traceId": TRACE, "spanId": SPAN, "name": "execute_tool t", "attributes": given}])


READ: dict[str, Callable[[], Any]] = {
    "a long text": lambda: CALL | {"result": "x" * SIZE},
    "many numbers": lambda: CALL | {"args": list(range(SIZE // 8))},
    "many objects": lambda: CALL | {"args": [{"amounts": [1], "pool": "USDC/WETH 0.05 %"}] * (SIZE // 45)},
    "a long result of mcp": lambda: {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": "x" * SIZE}]},
    },
    "a batch of mcp": lambda: [
        REQUEST | {"id": n, "params": {"name": "t", "arguments": "x" * 1_000}} for n in range(9_900)
    ],
    "spans of one trace": lambda: batch(numbered(SIZE // 180, spanId=SPAN)),
    "spans of many traces": lambda: batch(numbered(SIZE // 180, traceId=TRACE)),
    "a span of many attributes": lambda: attributes(SIZE // 46),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "many fields": lambda: {f"field {number}": number for number in range(SIZE // 24)},
    "a long id of mcp": lambda: REQUEST | {"id": "x" * SIZE},
    "a batch of mcp that is too long": lambda: [REQUEST] * (SIZE // 80),
    "spans that are none": lambda: batch([{"traceId": "x"}] * (SIZE // 16)),
    "text that is no base64": lambda: EVENT | {"data_base64": "?" * SIZE},
    "base64 of nothing": lambda: EVENT | {"data_base64": "AAAA" * (SIZE // 4)},
    "digits": lambda: b"7" * SIZE,
    "spaces": lambda: b" " * SIZE,
    "ends of lines": lambda: b"\n" * SIZE,
    "lengths of a protobuf": lambda: b"\x0a\xff" * (SIZE // 2),
    "brackets": lambda: b"[" * SIZE,
}


def at_once(made: Any) -> Reading:
    """The reading of ten megabytes. Raises Undecodable."""
    data = made if isinstance(made, bytes) else json.dumps(made, separators=(",", ":")).encode()
    assert 0.8 * SIZE < len(data) < 1.5 * SIZE
    given = message(data)
    began = time.process_time()
    try:
        return read(given)
    finally:
        assert time.process_time() - began < HANG_SECONDS


@pytest.mark.parametrize("kind", READ)
def test_ten_megabytes_that_can_be_read_are_read_at_once(kind: str) -> None:
    assert any(at_once(READ[kind]()))


@pytest.mark.parametrize("kind", REFUSED)
def test_ten_megabytes_that_cannot_be_read_are_refused_at_once(kind: str) -> None:
    with pytest.raises(Undecodable):
        at_once(REFUSED[kind]())
