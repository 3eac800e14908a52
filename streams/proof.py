"""Proof of an erasure: every place that memory has, looked through for what was to be forgotten.

Records, rows and state are read as what they say. Raw bytes of files are searched for ids and names of at least
LEAST_CHARACTERS, since shorter ones stand in any large file by chance (texts may be compressed in them). Ticks are not
counted: they are the orders to forget, and name what.
"""

import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fluvial.processors.erasure import concerns, concerns_letter, mentions, names
from fluvial.processors.lessons import Chunk, unpacked
from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.topics import (
    ALERTS,
    CALL_PARTS,
    CLUSTERS,
    DEAD_LETTERS,
    DRIFT,
    EPISODES,
    FOREIGN_TOPICS,
    HOPS,
    INSIGHT_OPS,
    TOOL_CALLS,
    Topic,
)
from fluvial.settings import Settings
from fluvial.sinks.episodes import EpisodeStore, NoEpisodes
from fluvial.sinks.insights_query import Answer, NoInsights, ask, ask_snapshot
from fluvial.streams.log_reader import LogReader, LogRecord

LEAST_CHARACTERS = 16
MOST_NEEDLES = 64
LOGS = (*FOREIGN_TOPICS, TOOL_CALLS, INSIGHT_OPS)
"""What was published and what was said of it: kept as it is, for as long as the topic's retention says."""
DERIVED = (CALL_PARTS, EPISODES, CLUSTERS, DRIFT, ALERTS)
_OPERATIONS = "SELECT content, claim::VARCHAR, evidence FROM operations"
_INSIGHTS = "SELECT content, claim::VARCHAR, []::VARCHAR[] FROM insights"


@dataclass(frozen=True, slots=True)
class Place:
    """A place that was looked through: how many of its `unit` there are, and in how many it was found.

    `is_log`: the log of what was published, which is not changed.
    """

    name: str
    scanned: int
    unit: str
    found: int
    is_log: bool = False


def event_ids(settings: Settings, erasure: Erasure) -> frozenset[str]:
    """Ids of the stored episodes that an erasure concerns."""
    try:
        store = EpisodeStore.open(settings.episodes)
    except NoEpisodes:
        return frozenset()
    return frozenset(episode.id for episode in store.candidates(erasure) if concerns(episode, erasure))


def look(settings: Settings, reader: LogReader, erasure: Erasure, ids: Set[str]) -> Iterator[Place]:
    """Every place in turn. Raises BrokerAway, TopicMissing."""
    yield from _episodes(settings.episodes, erasure)
    yield from _insights(settings, erasure, ids)
    yield from _bytes(settings, erasure, ids)
    prefix = settings.topic_prefix

    def by_value(record: LogRecord) -> bool:
        return _says(record.value or b"", erasure, ids)

    for plan in HOPS.values():
        yield _state(reader, plan.state_topic, prefix, erasure, ids)
    for topic in DERIVED:
        yield _topic(reader, topic, prefix, by_value)
    yield _topic(reader, DEAD_LETTERS, prefix, lambda record: _is_letter_of(record, erasure))
    for topic in LOGS:
        yield _topic(reader, topic, prefix, by_value)


def _episodes(folder: Path, erasure: Erasure) -> Iterator[Place]:
    try:
        newest = EpisodeStore.open(folder)
    except NoEpisodes:
        yield Place("episode store", 0, "rows", 0)
        return
    yield Place("episode store", newest.count(), "rows", _matching(newest, erasure))
    versions = [_matching(version, erasure) for version in newest.versions()]
    yield Place("episode store: versions", len(versions), "versions", sum(map(bool, versions)))


def _matching(store: EpisodeStore, erasure: Erasure) -> int:
    return sum(concerns(episode, erasure) for episode in store.candidates(erasure))


