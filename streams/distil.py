"""Distil: clusters to operations on insights."""

from fluvial.processors.distil import finish, learn
from fluvial.processors.lessons import Chunk, Known, Lessons, Source, Tool
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import DISTIL, INSIGHT_OPS
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn


class Distil(Hop):
    """Tests what is known on every cluster before it learns from it (processors/distil.py)."""

    plan = DISTIL

    def on_record(self, turn: Turn, arrival: Arrival[Cluster]) -> None:
        _emit(turn, learn(_state(turn), arrival.record))
        turn.count("done")

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        if tick.flush:
            _emit(turn, finish(_state(turn)))


def _state(turn: Turn) -> Lessons:
    return Lessons(
        sources=turn.table("sources", Source),
        tools=turn.table("tools", Tool),
        evidence=turn.table("evidence", Chunk),
        claims=turn.table("claims", Known),
    )


def _emit(turn: Turn, ops: list[InsightOp]) -> None:
    for op in ops:
        turn.emit(INSIGHT_OPS, op.insight_id, op)
