"""The spans of a trace to calls: agent, model and conversation from above, the reward from evaluations.

A tool span waits for its ancestors and for its evaluation, which come when they end and are exported: later, and in
other messages. It goes on as soon as both are there, else when it has waited long enough, with what is known then.
- **Above**: of source, agent, model and conversation, each from the nearest span that says it, the span itself first.
- **One call, several spans**: an MCP span and the `execute_tool` span above or below it are one event, that of the
  `execute_tool` span, whose gaps the other fills (span_tree.py). The first of them that goes on is the event.
- **Reward**: the evaluation of the call's own span, else of the nearest span above that is no tool call (its agent's).
  Of several evaluations of a span, the one named reward or score counts, else the first; the others are duplicates.
- **Late** is an evaluation that comes after its call has gone, or that no call has used when its trace is forgotten.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from fluvial.processors.idle import idle
from fluvial.processors.joined import Joined, Tables, Trace
from fluvial.processors.span_tree import SpanTree
from fluvial.schemas.call_part import EvaluationPart, SpanPart
from fluvial.schemas.tool_call import ToolCall

TRACES_KEPT = 10_000
SPANS_KEPT = 1_000
"""Spans of one trace."""
_BEST_NAMES = ("reward", "score")


def take(tables: Tables, parts: Iterable[SpanPart | EvaluationPart], now: int, joined: Joined) -> None:
    """Parts have come, of one trace or of several."""
    traces: dict[str, list[SpanPart | EvaluationPart]] = {}
    for part in parts:
        traces.setdefault(part.trace_id, []).append(part)
    calls: list[ToolCall] = []
    for trace_id, its_parts in traces.items():
        tree = SpanTree(tables, trace_id)
        spans = dict.fromkeys(tables.traces.get(trace_id, Trace()).spans)
        for part in its_parts:
            spans[part.span_id] = None
            if isinstance(part, SpanPart):
                _add(tree, part, now, joined)
            else:
                _evaluate(tree, part, joined)
        surplus, kept = tuple(spans)[:-SPANS_KEPT], tuple(spans)[-SPANS_KEPT:]
        calls += _hand_on(tree, spans, {*surplus, *_ready(tree, spans)}, joined)
        _forget(tree, surplus, joined)
        tables.traces[trace_id] = Trace(spans=kept, touched=now, oldest=_oldest(tree, kept))
    joined.calls += sorted(calls, key=_in_time)


def expire(tables: Tables, now: int, wait: int, flush: bool, joined: Joined) -> None:
    """Calls that have waited long enough go on; traces to which nothing has come for as long are forgotten."""
    touched = {trace_id: trace.touched for trace_id, trace in tables.traces.items()}
    surplus = {*idle(touched, now, now, TRACES_KEPT)}  # the longest untouched beyond those kept
    calls: list[ToolCall] = []
    for trace_id, last in sorted(touched.items()):  # the order in memory is another one after a restart
        tree = SpanTree(tables, trace_id)
        if not last:
            _begin_to_wait(tables, tree, trace_id, now)
        trace = tables.traces[trace_id]
        over = trace_id in surplus or now >= trace.touched + wait
        if not (over or flush) and (trace.oldest is None or now < trace.oldest + wait):
            continue
        due = {span_id for span_id in trace.spans if over or flush or now >= tree[span_id].came + wait}
        calls += _hand_on(tree, trace.spans, due, joined)
        if over:
            _forget(tree, trace.spans, joined)
            del tables.traces[trace_id]
            continue
        if flush:
            _give_back_evaluations(tree, trace.spans, joined)
        if (oldest := _oldest(tree, trace.spans)) != trace.oldest:
            tables.traces[trace_id] = replace(trace, oldest=oldest)
    joined.calls += sorted(calls, key=_in_time)


def _begin_to_wait(tables: Tables, tree: SpanTree, trace_id: str, now: int) -> None:
    """What came before the first tick is taken to have come with it."""
    trace = tables.traces[trace_id]
    for span_id in trace.spans:
        tree[span_id] = replace(tree[span_id], came=now)
    tables.traces[trace_id] = replace(trace, touched=now, oldest=None if trace.oldest is None else now)


def _add(tree: SpanTree, part: SpanPart, now: int, joined: Joined) -> None:
    node = tree[part.span_id]
    if node.part is not None:
        joined.duplicates += 1
    else:
        tree[part.span_id] = replace(node, part=part, tool=part.call.tool if part.call else None, came=now)


def _evaluate(tree: SpanTree, part: EvaluationPart, joined: Joined) -> None:
    node = tree[part.span_id]
    if node.evaluation is None and node.gone:
        joined.late.append(part)
    elif node.evaluation is None or (not node.used and _is_better(part, node.evaluation)):
        joined.duplicates += node.evaluation is not None
        tree[part.span_id] = replace(node, evaluation=part)
    else:
        joined.duplicates += 1


def _is_better(one: EvaluationPart, other: EvaluationPart) -> bool:
    return one.name.lower() in _BEST_NAMES and other.name.lower() not in _BEST_NAMES


def _ready(tree: SpanTree, spans: Iterable[str]) -> set[str]:
    """The calls that wait for nothing any more."""
    nodes = {span_id: tree[span_id] for span_id in spans}
    if not any(node.evaluation and node.part for node in nodes.values()):
        return set()
    waiting = [span_id for span_id, node in nodes.items() if node.call is not None]
    rewarded = {span_id for span_id in waiting if _evaluated(tree, span_id, ()) is not None}
    if not rewarded:
        return set()
    groups = _groups(tree, [span_id for span_id, node in nodes.items() if node.tool is not None])
    owners = {owner for owner, others in groups.items() if rewarded & {owner, *others}}
    return {owner for owner in owners if tree.is_whole(owner) or all(_said(tree, owner)[1:])}


def _hand_on(tree: SpanTree, spans: Iterable[str], due: set[str], joined: Joined) -> list[ToolCall]:
    """The calls of the due spans. A span of another one's call goes with that one, as a duplicate."""
    if not any(tree[span_id].call for span_id in due):
        return []
    calls = []
    for owner, others in _groups(tree, [span_id for span_id in spans if tree[span_id].tool is not None]).items():
        members = [span_id for span_id in (owner, *others) if tree[span_id].call is not None]
        has_gone = len(members) <= len(others)
        if not members or not (owner in due or (has_gone and due & {*members})):
            continue
        if not has_gone:
            calls.append(_call(tree, owner, others))
        joined.duplicates += len(members) - (not has_gone)
        for span_id in members:
            node = tree[span_id]
            tree[span_id] = replace(node, part=replace(node.part, call=None) if node.part else None)
    return calls


