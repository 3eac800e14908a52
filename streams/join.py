"""Join: parts of tool calls to tool calls, by trace and by session; what has waited long enough goes on as it is."""

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from msgspec import Struct, to_builtins

from fluvial.processors.erasure import mentions
from fluvial.processors.join import Node, Request, Response, Tables, Trace, expire, take
from fluvial.schemas.call_part import CallParts, EvaluationPart
from fluvial.schemas.codec import encode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import JOIN
from fluvial.streams.hand_on import LONGEST_NAME, hand_on
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn

SECOND = 1_000_000
NOWHERE = -1
"""Offset of a letter about a part that has left its record behind."""


class Join(Hop):
    """A record counts as what became of its parts when they came; one that dies later is counted as dead then."""

    plan = JOIN

    def __init__(self, broker: str, *, join_seconds: float = 30.0, mcp_seconds: float = 300.0, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._wait = round(join_seconds * SECOND)
        self._mcp_wait = round(mcp_seconds * SECOND)

    def on_record(self, turn: Turn, arrival: Arrival[CallParts]) -> None:
        parts = arrival.record.parts
        joined = take(_tables(turn), arrival.record, turn.now)
        problems = [problem for call in joined.calls for problem in hand_on(turn, call, self.redactor)]
        late = [part for part in joined.late if part in parts]
        if problems or late:
            named: Arrival[Any] = arrival
            turn.dead_letter(
                replace(named, record=late[0]) if late else arrival, "; ".join([*problems, *map(_late, late)])
            )
        else:
            turn.count("duplicate" if joined.duplicates >= len(parts) else "done")
        for part in joined.late:
            if part not in parts:
                self._put_aside(turn, part, part.trace_id, part.at, _late(part))

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        tables = _tables(turn)
        joined = expire(tables, turn.now, self._wait, self._mcp_wait, tick.flush or tick.erase is not None)
        for call in joined.calls:
            for problem in hand_on(turn, call, self.redactor):
                self._put_aside(turn, call, call.run_id, call.started_at or turn.now, problem)
        for part in joined.late:
            self._put_aside(turn, part, part.trace_id, part.at, _late(part))
        for response in joined.orphans:
            request_id = cut(response.request_id, LONGEST_NAME)
            reason = f"no request {request_id} came in the session: a result alone is no call"
            self._put_aside(turn, response, response.session, response.at, reason)
        if tick.erase is not None:
            _forget(tables, tick.erase)

    def _put_aside(self, turn: Turn, record: Struct, key: str, at: int, reason: str) -> None:
        """A letter for what has waited in vain: its record counts as dead from now on."""
        value = encode(record)
        turn.count("done", -1)
        arrival = Arrival(record, key, self.source, turn.partition, NOWHERE, at, value)
        turn.dead_letter(arrival, reason, id=stable_id("join", turn.partition, turn.progress.slot, value.decode()))


def _late(part: EvaluationPart) -> str:
    name = cut(part.name, LONGEST_NAME)
    return f"the evaluation {name} of span {part.span_id} came after its call had gone on, or its call never came"


def _forget(tables: Tables, erasure: Erasure) -> None:
    """Drop what tells of it. The calls of spans have gone on at this tick, to be forgotten by land."""
    spans = {key for key, node in tables.nodes.items() if mentions(to_builtins(node), erasure, frozenset())}
    traces = {key.partition("/")[0] for key in spans}
    for trace_id in traces & set(tables.traces):
        for span_id in tables.traces[trace_id].spans:
            tables.nodes.pop(f"{trace_id}/{span_id}", None)
        del tables.traces[trace_id]
    halves: tuple[MutableMapping[str, Any], ...] = (tables.requests, tables.responses)
    for table in halves:
        for key in [key for key, half in table.items() if mentions(to_builtins(half), erasure, frozenset())]:
            del table[key]


def _tables(turn: Turn) -> Tables:
    return Tables(
        turn.table("traces", Trace),
        turn.table("nodes", Node),
        turn.table("requests", Request),
        turn.table("responses", Response),
    )
