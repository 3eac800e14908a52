"""Gather: episodes to windows to clusters."""

from typing import Any

from fluvial.processors.erase_windows import erase_rows
from fluvial.processors.window import (
    LANES_KEPT,
    SECOND,
    Carried,
    Lane,
    Pane,
    WindowPlan,
    Windows,
    forget,
    place,
    sweep,
)
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.episode import Episode
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import CLUSTERS, GATHER
from fluvial.streams.hop import Hop
from fluvial.streams.sweep import sweep_is_due
from fluvial.streams.turn import Arrival, Turn


class Gather(Hop):
    """Closes windows by size, by event time and by ticks (processors/window.py)."""

    plan = GATHER

    def __init__(
        self,
        broker: str,
        *,
        window_hours: float = 4.0,
        window_episodes: int = 100,
        window_minimum: int = 3,
        lateness_seconds: float = 600.0,
        **hop: Any,
    ) -> None:
        super().__init__(broker, **hop)
        self._windows = WindowPlan(
            length=round(window_hours * 3_600 * SECOND),
            most=window_episodes,
            fewest=window_minimum,
            lateness=round(lateness_seconds * SECOND),
        )

    def on_record(self, turn: Turn, arrival: Arrival[Episode]) -> None:
        if arrival.record.status == "unknown":
            # Neither success nor failure: there is nothing to learn from it.
            turn.count("done")
            return
        clusters, late = place(_state(turn), self._windows, arrival.record, turn.now)
        turn.count("late" if late else "done")
        _emit(turn, clusters)

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        windows = _state(turn)
        if tick.erased:
            erase_rows(windows, frozenset(tick.erased))
        _emit(turn, sweep(windows, self._windows, tick.at, tick.flush))
        if sweep_is_due(turn, tick, len(windows.lanes), LANES_KEPT):
            _emit(turn, forget(windows, tick.at))


def _state(turn: Turn) -> Windows:
    return Windows(
        lanes=turn.table("lanes", Lane),
        panes=turn.table("panes", Pane),
        rows=turn.table("rows", Row),
        carried=turn.table("carried", Carried),
    )


def _emit(turn: Turn, clusters: list[Cluster]) -> None:
    for cluster in clusters:
        turn.emit(CLUSTERS, cluster.source, cluster)