def _groups(tree: SpanTree, tool_spans: list[str]) -> dict[str, list[str]]:
    """The spans of each call: the one whose call it is, and the others."""
    by_head: dict[str, list[str]] = {}
    for span_id in tool_spans:
        by_head.setdefault(tree.head(span_id), []).append(span_id)
    groups = {}
    for head, found in by_head.items():
        members = sorted(found, key=lambda span_id: (tree.started_at(span_id), span_id))
        own = [span_id for span_id in members if not tree[span_id].is_mcp]
        owner = head if head in own or not own else own[0]
        groups[owner] = [span_id for span_id in members if span_id != owner]
    return groups


def _call(tree: SpanTree, owner: str, others: Iterable[str]) -> ToolCall:
    """The owner's call with what the other spans and the spans above add."""
    call = tree[owner].call
    assert call is not None
    for span_id in others:
        if other := tree[span_id].call:
            call = _filled(call, other)
    source, agent_id, model, run_id = _said(tree, owner)
    evaluated = _evaluated(tree, owner, others)
    if evaluated is not None:
        tree[evaluated] = replace(tree[evaluated], used=True)
    evaluation = tree[evaluated].evaluation if evaluated is not None else None
    return replace(
        call,
        source=source or call.source,
        run_id=run_id or call.run_id,
        agent_id=agent_id,
        model=model,
        reward=evaluation.score if evaluation else None,
    )


def _filled(call: ToolCall, other: ToolCall) -> ToolCall:
    """What the call lacks of arguments, outcome and figures, from another span that tells of it."""
    failed = call.status == "error"
    return replace(
        call,
        args=other.args if call.args is None else call.args,
        result=other.result if call.result is None and not failed else call.result,
        error_type=call.error_type or (other.error_type if failed else None),
        error_message=call.error_message or (other.error_message if failed else None),
        call_id=call.call_id or other.call_id,
        chain=call.chain or other.chain,
        token_pair=call.token_pair or other.token_pair,
        labels=other.labels | call.labels,
        metrics=other.metrics | call.metrics,
    )


def _said(tree: SpanTree, span_id: str) -> tuple[str | None, str | None, str | None, str | None]:
    """Source, agent, model and conversation of a span: of each what the nearest says, itself first."""
    source = agent_id = model = run_id = None
    for _, node in tree.upwards(span_id):
        if part := node.part:
            source, agent_id = source or part.source, agent_id or part.agent_id
            model, run_id = model or part.model, run_id or part.run_id
    return source, agent_id, model, run_id


def _evaluated(tree: SpanTree, owner: str, others: Iterable[str]) -> str | None:
    """The span whose evaluation is the call's reward."""
    own = (span_id for span_id in (owner, *others) if tree[span_id].evaluation)
    above = (span_id for span_id, node in tree.upwards(owner) if node.tool is None and node.evaluation)
    return next(own, None) or next(above, None)


def _oldest(tree: SpanTree, spans: Iterable[str]) -> int | None:
    return min((tree[span_id].came for span_id in spans if tree[span_id].call is not None), default=None)


def _forget(tree: SpanTree, spans: Iterable[str], joined: Joined) -> None:
    _give_back_evaluations(tree, spans, joined)
    for span_id in spans:
        del tree[span_id]


def _give_back_evaluations(tree: SpanTree, spans: Iterable[str], joined: Joined) -> None:
    """The evaluations that have become no reward."""
    for span_id in spans:
        node = tree[span_id]
        if node.evaluation is not None and not node.used:
            joined.late.append(node.evaluation)
            tree[span_id] = replace(node, evaluation=None)


def _in_time(call: ToolCall) -> tuple[int, str]:
    return call.started_at or 0, call.event_id
