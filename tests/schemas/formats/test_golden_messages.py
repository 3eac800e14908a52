"""Messages and what is read in them: tests/golden/formats/*.json. What was once read is read the same for ever."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.wire import message

from fluvial.schemas.call_part import CallParts
from fluvial.schemas.formats import Reading, read
from fluvial.schemas.tool_call import ToolCall

FILES = sorted((Path(__file__).parents[2] / "golden" / "formats").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_message_holds_what_it_held_when_it_was_written_down(path: Path) -> None:
    case = json.loads(path.read_bytes())
    given: dict[str, Any] = case["message"]
    value = base64.b64decode(given["base64"]) if "base64" in given else given.get("json")
    reading = read(message(value, given["headers"], given["key"], given["timestamp"]))
    assert reading == Reading(
        calls=msgspec.convert(case["reading"]["calls"], tuple[ToolCall, ...]),
        parts=msgspec.convert(case["reading"]["parts"], tuple[CallParts, ...]),
        ignored=case["reading"]["ignored"],
        problems=tuple(case["reading"]["problems"]),
    )


def test_there_is_a_message_of_each_format() -> None:
    formats = {path.stem.partition("_")[0] for path in FILES}
    assert formats == {"tool", "cloudevent", "otlp", "mcp", "collector"}
