"""Trace: every station of one event, from the log to the lessons that name it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from kafka import TopicPartition

from fluvial.schemas.alert import Alert
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import ALERTS, CLUSTERS, DEAD_LETTERS, DRIFT, INSIGHT_OPS, LAND, TOOL_CALLS, Topic
from fluvial.streams.log_reader import LogReader, LogRecord, Span, decoded
from fluvial.streams.progress import marks

T = TypeVar("T")

AROUND = 3_600_000_000
"""How far a drift may be from the event to be told with it, in microseconds of event time."""
CLOCKS = 60_000_000
"""How far the clocks of the machines that write the log may be apart, in microseconds."""

Station = dict[str, Any]
"""`station` says which; the other fields are those of what stands there, times in microseconds UTC."""


FindEpisode = Callable[[str], Episode | None]
"""The episode of this id in the store."""
FindInsights = Callable[[Sequence[str]], dict[str, Station]]
"""Content, category, state and confidence of those of these insights that the store has, by id."""


class Trace:
    """What became of one event. It only reads."""

    def __init__(
        self, reader: LogReader, find_episode: FindEpisode, find_insights: FindInsights, prefix: str = ""
    ) -> None:
        self._reader = reader
        self._find_episode = find_episode
        self._find_insights = find_insights
        self._prefix = prefix

    def stations(self, event_id: str) -> Iterator[Station]:
        """The stations in the river's order; none for an event that nobody knows. Raises BrokerAway, TopicMissing."""
        episode = self._find_episode(event_id)
        letters = [one for one in self._naming(event_id, DEAD_LETTERS, DeadLetter) if one.event_id == event_id]
        published = self._published(event_id, episode, letters)
        if published is not None:
            where = published.partition
            place = {"topic": where.topic, "partition": where.partition, "offset": published.offset}
            yield {"station": "published", **place, "time": published.time}
        for letter in letters:
            yield _station("dead letter", letter, "id", "hop", "reason", "topic", "partition", "offset", "at")
        if episode is not None:
            yield _station("landed", episode, *_OF_EPISODE)
            since = published.time - CLOCKS if published is not None else 0
            yield from self._clusters(event_id, since)
            yield from self._lessons(event_id, since)
            yield from self._drift(episode)
        elif published is not None and not letters:
            came_to = self._came_to()[published.partition]
            yield {"station": "waiting" if published.offset >= came_to else "handled", "hop": LAND.name}

    def _published(self, event_id: str, episode: Episode | None, letters: Iterable[DeadLetter]) -> LogRecord | None:
        """The record in tool-calls: where the episode or a dead letter says, else looked for, first ahead of land."""
        topic = TOOL_CALLS.named(self._prefix)
        if episode is not None:
            return next(self._reader.at([(TopicPartition(topic, episode.log_partition), episode.log_offset)]), None)
        for letter in letters:
            if letter.topic == topic:
                return next(self._reader.at([(TopicPartition(topic, letter.partition), letter.offset)]), None)
        came_to = self._came_to()
        whole = self._reader.spans(came_to)
        ahead = {tp: (came_to[tp], end) for tp, (_, end) in whole.items()}
        behind = {tp: (first, min(came_to[tp], end)) for tp, (first, end) in whole.items()}
        return self._find(event_id, ahead) or self._find(event_id, behind)

    def _find(self, event_id: str, spans: dict[TopicPartition, Span]) -> LogRecord | None:
        for record in self._reader.read(spans):
            if any(event_id_of(call) == event_id for call in decoded([record], ToolCall)):
                return record
        return None

    def _came_to(self) -> dict[TopicPartition, int]:
        """The offset of tool-calls from which land goes on, in each partition."""
        topic = TOOL_CALLS.named(self._prefix)
        known = marks(self._reader, [LAND], self._prefix)
        return {TopicPartition(topic, number): mark.progress.resume for (_, number), mark in known.items()}

    def _clusters(self, event_id: str, since: int) -> Iterator[Station]:
        for cluster in self._naming(event_id, CLUSTERS, Cluster, since):
            if any(row.event_id == event_id for row in cluster.rows):
                count = {"n": len(cluster.rows), "failures": sum(row.failed for row in cluster.rows)}
                yield _station("clustered", cluster, "id", "source", "tool", "window_start", "window_end") | count

    def _lessons(self, event_id: str, since: int) -> Iterator[Station]:
        """Every insight that names the event as evidence, as it stands now, and the operations that do."""
        named: dict[str, list[str]] = {}
        for op in self._naming(event_id, INSIGHT_OPS, InsightOp, since):
            if event_id in op.evidence:
                named.setdefault(op.insight_id, []).append(op.op)
        kept = self._find_insights(list(named)) if named else {}
        for insight_id, ops in named.items():
            known = kept.get(insight_id, {"state": "not kept yet"})
            yield {"station": "learnt", "id": insight_id, **known, "evidence_for": ops}

    def _drift(self, episode: Episode) -> Iterator[Station]:
        """The drifts of the event's key around its time, and what was told of them."""
        found = set()
        for drift in self._naming(episode.tool, DRIFT, DriftEvent):
            key, change = drift.key, drift.change_time
            same_key = (key.tool, key.chain, key.token_pair) == (episode.tool, episode.chain, episode.token_pair)
            if same_key and change.lo - AROUND <= episode.started_at <= drift.detected_at + AROUND:
                found.add(drift.event_id)
                fields = _fields(drift, "direction", "polarity", "severity", "detected_at")
                levels = {"before": drift.before.mean, "after": drift.after.mean, "changed_at": change.est}
                yield {"station": "drifted", "id": drift.event_id, "metric": key.metric, **levels, **fields}
        for alert in self._naming(episode.tool, ALERTS, Alert) if found else ():
            if alert.drift.event_id in found:
                fields = _fields(alert, "severity", "summary", "at")
                yield {"station": "alerted", "id": alert.alert_id, "drift": alert.drift.event_id, **fields}

    def _naming(self, text: str, topic: Topic, kind: type[T], since: int = 0) -> Iterator[T]:
        """The records of a topic, of that Kafka time on, in whose bytes the text stands."""
        needle = msgspec.json.encode(text)[1:-1]
        partitions = self._reader.partitions(topic.named(self._prefix))
        records = self._reader.read(self._reader.since(partitions, since))
        return decoded((record for record in records if needle in (record.value or b"")), kind)


_OF_EPISODE = (
    "id",
    "source",
    "run_id",
    "tool",
    "chain",
    "token_pair",
    "status",
    "error_type",
    "started_at",
    "text",
    "reflection_source",
    "redactions",
)


def _station(name: str, record: object, *fields: str) -> Station:
    return {"station": name, **_fields(record, *fields)}


def _fields(record: object, *fields: str) -> Station:
    """Those of the fields that have a value."""
    return {field: value for field in fields if (value := getattr(record, field)) is not None}
