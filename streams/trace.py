"""Trace: every station of one event, from the log to the lessons that it speaks for or against.

Where an index has the answer it is asked: the episode knows its place in `tool-calls`, the insights' store knows which
operations name an event. Of topics only what came after the event is read, up to what is sought.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from kafka import TopicPartition

from fluvial.processors.claims import side
from fluvial.schemas.alert import Alert
from fluvial.schemas.claim import Claim
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.episode import Episode, stream_key
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import (
    ALERTS,
    CLUSTERS,
    DEAD_LETTERS,
    DRIFT,
    INSIGHT_OPS,
    KEEP,
    LAND,
    TOOL_CALLS,
    WATCH,
    HopPlan,
    Topic,
)
from fluvial.streams.gathering import gathering
from fluvial.streams.log_reader import LogReader, LogRecord, Span, decoded
from fluvial.streams.progress import marks
from fluvial.streams.witness import Station, Stores, Touch

T = TypeVar("T")

AROUND = 3_600_000_000
"""How far a drift may be from the event to be told with it, in microseconds of event time."""
CLOCKS = 60_000_000
"""How far the clocks of the machines that write the log may be apart, in microseconds."""


class Trace:
    """What became of events. It only reads."""

    def __init__(self, reader: LogReader, stores: Stores, prefix: str = "") -> None:
        self._reader = reader
        self._stores = stores
        self._prefix = prefix

    def stations(self, event_id: str) -> Iterator[Station]:
        """The stations in the river's order; none for an event that nobody knows. Raises BrokerAway, TopicMissing."""
        episode = self._stores.episode(event_id)
        if episode is not None:
            yield from self.landed([episode])[episode.id]
            return
        letters = [one for one in self._naming(event_id, DEAD_LETTERS, DeadLetter) if one.event_id == event_id]
        published = self._published(event_id, letters)
        if published is not None:
            yield _place(published)
        yield from map(_dead, letters)
        if published is not None and not letters:
            came_to = self._came_to()[published.partition]
            yield {"station": "waiting" if published.offset >= came_to else "handled", "hop": LAND.name}

    def knows(self, event_id: str) -> bool:
        """Whether an event of this id has landed."""
        return self._stores.episode(event_id) is not None

    def calls(self, name: str, limit: int) -> list[Episode]:
        """The landed calls of a run id or call id, at most so many, in the order of their time."""
        return self._stores.calls(name, limit)

    def died(self, run_id: str) -> Iterator[Station]:
        """The dead letters of a run."""
        for letter in self._naming(run_id, DEAD_LETTERS, DeadLetter):
            if letter.key.partition("|")[2] == run_id:
                yield _dead(letter) | {"event_id": letter.event_id}

    def landed(self, episodes: Sequence[Episode]) -> dict[str, list[Station]]:
        """The stations of landed calls, by event id. One look at each topic, however many calls they are."""
        found: dict[str, list[Station]] = {episode.id: [] for episode in episodes}
        records = self._records_of(episodes)
        for episode in episodes:
            if record := records.get(episode.id):
                found[episode.id].append(_place(record))
        since = min((record.time for record in records.values()), default=CLOCKS) - CLOCKS
        for letter in self._naming("", DEAD_LETTERS, DeadLetter, since):
            if letter.event_id in found:
                found[letter.event_id].append(_dead(letter))
        watched_until = self._time_of(WATCH)
        for episode in episodes:
            record = records.get(episode.id)
            seen = record is None or record.time <= watched_until
            found[episode.id] += [
                _station("landed", episode, *_OF_EPISODE),
                _watched(episode) if seen else {"station": "waiting", "hop": WATCH.name},
            ]
        clusters = self._clusters(set(found), since)
        for name, told in self._windows(set(found), clusters).items():
            found[name].append(told)
        touches = self._touches(list(found), clusters.values(), since)
        tools = {episode.tool for episode in episodes}
        drifts = {tool: list(self._naming(tool, DRIFT, DriftEvent)) for tool in tools}
        alerts = {tool: list(self._naming(tool, ALERTS, Alert)) for tool in tools if drifts[tool]}
        for episode in episodes:
            found[episode.id] += self._lessons(episode, clusters.get(episode.id), touches)
            found[episode.id] += _drift(episode, drifts[episode.tool], alerts.get(episode.tool, ()))
        return found

    # Publishing

    def _records_of(self, episodes: Iterable[Episode]) -> dict[str, LogRecord]:
        topic = TOOL_CALLS.named(self._prefix)
        places = {(TopicPartition(topic, one.log_partition), one.log_offset): one.id for one in episodes}
        return {places[record.partition, record.offset]: record for record in self._reader.at(places)}

    def _published(self, event_id: str, letters: Iterable[DeadLetter]) -> LogRecord | None:
        """The record in tool-calls: where a dead letter says, else looked for, first ahead of land."""
        topic = TOOL_CALLS.named(self._prefix)
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

    def _time_of(self, plan: HopPlan) -> int:
        """The time that a hop has come to in all its partitions."""
        return min(mark.progress.at for mark in marks(self._reader, [plan], self._prefix).values())

    # Learning

    def _clusters(self, wanted: set[str], since: int) -> dict[str, Cluster]:
        """The cluster of each event that has one; the topic is read up to the last of them."""
        found: dict[str, Cluster] = {}
        needles = {name: _needle(name) for name in wanted}
        spans = self._reader.since(self._reader.partitions(CLUSTERS.named(self._prefix)), since)
        for record in self._reader.read(spans):
            named = [name for name, needle in needles.items() if needle in (record.value or b"")]
            for cluster in decoded([record], Cluster) if named else ():
                members = {row.event_id for row in cluster.rows}
                found |= dict.fromkeys(members & set(named), cluster)
            if len(found) == len(wanted):
                break
        return found

    def _windows(self, wanted: set[str], clusters: dict[str, Cluster]) -> dict[str, Station]:
        told: dict[str, Station] = {}
        for name, cluster in clusters.items():
            count = {"n": len(cluster.rows), "failures": sum(row.failed for row in cluster.rows)}
            told[name] = _station("clustered", cluster, "id", "source", "tool", "window_start", "window_end") | count
        left = wanted - set(clusters)
        for name, pane in gathering(self._reader, left, self._prefix).items() if left else ():
            told[name] = _station("gathering", pane, "tool", "n") | {"window_start": pane.start, "window_end": pane.end}
        return told

    def _touches(self, event_ids: Sequence[str], clusters: Iterable[Cluster], since: int) -> list[Touch]:
        """From the store, and from the log what is not kept yet (all of it since the event where there is no store)."""
        causes = [cluster.id for cluster in clusters]
        kept = self._stores.touches(event_ids, causes)
        spans = self._reader.since(self._reader.partitions(INSIGHT_OPS.named(self._prefix)), since)
        if kept is not None:
            resume = marks(self._reader, [KEEP], self._prefix)[KEEP.name, 0].progress.resume
            spans = {tp: (max(first, resume), end) for tp, (first, end) in spans.items()}
        touches = {touch.op_id: touch for touch in kept or ()}
        for op in decoded(self._reader.read(spans), InsightOp):
            names = frozenset(event_ids) & set(op.evidence)
            if names or op.cause in causes:
                touches.setdefault(op.op_id, Touch(op.op_id, op.op, op.reason, op.insight_id, op.cause, names))
        return list(touches.values())

    def _lessons(self, episode: Episode, cluster: Cluster | None, touches: Iterable[Touch]) -> Iterator[Station]:
        """Insights that name the call as evidence, and claims that it was a prediction for, as they stand now."""
        named: dict[str, list[str]] = {}
        votes: dict[str, str] = {}
        for touch in touches:
            names = episode.id in touch.names
            if touch.reason != "prediction":
                if names:
                    named.setdefault(touch.insight_id, []).append(touch.op)
            elif names or (cluster is not None and touch.cause == cluster.id):
                votes.setdefault(touch.insight_id, touch.op)
        claims = {one.insight_id: one for one in self._stores.claims(episode.source)}
        place = (episode.tool, episode.chain, episode.token_pair, episode.features)
        about = {name for name, one in claims.items() if side(one.claim, *place)}
        before = {name for name in about if claims[name].found_at < episode.started_at}
        predicted = sorted(before | {name for name in votes if name in about or name not in claims})
        kept = self._stores.insights([*named, *predicted]) if named or predicted else {}
        for name, ops in named.items():
            yield {"station": "learnt", "id": name, **kept.get(name, {"state": "not kept yet"}), "evidence_for": ops}
        for name in predicted:
            known = kept.get(name, {"state": "not kept yet"})
            expected = _expected(claims[name].claim) if name in claims else None
            yield {"station": "predicted", "id": name, **known, "expected": expected, "vote": votes.get(name)}

    def _naming(self, text: str, topic: Topic, kind: type[T], since: int = 0) -> Iterator[T]:
        """The records of a topic, of that Kafka time on, in whose bytes the text stands."""
        needle = _needle(text)
        partitions = self._reader.partitions(topic.named(self._prefix))
        records = self._reader.read(self._reader.since(partitions, since))
        return decoded((record for record in records if needle in (record.value or b"")), kind)


