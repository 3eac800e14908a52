"""The hops for foreign formats on a real broker: what comes in goes on once, to where it belongs."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.river import River

from fluvial.mapping import parse_mapping
from fluvial.processors.redact import Redactor
from fluvial.schemas.call_part import CallParts, RequestPart, ResponsePart, SpanPart
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.formats import Message, read
from fluvial.schemas.progress import Progress
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import (
    AGENT_EVENTS,
    CALL_PARTS,
    DEAD_LETTERS,
    EVENTS,
    MAX_RECORD_BYTES,
    OTLP_SPANS,
    TOOL_CALLS,
)
from fluvial.streams import receive as module
from fluvial.streams.admin import ensure_topics
from fluvial.streams.hand_on import hand_on, hand_on_parts
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import status
from fluvial.streams.receive import Events, Spans, call_of
from fluvial.streams.state import State
from fluvial.streams.turn import Output, Turn

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]


@pytest.fixture
async def river(kafka: str) -> AsyncIterator[River]:
    river = River(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=river.prefix)
    yield river
    await river.stop()
    gc.collect()


def message(value: Any, key: str = "", **headers: str) -> Message:
    data = value if isinstance(value, bytes | None) else msgspec.json.encode(value)
    return Message(data, {name.replace("_", "-"): said.encode() for name, said in headers.items()}, key, 0)


def event(data: Any, **attributes: Any) -> Message:
    """A structured CloudEvent."""
    envelope = {"specversion": "1.0", "id": "7", "source": "desk", "type": "agent.tool_call"} | attributes
    return message(envelope | {"data": data}, content_type="application/cloudevents+json")


def request(number: int, tool: str = "swap", **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def response(number: int, text: str = "done") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}}


def span(span_id: str, tool: str | None = "swap", **attributes: str) -> dict[str, Any]:
    said = attributes | ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool} if tool else {})
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "name": f"execute_tool {tool}" if tool else "invoke_agent desk",
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225600250000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in said.items()],
    }


def traces(*spans: dict[str, Any]) -> Message:
    return message({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


async def counted(river: River, hop: str) -> tuple[int, int, int]:
    """How many messages were read, done and dead."""

    def look() -> tuple[int, int, int]:
        with LogReader(river.broker) as reader:
            (found,) = status(reader, river.prefix, [hop])
        assert found.unaccounted == 0
        return found.read, found.done, found.dead

    return await asyncio.to_thread(look)


async def test_whole_calls_go_to_tool_calls_and_parts_to_call_parts(river: River) -> None:
    (events,) = await river.start(Events)
    await river.send(
        AGENT_EVENTS,
        [
            event({"run_id": "r", "tool": "quote"}, id="00f067aa0ba902b7"),
            message({"request": request(1), "response": response(1)}, key="session-1"),
            message(request(2), key="session-1"),
            message(response(2), mcp_session_id="session-1"),
            message(encode(ToolCall(source="s", run_id="r", tool="lend", event_id="own"))),
        ],
    )
    await river.has_handled(events, AGENT_EVENTS)
    calls = {call.tool: call for call in await river.read(TOOL_CALLS)}
    assert calls.keys() == {"quote", "swap", "lend"}
    assert (calls["quote"].event_id, calls["quote"].source) == ("00f067aa0ba902b7", "desk")
    assert (calls["swap"].run_id, calls["swap"].result) == ("session-1", "done")
    assert calls["lend"].event_id == "own"
    parts = [part for record in await river.read(CALL_PARTS) for part in record.parts]
    assert {type(part) for part in parts} == {RequestPart, ResponsePart}
    assert await counted(river, "events") == (5, 5, 0)


async def test_what_is_no_tool_call_is_read_and_that_is_all(river: River) -> None:
    (events,) = await river.start(Events)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    await river.send(AGENT_EVENTS, [message(None, key="k"), message(ping), event({"a": 1}, type="com.shop.order")])
    await river.has_handled(events, AGENT_EVENTS)
    assert await counted(river, "events") == (3, 3, 0)
    for topic in (TOOL_CALLS, CALL_PARTS, DEAD_LETTERS):
        assert await river.read(topic) == []


async def test_what_is_wrong_in_a_batch_becomes_one_letter_and_the_rest_goes_on(river: River) -> None:
    (spans,) = await river.start(Spans)
    bad, worse = span("00f067aa0ba90201", tool=" "), span("xyz")
    await river.send(OTLP_SPANS, [traces(span("00f067aa0ba90200"), bad, worse), message(b"\x00garbage")])
    await river.has_handled(spans, OTLP_SPANS)
    (record,) = await river.read(CALL_PARTS)
    assert [part.span_id for part in record.parts] == ["00f067aa0ba90200"]
    letters = await river.read(DEAD_LETTERS)
    assert sorted(letter.hop for letter in letters) == ["spans", "spans"]
    (one,) = [letter for letter in letters if letter.value != "[redacted:binary]"]
    assert "; " in one.reason
    assert await counted(river, "spans") == (2, 0, 2)


async def test_where_nothing_comes_a_mark_says_that_the_hop_is_there(
    river: River, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALIVE_SECONDS", 1.0)
    await river.start(Events)

    async def marked() -> bool:
        return len(await river.read(EVENTS.state_topic)) >= 2 * AGENT_EVENTS.partitions

    await river.until(marked)
    assert await counted(river, "events") == (0, 0, 0)


async def test_no_secret_goes_on_in_a_call_or_in_a_part(river: River) -> None:
    (events, spans) = await river.start(Events, Spans)
    await river.send(
        AGENT_EVENTS,
        [
            event({"run_id": "r", "tool": "a", "args": {"note": SECRET}}),
            message(request(1, note=SECRET), key=SECRET),
            message(response(1, SECRET), key=SECRET),
            message({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": SECRET}}, key=SECRET),
            message(b"not JSON " + SECRET.encode(), key=SECRET),
        ],
    )
    secrets = {"gen_ai.tool.call.arguments": SECRET, "gen_ai.agent.name": SECRET, "gen_ai.conversation.id": SECRET}
    await river.send(OTLP_SPANS, [traces(span("00f067aa0ba90200", **secrets))])
    await river.has_handled(events, AGENT_EVENTS)
    await river.has_handled(spans, OTLP_SPANS)
    written = [await river.read(topic) for topic in (TOOL_CALLS, CALL_PARTS, DEAD_LETTERS)]
    assert [len(records) for records in written] == [1, 4, 1]
    assert SECRET.encode() not in msgspec.json.encode(written)
    keys = {part.session for record in written[1] for part in record.parts if not isinstance(part, SpanPart)}
    assert len(keys) == 1, "the halves of a call must still find each other"


def test_parts_that_are_too_much_for_a_record_go_on_in_several_and_one_that_is_too_large_is_a_problem() -> None:
    long = "\x01" * 250_000  # six bytes each in JSON
    (parts,) = read(traces(*(span(f"00f067aa0ba9020{n}", **{"gen_ai.tool.call.result": long}) for n in range(7)))).parts
    huge = ResponsePart(session=TRACE, request_id="1", at=0, result=4 * long)
    turn = Turn("spans", 0, State(), Progress(resume=0))
    problems = list(hand_on_parts(turn, CallParts(key=TRACE, parts=(*parts.parts, huge), at=0), Redactor()))
    (problem,) = problems
    assert re.fullmatch(
        rf"part of {TRACE}: it has 6,000,\d+ bytes as JSON, and at most [\d,]+ go into a record", problem
    )
    records = [decode(output.value, CallParts) for output in turn.outputs if isinstance(output, Output)]
    assert [part for record in records for part in record.parts] == [*parts.parts]
    assert len(records) > 2
    assert max(len(encode(record)) for record in records) < MAX_RECORD_BYTES


def handed_on(*parts: RequestPart | ResponsePart | SpanPart, key: str = TRACE) -> tuple[list[CallParts], list[str]]:
    turn = Turn("events", 0, State(), Progress(resume=0))
    problems = list(hand_on_parts(turn, CallParts(key=key, parts=parts, at=0), Redactor(b"k" * 32)))
    return [decode(output.value, CallParts) for output in turn.outputs if isinstance(output, Output)], problems


def test_the_key_counts_to_what_goes_into_a_record() -> None:
    one = ResponsePart(session="s", request_id="1", at=0, result="no " * 700_000)
    assert handed_on(one)[1] == []
    records, (problem,) = handed_on(one, key="k " * 600_000)
    assert records == [] and "it has 4,500," in problem


def test_the_halves_of_a_call_still_match_where_the_id_of_the_request_is_a_secret() -> None:
    (asked,) = read(message(request(1) | {"id": SECRET}, key="s")).parts
    (said,) = read(message(response(1) | {"id": SECRET}, key="s")).parts
    ((one,), (other,)) = (handed_on(*together.parts)[0][0].parts for together in (asked, said))
    assert isinstance(one, RequestPart) and isinstance(other, ResponsePart)
    assert one.request_id == other.request_id
    assert SECRET.encode() not in encode(one) + encode(other)


def test_names_that_redaction_makes_longer_are_cut() -> None:
    long = " ".join(["AKIA" + "Q7RT2XK9PLM4VNWZ"] * 12)
    names = {"gen_ai.agent.name": long, "gen_ai.conversation.id": long, "gen_ai.request.model": long}
    (parts,) = read(traces(span("00f067aa0ba90200", **names))).parts
    ((record,), problems) = handed_on(*parts.parts)
    (one,) = record.parts
    assert isinstance(one, SpanPart) and problems == []
    assert one.agent_id and one.run_id and max(len(one.agent_id), len(one.run_id)) <= 256
    turn = Turn("events", 0, State(), Progress(resume=0))
    assert list(hand_on(turn, ToolCall(source=long, run_id=long, tool="t", agent_id=long), Redactor(b"k" * 32))) == []
    (sent,) = [decode(output.value, ToolCall) for output in turn.outputs if isinstance(output, Output)]
    assert len(sent.run_id) <= 256


def test_a_call_too_large_for_a_record_is_a_problem() -> None:
    turn = Turn("events", 0, State(), Progress(resume=0))
    call = ToolCall(source="s", run_id="r", tool="t", result="\x01" * 1_000_000)
    (problem,) = hand_on(turn, call, Redactor())
    assert problem.startswith("t: it has 6,000,") and turn.outputs == []


async def test_a_record_of_tool_calls_may_be_a_whole_call_in_another_format() -> None:
    class Record:
        key, timestamp = b"session-1", 1

        def __init__(self, of: Message) -> None:
            self.value, self.headers = of.value, tuple(of.headers.items())

    def whole(of: Message, mapping: Any = None) -> ToolCall:
        return call_of(Record(of), mapping)

    assert whole(event({"run_id": "r", "tool": "quote"}, id="00f067aa0ba902b7")).event_id == "00f067aa0ba902b7"
    assert whole(message({"request": request(1), "response": response(1)})).result == "done"
    row = parse_mapping('source = "\'desk\'"\nrun_id = "r"\ntool = "what"').call
    assert whole(message({"r": "7", "what": "quote"}), row).tool == "quote"
    for wrong, why in [
        (traces(span("00f067aa0ba90200")), "send them to otlp_spans"),
        (message(request(1)), "send it to agent-events"),
        (message([request(1), response(1), request(2)]), "send it to agent-events"),
        (message({"r": "7", "what": "quote"}), "not a valid ToolCall: Object missing required field `source`"),
        (message({"source": "s", "run_id": "r", "tool": ""}), "not a valid ToolCall: tool is empty"),
        (message(None), "not JSON: the record is empty|no tool call"),
        (message(b"garbage"), "not JSON: "),
    ]:
        with pytest.raises(Undecodable, match=why):
            whole(wrong)
