"""Spans and evaluations of a trace to calls."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluvial.processors import join_spans
from fluvial.processors.join import Joined, Tables, expire, take
from fluvial.schemas.call_part import CallPart, CallParts, EvaluationPart, SpanPart
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.tool_call import ToolCall

NOW = 1_000_000_000
WAIT = 30_000_000
TRACE = "ab" * 16


def tables() -> Tables:
    return Tables({}, {}, {}, {})


def span(name: str, parent: str | None = None, **fields: Any) -> SpanPart:
    return SpanPart(trace_id=TRACE, span_id=name, parent_id=parent, started_at=len(name), **fields)


def agent(name: str = "agent", parent: str | None = None, **fields: Any) -> SpanPart:
    said = {"agent_id": "trader", "model": "gpt-4o", "run_id": "conversation-1"} | fields
    return span(name, parent, **said)


def tool(name: str, parent: str | None = "agent", tool: str = "swap", is_mcp: bool = False, **call: Any) -> SpanPart:
    fields = {"source": "shop", "run_id": TRACE, "tool": tool, "event_id": name, "started_at": 5} | call
    return span(name, parent, is_mcp=is_mcp, call=ToolCall(**fields))


def evaluation(name: str, score: float = 1.0, of: str = "quality") -> EvaluationPart:
    return EvaluationPart(trace_id=TRACE, span_id=name, name=of, score=score, at=7)


def come(state: Tables, *parts: CallPart, now: int = NOW) -> Joined:
    return take(state, CallParts(key=TRACE, parts=parts, at=1), now)


def later(state: Tables, seconds: float = 30.0, flush: bool = False) -> Joined:
    return expire(state, NOW + round(seconds * 1e6), WAIT, WAIT, flush)


def test_a_tool_call_takes_agent_model_and_conversation_from_the_span_above_that_comes_later() -> None:
    state = tables()
    assert come(state, tool("t", "step")).calls == []
    come(state, span("step", "agent"))
    come(state, agent())
    assert later(state, 29).calls == []
    (call,) = later(state).calls
    assert (call.event_id, call.agent_id, call.model, call.run_id) == ("t", "trader", "gpt-4o", "conversation-1")


def test_the_nearest_span_that_says_it_counts() -> None:
    state = tables()
    come(state, agent("agent", None, source="outer"), agent("inner", "agent", agent_id="researcher", model=None))
    come(state, tool("t", "inner"))
    (call,) = later(state).calls
    assert (call.agent_id, call.model, call.source) == ("researcher", "gpt-4o", "outer")


def test_a_call_whose_ancestors_never_come_goes_on_without_them() -> None:
    state = tables()
    come(state, tool("t"))
    (call,) = later(state).calls
    assert (call.agent_id, call.model, call.run_id, call.reward) == (None, None, TRACE, None)


def test_with_reward_and_everything_known_it_waits_no_longer() -> None:
    state = tables()
    come(state, tool("t"), agent())
    (call,) = come(state, evaluation("t", 0.5)).calls
    assert call.reward == 0.5
    assert later(state) == Joined()


def test_with_the_root_above_it_nothing_more_can_come_to_be_known() -> None:
    state = tables()
    come(state, tool("t"), agent(model=None))
    assert [call.model for call in come(state, evaluation("t")).calls] == [None]


def test_a_reward_alone_does_not_end_the_wait_for_the_ancestors() -> None:
    state = tables()
    assert come(state, evaluation("t"), tool("t")).calls == []
    (call,) = come(state, agent()).calls
    assert (call.reward, call.agent_id) == (1.0, "trader")


def test_the_evaluation_of_an_agent_is_the_reward_of_all_its_calls_that_still_wait() -> None:
    state = tables()
    come(state, tool("a"), agent(), evaluation("a", 0.1))
    calls = come(state, tool("b"), tool("c", "b2"), span("b2", "agent"), evaluation("agent", 0.9)).calls
    assert [(call.event_id, call.reward) for call in calls] == [("b", 0.9), ("c", 0.9)]


def test_the_evaluation_of_an_outer_tool_call_is_not_that_of_the_inner_one() -> None:
    state = tables()
    come(state, agent(), tool("outer"), tool("inner", "outer", "search"), evaluation("outer", 0.2))
    assert [(call.event_id, call.reward) for call in later(state).calls] == [("inner", None)]


@pytest.mark.parametrize(
    ("named", "reward"),
    [(("relevance", "tone"), 0.0), (("relevance", "Reward"), 1.0), (("score", "reward"), 0.0)],
)
def test_of_several_evaluations_the_one_named_reward_or_score_counts_else_the_first(
    named: tuple[str, str], reward: float
) -> None:
    state = tables()
    come(state, *(evaluation("t", float(n), of=name) for n, name in enumerate(named)))
    joined = come(state, agent(), tool("t"))
    assert [call.reward for call in joined.calls] == [reward]


def test_an_evaluation_after_its_call_has_gone_is_late() -> None:
    state = tables()
    come(state, agent(), tool("t"))
    later(state, 10, flush=True)
    assert come(state, evaluation("t")).late == [evaluation("t")]


def test_an_evaluation_whose_call_never_comes_is_late_when_its_trace_is_forgotten() -> None:
    state = tables()
    come(state, evaluation("t"))
    assert later(state, 29) == Joined()
    assert later(state).late == [evaluation("t")]
    assert not state.traces and not state.nodes


def test_a_second_evaluation_of_the_same_span_is_a_duplicate() -> None:
    state = tables()
    joined = come(state, evaluation("t"), evaluation("t"))
    assert (joined.duplicates, joined.late) == (1, [])


def test_a_span_that_is_exported_twice_is_a_duplicate_before_and_after_it_has_gone() -> None:
    state = tables()
    assert come(state, tool("t"), tool("t")).duplicates == 1
    assert len(later(state, 10, flush=True).calls) == 1
    assert come(state, tool("t"), now=NOW + 1).duplicates == 1
    assert later(state, 60).calls == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_client_server_and_execute_tool_spans_of_one_call_are_one_event(order: tuple[int, ...]) -> None:
    state = tables()
    spans = (
        tool("exec", "agent", args={"a": 1}),
        tool("client", "exec", is_mcp=True, result="done", chain="base"),
        tool("server", "client", is_mcp=True, args={"a": 2}, source="server"),
    )
    for place in order:
        come(state, spans[place])
    come(state, agent())
    joined = later(state)
    (call,) = joined.calls
    assert (call.event_id, call.args, call.result, call.chain) == ("exec", {"a": 1}, "done", "base")
    assert (call.source, call.agent_id, joined.duplicates) == ("shop", "trader", 2)


def test_an_execute_tool_span_below_the_span_of_mcp_is_the_event() -> None:
    state = tables()
    come(state, agent(), tool("client", is_mcp=True, args=1), tool("exec", "client", result=2))
    joined = later(state)
    assert [(call.event_id, call.args, call.result) for call in joined.calls] == [("exec", 1, 2)]
    assert joined.duplicates == 1


def test_the_name_of_a_server_before_the_tool_makes_no_other_tool() -> None:
    state = tables()
    come(state, agent(), tool("exec", tool="web__search"), tool("client", "exec", "search", is_mcp=True))
    assert [call.tool for call in later(state).calls] == ["web__search"]


def test_a_span_of_mcp_for_another_tool_is_a_call_by_itself() -> None:
    state = tables()
    come(state, agent(), tool("exec", tool="plan"), tool("client", "exec", "search", is_mcp=True))
    joined = later(state)
    assert sorted(call.tool for call in joined.calls) == ["plan", "search"]
    assert joined.duplicates == 0


def test_two_nested_execute_tool_spans_are_two_calls_also_of_one_tool() -> None:
    state = tables()
    come(state, agent(), tool("outer"), tool("inner", "outer"))
    assert len(later(state).calls) == 2


def test_a_failed_call_takes_no_result_from_its_other_spans_but_the_message() -> None:
    state = tables()
    failed = {"status": "error", "error_type": "tool_error"}
    come(
        state, tool("exec", **failed), tool("mcp", "exec", is_mcp=True, result="x", error_message="no funds", **failed)
    )
    (call,) = later(state).calls
    assert (call.status, call.result, call.error_message) == ("error", None, "no funds")


def test_a_span_of_mcp_that_comes_after_the_event_has_gone_is_a_duplicate() -> None:
    state = tables()
    come(state, tool("exec"))
    assert len(later(state, 1, flush=True).calls) == 1
    come(state, tool("mcp", "exec", is_mcp=True), now=NOW + 2_000_000)
    joined = later(state, 40)
    assert (joined.calls, joined.duplicates) == ([], 1)


def test_a_straggler_finds_its_ancestors_until_the_trace_has_been_quiet_for_the_wait() -> None:
    state = tables()
    come(state, agent())
    come(state, tool("a"), now=NOW + 29_000_000)
    later(state, 45)
    come(state, tool("b"), now=NOW + 58_000_000)
    calls = later(state, 59).calls + later(state, 89).calls
    assert [(call.event_id, call.agent_id) for call in calls] == [("a", "trader"), ("b", "trader")]
    assert not state.traces and not state.nodes


def test_what_came_before_the_first_tick_waits_from_it_on() -> None:
    state = tables()
    come(state, tool("t"), now=0)
    assert later(state, 0).calls == []
    come(state, agent())
    assert [call.agent_id for call in later(state, 30).calls] == ["trader"]


def test_spans_that_stand_above_each_other_in_a_circle_end_the_search() -> None:
    state = tables()
    come(state, tool("a", "b", is_mcp=True), tool("b", "a", is_mcp=True), evaluation("a"))
    assert len(later(state).calls) >= 1


def test_calls_go_on_in_the_order_in_which_they_began() -> None:
    state = tables()
    come(state, tool("late", started_at=9), tool("early", started_at=3), agent())
    assert [call.event_id for call in later(state).calls] == ["early", "late"]


def test_of_too_many_spans_the_first_to_come_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_spans, "SPANS_KEPT", 3)
    state = tables()
    joined = come(state, evaluation("x"), tool("a"), tool("b"), agent(), tool("c"))
    assert [call.event_id for call in joined.calls] == ["a"]
    assert joined.late == [evaluation("x")]
    assert len(state.nodes) == 3
    assert [call.agent_id for call in later(state).calls] == ["trader", "trader"]


def test_of_too_many_traces_the_longest_quiet_goes_on_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_spans, "TRACES_KEPT", 1)
    state = tables()
    come(state, tool("old"))
    other = SpanPart(trace_id="cd" * 16, span_id="new", started_at=1, call=tool("new").call)
    take(state, CallParts(key="cd" * 16, parts=(other,), at=1), NOW + 1)
    assert [call.event_id for call in later(state, 1).calls] == ["old"]
    assert list(state.traces) == ["cd" * 16]


def a_trace(dice: random.Random, size: int) -> list[CallPart]:
    """A tree of agents, steps, tools and MCP spans, some of which are evaluated."""
    parts: list[CallPart] = [agent("s0")]
    for number in range(1, size):
        name, parent = f"s{number}", f"s{dice.randrange(number)}"
        kind = dice.randrange(4)
        if kind == 0:
            parts.append(agent(name, parent, agent_id=name))
        elif kind == 1:
            parts.append(span(name, parent))
        else:
            parts.append(tool(name, parent, f"tool-{dice.randrange(2)}", is_mcp=kind == 3))
        if dice.random() < 0.2:
            parts.append(evaluation(name, dice.random()))
    return parts


@given(seed=st.integers(0, 10_000), size=st.integers(1, 25), cut=st.integers(1, 8))
def test_in_whatever_order_and_messages_the_parts_come_the_same_calls_go_on(seed: int, size: int, cut: int) -> None:
    """Without rewards; these end the wait early, and then the order is what it is."""
    dice = random.Random(seed)
    parts = [part for part in a_trace(dice, size) if isinstance(part, SpanPart)]
    together, apart = tables(), tables()
    come(together, *parts)
    shuffled = parts.copy()
    dice.shuffle(shuffled)
    for start in range(0, len(shuffled), cut):
        come(apart, *shuffled[start : start + cut])
    one, other = later(together), later(apart)
    assert one.calls == other.calls
    assert one.duplicates == other.duplicates


@given(seed=st.integers(0, 10_000), size=st.integers(1, 25), cut=st.integers(1, 8))
def test_every_part_becomes_a_call_an_ancestor_a_reward_a_duplicate_or_late(seed: int, size: int, cut: int) -> None:
    dice = random.Random(seed)
    parts = a_trace(dice, size)
    parts += dice.choices(parts, k=3)
    dice.shuffle(parts)
    state = tables()
    steps = []
    for start in range(0, len(parts), cut):
        steps.append(come(state, *parts[start : start + cut], now=NOW + start))
        if dice.random() < 0.3:
            steps.append(later(state, dice.random() * 20, flush=dice.random() < 0.3))
        state = Tables(*(decode_all(table) for table in (state.traces, state.nodes, state.requests, state.responses)))
    steps += [later(state, 60)]
    calls = [call for step in steps for call in step.calls]
    late = sum(len(step.late) for step in steps)
    duplicates = sum(step.duplicates for step in steps)
    assert len({call.event_id for call in calls}) == len(calls)
    tools = [part for part in parts if isinstance(part, SpanPart) and part.call]
    others = [part for part in parts if isinstance(part, SpanPart) and not part.call]
    evaluations = len(parts) - len(tools) - len(others)
    repeated = len(others) - len({part.span_id for part in others})
    assert len(calls) <= len({part.span_id for part in tools})
    unused = len(tools) + evaluations + repeated - len(calls) - duplicates - late
    assert 0 <= unused <= evaluations, "the rest are evaluations that have become rewards"
    assert unused == 0 or any(call.reward is not None for call in calls)
    assert not state.traces and not state.nodes


def test_the_order_of_the_tables_after_a_restart_changes_nothing() -> None:
    results = []
    for order in (1, -1):
        state = tables()
        for name in ("ab", "cd", "ef")[::order]:
            trace = name * 16
            late = EvaluationPart(trace_id=trace, span_id="none", name="n", score=1.0, at=7)
            part = SpanPart(trace_id=trace, span_id="t", started_at=1, call=tool("t", event_id=name).call)
            take(state, CallParts(key=trace, parts=(part, late), at=1), NOW)
        results.append(later(state))
    assert results[0] == results[1]
    assert len(results[0].calls) == len(results[0].late) == 3


def decode_all(table: Any) -> Any:
    """The table as it is after a restart."""
    return {key: decode(encode(row), type(row)) for key, row in table.items()}