def _drift(episode: Episode, drifts: Iterable[DriftEvent], alerts: Iterable[Alert]) -> Iterator[Station]:
    """The drifts of the event's key around its time, and what was told of them."""
    found = set()
    for drift in drifts:
        key, change = drift.key, drift.change_time
        same_key = (key.tool, key.chain, key.token_pair) == (episode.tool, episode.chain, episode.token_pair)
        if same_key and change.lo - AROUND <= episode.started_at <= drift.detected_at + AROUND:
            found.add(drift.event_id)
            fields = _fields(drift, "direction", "polarity", "severity", "detected_at")
            levels = {"before": drift.before.mean, "after": drift.after.mean, "changed_at": change.est}
            yield {"station": "drifted", "id": drift.event_id, "metric": key.metric, **levels, **fields}
    for alert in alerts:
        if alert.drift.event_id in found:
            fields = _fields(alert, "severity", "summary", "at")
            yield {"station": "alerted", "id": alert.alert_id, "drift": alert.drift.event_id, **fields}


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


def _needle(text: str) -> bytes:
    """The text as it stands in JSON."""
    return msgspec.json.encode(text)[1:-1]


def _place(record: LogRecord) -> Station:
    where = record.partition
    place = {"topic": where.topic, "partition": where.partition, "offset": record.offset}
    return {"station": "published", **place, "time": record.time}


def _dead(letter: DeadLetter) -> Station:
    return _station("dead letter", letter, "id", "hop", "reason", "topic", "partition", "offset", "at")


def _watched(episode: Episode) -> Station:
    """Every metric of a call has a detector of its own, under the call's tool, chain and pair."""
    key = stream_key(episode.tool, episode.chain, episode.token_pair)
    outcome = {} if episode.status == "unknown" else {"error_rate": 1.0 if episode.status == "error" else 0.0}
    return {"station": "watched", "key": key, "metrics": episode.metrics | outcome}


def _expected(claim: Claim) -> str:
    return "more failures" if claim.expected >= claim.reference else "fewer failures"


def _station(name: str, record: object, *fields: str) -> Station:
    return {"station": name, **_fields(record, *fields)}


def _fields(record: object, *fields: str) -> Station:
    """Those of the fields that have a value."""
    return {field: value for field in fields if (value := getattr(record, field)) is not None}
