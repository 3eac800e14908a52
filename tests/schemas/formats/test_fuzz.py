"""Mutations of real messages: each is read or refused with a reason, and what is read can be written and joined.

20,000 by default; FLUVIAL_FUZZ=1000000 for the long form, FLUVIAL_FUZZ_SEED for other ones.
"""

import copy
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.wire import AT, mapped, message, protobuf, rows

from fluvial.processors.join import Tables, expire, take
from fluvial.processors.reflect import reflect
from fluvial.schemas.call_part import CallParts
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.formats import Message, read
from fluvial.schemas.nesting import is_deeper
from fluvial.schemas.tool_call import ToolCall

MESSAGES = int(os.environ.get("FLUVIAL_FUZZ", "20000"))
SEED = int(os.environ.get("FLUVIAL_FUZZ_SEED", "1"))
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1e308,
        -0.0,
        2**63,
        2**64,
        10**400,
        "",
        " ",
        "0",
        "NaN",
        "\x00",
        "\u202e",
        "\U0001f600",
    ),
    *(
        [],
        {},
        [[]],
        {"": None},
        "x" * 300,
        "x" * 70_000,
        "2026-01-01T00:00:00Z",
        "execute_tool",
        "tools/call",
        "00" * 16,
    ),
    *(["jsonrpc"], {"jsonrpc": "2.0"}, {"stringValue": 1}, {"intValue": "1e5"}, -62_135_596_800_000_001, "9" * 5_000),
]
BYTES = [
    b"",
    b"\x00",
    b"\xff",
    b"\\ud800",
    b'"',
    b"{",
    b"[",
    b"}" * 9,
    b"\n",
    b"1e999",
    b"\xe2\x80",
    b"\x0a\x10",
    b"[" * 400,
]
HEADERS = {
    "content-type": [b"application/cloudevents+json", b"application/json", b"application/x-protobuf", b"\xff"],
    "CE_specversion": [b"1.0", b"0.3", b"", b"\xff"],
    "ce_id": [b"1", b"53995c3f42cd8ad8"],
    "ce_source": [b"/a"],
    "ce_type": [b"tool_call", b"other"],
    "ce_time": [b"9999-12-31T23:59:59-14:00", b"now"],
    "mcp-session-id": [b"s", b"s" * 5_000],
    "source": [b"shop", b"", b"x" * 300],
}


def real_messages(shared: Path) -> list[Message]:
    """The recorded calls in each format, hard ones among them, and logs."""
    found = []
    for name in ("cloudevents_structured", "cloudevents_binary"):
        found += [message(row["value"], row["headers"], row["key"]) for row in rows(shared, name)]
    for row in rows(shared, "otlp_json"):
        found += [message(row), message(protobuf(row))]
    for row in rows(shared, "mcp_tools_call"):
        found += [message(row, key="k"), message(row["request"], key="k"), message(row["response"], key="k")]
    golden = Path(__file__).parents[2] / "golden" / "formats"
    for path in sorted(golden.glob("*.json")):
        given = json.loads(path.read_bytes())["message"]
        if "json" in given:
            found.append(message(given["json"], given["headers"], given["key"]))
    hard = (shared / "data" / "hard" / "hard_cases.jsonl").read_bytes().splitlines()
    return found + [message(line) for line in hard]


def in_bytes(dice: random.Random, data: bytes, others: list[Message]) -> bytes:
    """Cut, doubled, overwritten, or grown together with another one."""
    start, end = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
    match dice.randrange(6):
        case 0:
            return data[:start]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:end] + data[start:]
        case 3:
            return data[:start] + dice.choice(BYTES) + data[start:]
        case 4:
            changed = bytearray(data)
            for _ in range(dice.randrange(1, 9) if changed else 0):
                changed[dice.randrange(len(changed))] = dice.randrange(256)
            return bytes(changed)
    other = dice.choice(others).value or b""
    return data[:start] + other[dice.randrange(len(other) + 1) :]


def in_json(dice: random.Random, data: bytes, others: list[Message]) -> bytes:
    """Anything in it in the place of anything else, or something odd, or nothing."""
    try:
        document = json.loads(data)
    except ValueError:
        return in_bytes(dice, data, others)
    for _ in range(dice.randrange(1, 4)):
        places = list(all_places(document))
        if not places:
            break
        holder, key = dice.choice(places)
        match dice.randrange(4):
            case 0:
                del holder[key]
            case 1:
                other, name = dice.choice(places)
                holder[key] = json.loads(json.dumps(other[name])) if name in other or isinstance(other, list) else None
            case 2 if isinstance(holder, dict):
                holder[dice.choice(["type", "tool", "id", "value", "jsonrpc", "data", ""])] = holder.pop(key)
            case _:
                holder[key] = copy.deepcopy(dice.choice(ODD))
    return json.dumps(document, ensure_ascii=dice.random() < 0.5).encode(errors="surrogatepass")


def all_places(document: Any) -> list[tuple[Any, Any]]:
    """Every key of every object and list."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            found.append((one, key))
            waiting.append(one[key])
    return found


def mutated(dice: random.Random, real: list[Message]) -> Message:
    one = dice.choice(real)
    change: Callable[[random.Random, bytes, list[Message]], bytes] = dice.choice((in_bytes, in_json))
    headers = dict(one.headers)
    for name in dice.sample(sorted(HEADERS), dice.choice((0, 0, 0, 1, 4))):
        headers[name] = dice.choice(HEADERS[name])
    key = one.key if dice.random() < 0.9 else dice.choice(("", "\ufffd", "k" * 9_000))
    value = change(dice, one.value or b"", real) if dice.random() < 0.99 else None
    return Message(value, headers, key, AT)


def assert_writable(call: ToolCall) -> None:
    """What goes into our own topics can be read there."""
    assert decode(encode(call), ToolCall)
    assert reflect(call)
    assert not is_deeper(call.args) and not is_deeper(call.result)


def test_mutations_of_real_messages_are_read_or_refused_in_time(shared: Path) -> None:
    dice = random.Random(SEED)
    real = real_messages(shared)
    tables = Tables({}, {}, {}, {})
    read_whole = refused = in_part = 0
    slowest = 0.0
    for number in range(MESSAGES):
        given = mutated(dice, real)
        began = time.process_time()
        try:
            reading = read(given, mapped if number % 2 else None)
        except Undecodable as wrong:
            assert str(wrong) and len(str(wrong)) < 5_000
            refused += 1
            continue
        finally:
            slowest = max(slowest, time.process_time() - began)
        assert any(reading)
        in_part += bool(reading.problems)
        read_whole += not reading.problems
        for call in reading.calls:
            assert_writable(call)
        for parts in reading.parts:
            again = decode(encode(parts), CallParts)
            for call in take(tables, again, number).calls:
                assert_writable(call)
        if number % 50 == 0:
            for call in expire(tables, number, 40, 90, flush=dice.random() < 0.1).calls:
                assert_writable(call)
    assert slowest < 1.0
    assert min(read_whole, refused) > MESSAGES // 10
    print(
        f"{MESSAGES:,}: {read_whole:,} read, {in_part:,} in part, {refused:,} refused, {slowest * 1000:.0f} ms at most"
    )
