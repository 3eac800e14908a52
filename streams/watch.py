"""Watch: the metrics of the episodes to drift, and from drift for the worse to doubt in what rests on it."""

from typing import Any

from fluvial.drift.alarm import drift_event
from fluvial.drift.bank import ERROR_RATE, LIMIT, Bank, Counts, DetectorState, config_of
from fluvial.schemas.drift_event import DriftEvent, MetricKey
from fluvial.schemas.episode import Episode, stream_key
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.topics import DRIFT, INSIGHT_OPS, WATCH
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn


class Watch(Hop):
    """One detector a key (tool, chain, token pair, metric); at most `keys` of them in a partition."""

    plan = WATCH

    def __init__(self, broker: str, *, keys: int = LIMIT, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self.keys = keys
        self._banks: dict[int, Bank] = {}

    def on_record(self, turn: Turn, arrival: Arrival[Episode]) -> None:
        episode = arrival.record
        bank = self._bank(turn)
        # What never got a result says nothing of how often the tool fails.
        outcome = {} if episode.status == "unknown" else {ERROR_RATE: 1.0 if episode.status == "error" else 0.0}
        for metric, value in (episode.metrics | outcome).items():
            key = MetricKey(tool=episode.tool, chain=episode.chain, token_pair=episode.token_pair, metric=metric)
            alarm = bank.push(key, value, episode.started_at)
            if alarm is not None:
                _tell(turn, drift_event(key, alarm, config_of(metric).version()))
        turn.count("done")

    def before_commit(self, turn: Turn) -> None:
        bank = self._bank(turn)
        bank.save()
        counts = turn.table("counts", Counts)
        if counts.get("") != bank.counts:
            counts[""] = bank.counts

    def close_partition(self, partition: int) -> None:
        self._banks.pop(partition, None)

    def _bank(self, turn: Turn) -> Bank:
        states = turn.table("detectors", DetectorState)
        bank = self._banks.get(turn.partition)
        if bank is None or bank.states is not states:
            bank = self._banks[turn.partition] = Bank(states, turn.table("counts", Counts).get(""), limit=self.keys)
        return bank


def _tell(turn: Turn, event: DriftEvent) -> None:
    key = event.key
    turn.emit(DRIFT, f"{stream_key(key.tool, key.chain, key.token_pair)}|{key.metric}", event)
    if event.polarity != "degrade":
        return
    op = InsightOp(
        op_id=stable_id("drift", event.event_id),
        op="DOWNVOTE",
        reason="drift",
        actor="watch",
        at=event.detected_at,
        about=key,
        cause=event.event_id,
    )
    turn.emit(INSIGHT_OPS, "", op)
