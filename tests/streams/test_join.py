"""The join on a real broker: parts from several messages and partitions become calls; what cannot is put aside."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from support.river import River

from fluvial.schemas.call_part import CallPart, CallParts, EvaluationPart, RequestPart, ResponsePart, SpanPart
from fluvial.schemas.codec import encode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CALL_PARTS, DEAD_LETTERS, JOIN, TOOL_CALLS
from fluvial.streams.admin import ensure_topics
from fluvial.streams.join import Join
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import status

TRACE = "0af7651916cd43dd8448eb211c80319c"
AGENT, TOOL = "00f067aa0ba90200", "00f067aa0ba90201"


@pytest.fixture
async def river(kafka: str) -> AsyncIterator[River]:
    river = River(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=river.prefix)
    yield river
    await river.stop()
    gc.collect()


def agent(trace: str = TRACE) -> SpanPart:
    return SpanPart(trace_id=trace, span_id=AGENT, started_at=1, agent_id="desk", model="gpt", run_id="talk")


def tool(trace: str = TRACE, span_id: str = TOOL) -> SpanPart:
    call = ToolCall(source="svc", run_id=trace, tool="swap", event_id=span_id)
    return SpanPart(trace_id=trace, span_id=span_id, parent_id=AGENT, started_at=2, source="svc", call=call)


def evaluation(trace: str = TRACE, span_id: str = TOOL, at: int = 3) -> EvaluationPart:
    return EvaluationPart(trace_id=trace, span_id=span_id, name="reward", score=0.5, at=at)


def request(number: int) -> RequestPart:
    call = ToolCall(source="mcp", run_id="s1", tool=f"tool-{number}", event_id=f"e{number}", status="unknown")
    return RequestPart(session="s1", request_id=str(number), call=call)


def response(number: int) -> ResponsePart:
    return ResponsePart(session="s1", request_id=str(number), at=5, result="done")


async def put(river: River, *parts: CallPart, partition: int = 1) -> None:
    """One record a part."""
    records = [CallParts(key="k", parts=(part,), at=1) for part in parts]
    await river.publish([(partition, encode(record)) for record in records], CALL_PARTS)


async def counts(river: River) -> Progress:
    def look() -> Progress:
        with LogReader(river.broker) as reader:
            (found,) = status(reader, river.prefix, ["join"])
        assert found.unaccounted == 0
        return Progress(resume=0, read=found.read, done=found.done, dead=found.dead, duplicate=found.duplicate)

    return await asyncio.to_thread(look)


async def test_a_call_goes_on_when_its_agent_and_its_reward_have_come_and_keyed_by_its_run(river: River) -> None:
    (join,) = await river.start(Join)
    await river.tick(CALL_PARTS)
    await put(river, tool(), evaluation())
    await river.tick(CALL_PARTS)
    await river.has_handled(join, CALL_PARTS)
    assert await river.read(TOOL_CALLS) == []
    await put(river, agent())
    await river.has_handled(join, CALL_PARTS)
    (call,) = await river.read(TOOL_CALLS)
    assert (call.event_id, call.run_id, call.agent_id, call.model, call.reward) == (TOOL, "talk", "desk", "gpt", 0.5)
    assert await counts(river) == Progress(resume=0, read=3, done=3)


async def test_after_its_wait_in_ticks_a_call_goes_on_with_what_is_known(river: River) -> None:
    (join,) = await river.start(Join)
    await river.tick(CALL_PARTS)
    await put(river, tool(), request(1))
    await river.tick(CALL_PARTS, seconds=29)
    await river.has_handled(join, CALL_PARTS)
    assert await river.read(TOOL_CALLS) == []
    await river.tick(CALL_PARTS, seconds=1)
    await river.has_handled(join, CALL_PARTS)
    assert [(call.tool, call.agent_id) for call in await river.read(TOOL_CALLS)] == [("swap", None)]
    await river.tick(CALL_PARTS, seconds=270)
    await river.has_handled(join, CALL_PARTS)
    assert {call.tool: call.status for call in await river.read(TOOL_CALLS)} == {"swap": "ok", "tool-1": "unknown"}


async def test_a_flush_hands_on_the_spans_and_leaves_calls_under_way_to_their_results(river: River) -> None:
    (join,) = await river.start(Join)
    await put(river, tool(), request(1), response(2))
    await put(river, tool("1" * 32, "00f067aa0ba90202"), partition=3)
    await river.tick(CALL_PARTS, flush=True)
    await river.has_handled(join, CALL_PARTS)
    assert sorted(call.event_id for call in await river.read(TOOL_CALLS)) == [TOOL, "00f067aa0ba90202"]
    await river.tick(CALL_PARTS, seconds=301)
    await river.has_handled(join, CALL_PARTS)
    assert sorted(call.event_id for call in await river.read(TOOL_CALLS)) == [TOOL, "00f067aa0ba90202", "e1"]
    (letter,) = await river.read(DEAD_LETTERS)
    assert (letter.hop, letter.reason) == (
        "join",
        "no request 2 came in the session: a result alone is no call",
    )
    assert letter.topic == CALL_PARTS.named(river.prefix)
    assert await counts(river) == Progress(resume=0, read=4, done=3, dead=1)


async def test_late_and_lonely_evaluations_become_letters_that_name_their_event(river: River) -> None:
    (join,) = await river.start(Join)
    await put(river, agent(), tool())
    await put(river, evaluation(span_id="00f067aa0ba90299"))
    await river.tick(CALL_PARTS, flush=True)
    await put(river, evaluation())
    await river.has_handled(join, CALL_PARTS)
    letters = await river.read(DEAD_LETTERS)
    assert sorted(letter.event_id for letter in letters) == [TOOL, "00f067aa0ba90299"]
    assert all("came after its call had gone on" in letter.reason for letter in letters)
    assert len({letter.id for letter in letters}) == 2
    assert await counts(river) == Progress(resume=0, read=4, done=2, dead=2)


async def test_the_same_part_again_is_a_duplicate(river: River) -> None:
    (join,) = await river.start(Join)
    await put(river, agent(), tool(), agent(), tool(), evaluation(), tool())
    await put(river, request(1), request(1), response(1), response(1))
    await river.has_handled(join, CALL_PARTS)
    assert sorted(call.tool for call in await river.read(TOOL_CALLS)) == ["swap", "tool-1"]
    assert await counts(river) == Progress(resume=0, read=10, done=5, duplicate=5)


async def test_what_is_held_survives_the_worker(river: River) -> None:
    (join,) = await river.start(Join)
    await river.tick(CALL_PARTS)
    await put(river, tool(), request(1))
    await river.has_handled(join, CALL_PARTS)
    await river.stop(join)
    (again,) = await river.start(Join)
    await put(river, response(1), evaluation(), agent())
    await river.has_handled(again, CALL_PARTS)
    calls = {call.tool: call for call in await river.read(TOOL_CALLS)}
    assert (calls["swap"].agent_id, calls["tool-1"].result) == ("desk", "done")


async def held(river: River) -> set[str]:
    """The tables that hold something."""
    rows: dict[bytes, bytes] = dict(await river.read(JOIN.state_topic))
    kept = [key for key, value in rows.items() if value is not None and key != PROGRESS_KEY]
    return {key.decode().partition("\x1f")[0] for key in kept}


async def test_at_an_erasure_spans_go_on_and_only_what_tells_of_it_is_dropped(river: River) -> None:
    (join,) = await river.start(Join)
    await put(river, agent(), tool(), request(1), request(2), response(2))
    await river.tick(CALL_PARTS, erase=Erasure(what="agent", value="desk"))
    await river.has_handled(join, CALL_PARTS)
    assert sorted(call.tool for call in await river.read(TOOL_CALLS)) == ["swap", "tool-2"]
    assert await held(river) == {"requests"}
    await river.tick(CALL_PARTS, erase=Erasure(what="run", value="s1"))
    await river.has_handled(join, CALL_PARTS)
    assert await held(river) == set()


async def test_ticks_of_the_join_do_not_go_into_tool_calls(river: River) -> None:
    (join,) = await river.start(Join)
    await put(river, tool())
    await river.tick(CALL_PARTS, flush=True)
    await river.has_handled(join, CALL_PARTS)
    slots = {progress.slot for progress in await river.progress(JOIN)}
    assert max(slots) == 1
    (record,) = await river.read(TOOL_CALLS)
    assert isinstance(record, ToolCall)