def _insights(settings: Settings, erasure: Erasure, ids: Set[str]) -> Iterator[Place]:
    keep, snapshot = settings.live_insights.parent, settings.insights

    def live(query: str) -> Answer:
        return ask(query, keep, snapshot)

    for name, asked in (("insight store", live), ("snapshot", lambda query: ask_snapshot(query, snapshot))):
        for table, query in (("insights", _INSIGHTS), ("operations", _OPERATIONS)):
            rows: Sequence[Any] = ()
            with suppress(NoInsights):
                rows = asked(query).rows
            yield Place(f"{name}, {table}", len(rows), "rows", sum(_tells(row, erasure, ids) for row in rows))


def _tells(row: Sequence[Any], erasure: Erasure, ids: Set[str]) -> bool:
    content, claim, evidence = row
    return mentions([content, claim and msgspec.json.decode(claim), evidence], erasure, ids)


def _bytes(settings: Settings, erasure: Erasure, ids: Set[str]) -> Iterator[Place]:
    needles = [text for text in (erasure.value, *sorted(ids)) if len(text) >= LEAST_CHARACTERS][:MOST_NEEDLES]
    wanted = re.compile(b"|".join(re.escape(needle.encode()) for needle in needles)) if needles else None
    keep = settings.live_insights.parent
    for name, files in (
        ("episode store: bytes", _files(settings.episodes)),
        ("insight store: bytes", [*_files(keep), settings.insights]),
        ("workers' logs: bytes", _files(settings.logs)),
    ):
        sizes, found = 0, 0
        for file in files:
            with suppress(FileNotFoundError):  # others tidy up meanwhile
                size, is_there = _search(file, wanted)
                sizes, found = sizes + size, found + is_there
        yield Place(name, sizes, "bytes", found)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []


def _search(file: Path, wanted: re.Pattern[bytes] | None) -> tuple[int, bool]:
    size = file.stat().st_size
    if not size or wanted is None:
        return size, False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return size, wanted.search(whole) is not None


def _topic(reader: LogReader, topic: Topic, prefix: str, is_found: Callable[[LogRecord], bool]) -> Place:
    records = (record for record in _records(reader, topic.named(prefix)) if not record.is_tick)
    scanned, found = 0, 0
    for record in records:
        scanned += 1
        found += is_found(record)
    return Place(topic.name, scanned, "records", found, topic in LOGS)


def _state(reader: LogReader, topic: Topic, prefix: str, erasure: Erasure, ids: Set[str]) -> Place:
    """The last word of every key, as a worker restores it."""
    rows: dict[tuple[int, bytes], bytes | None] = {}
    for record in _records(reader, topic.named(prefix)):
        rows[record.partition.partition, record.key or b""] = record.value
    held = [(key, value) for (_, key), value in rows.items() if value is not None]
    found = sum(_row_says(key, value, erasure, ids) for key, value in held)
    return Place(topic.name, len(held), "rows", found)


def _row_says(key: bytes, value: bytes, erasure: Erasure, ids: Set[str]) -> bool:
    table, _, name = key.decode("utf-8", "replace").partition("\x1f")
    if name in ids or (erasure.what == "run" and name.endswith(f"|{erasure.value}")):
        return True
    if erasure.what == "subject" and names(name, erasure.value):
        return True
    if table == "evidence":
        return mentions(msgspec.to_builtins(unpacked(decode(value, Chunk))), erasure, ids)
    return _says(value, erasure, ids)


def _says(value: bytes, erasure: Erasure, ids: Set[str]) -> bool:
    try:
        return mentions(msgspec.json.decode(value), erasure, ids)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return erasure.value.encode() in value


def _is_letter_of(record: LogRecord, erasure: Erasure) -> bool:
    try:
        return concerns_letter(decode(record.value or b"", DeadLetter), erasure)
    except Undecodable:
        return False


def _records(reader: LogReader, topic: str) -> Iterable[LogRecord]:
    return reader.read(reader.spans(reader.partitions(topic)))
