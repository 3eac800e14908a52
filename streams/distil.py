"""Distil: clusters to operations on insights."""

from fluvial.processors.distil import finish, learn
from fluvial.processors.erase_lessons import erase_evidence
from fluvial.processors.lessons import Chunk, Known, Lessons, Source, Tool
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import DISTIL, INSIGHT_OPS
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn


class Distil(Hop):
    """Tests what is known on every cluster before it learns from it (processors/distil.py)."""

    plan = DISTIL

    def on_record(self, turn: Turn, arrival: Arrival[Cluster]) -> None:
        self._emit(turn, learn(_state(turn), arrival.record))
        turn.count("done")

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        if tick.erase is not None:
            cause = stable_id("erasure", tick.erase, tick.slot)
            erase_evidence(_state(turn), tick.erase, frozenset(tick.erased), cause)
        if tick.flush:
            self._emit(turn, finish(_state(turn)))

    def _emit(self, turn: Turn, ops: list[InsightOp]) -> None:
        for op in map(self.redactor.operation, ops):
            turn.emit(INSIGHT_OPS, op.insight_id, op)


def _state(turn: Turn) -> Lessons:
    return Lessons(
        sources=turn.table("sources", Source),
        tools=turn.table("tools", Tool),
        evidence=turn.table("evidence", Chunk),
        claims=turn.table("claims", Known),
    )
