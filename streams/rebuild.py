"""Rebuild: everything that is derived from the log made anew in its own place, where a part of it was lost.

It may be interrupted anywhere: what no hop makes again is written to a journal in the data folder first, and while the
journal is there, `fluvial up` does not start and the rebuild begins anew from it.
"""

import os
import shutil
import time
from pathlib import Path

from msgspec import Struct

from fluvial.schemas.codec import decode, encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.topics import ALERTS, DEAD_LETTERS, INSIGHT_OPS
from fluvial.streams.admin import (
    delete_groups,
    delete_topics,
    ensure_topics,
    groups,
    move_group,
    topic_names,
)
from fluvial.streams.log_reader import LogReader, LogRecord, TopicMissing
from fluvial.streams.operators import Copy, copy_of, operators_records
from fluvial.streams.partition import group_of
from fluvial.streams.replay import DERIVED, REPLAYED, send

JOURNAL = "rebuild.json"
STORES = ("episodes", "keep", "insights.duckdb")


class Unfinished(RuntimeError):
    """A rebuild was interrupted."""


class StillRuns(RuntimeError):
    """Somebody works on the river."""


class Journal(Struct, frozen=True):
    """`folder`: where the stores of before are kept, in the data folder; `deliverer`: the group of the webhook."""

    folder: str
    deliverer: str | None
    operations: list[Copy]
    letters: list[Copy]


GONE_SECONDS = 12.0
"""A worker that ended by itself is a member of its group until its session is over (6 s)."""
LOOK_SECONDS = 0.5


def refuse_unfinished(data: Path) -> None:
    """Raises Unfinished."""
    if (data / JOURNAL).is_file():
        raise Unfinished(
            f"A rebuild of {data} was interrupted: run `fluvial replay --from-log --in-place` again, it begins anew."
        )


def begin(broker: str, prefix: str, data: Path) -> Journal:
    """Take away what is derived, and put in what no hop makes again; the hops may run then.

    Raises StillRuns while a group of the river has members, BrokerAway, KafkaError, OSError.
    """
    names = [group_of(plan, prefix) for plan in REPLAYED]
    deadline = time.monotonic() + GONE_SECONDS
    while members := {name for name, count in groups(broker, prefix).items() if name in names and count}:
        if time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            continue
        working = ", ".join(sorted(members))
        raise StillRuns(f"Workers still run ({working}): stop every `fluvial up` of this river first.")
    journal = _journal(broker, prefix, data)
    for name in STORES:
        _put_aside(data / name, data / journal.folder / name)
    derived = {topic.named(prefix) for topic in DERIVED}
    delete_topics(broker, sorted(derived & topic_names(broker)))
    delete_groups(broker, names)
    ensure_topics(broker, DERIVED, prefix)
    send(broker, INSIGHT_OPS.named(prefix), journal.operations)
    send(broker, DEAD_LETTERS.named(prefix), journal.letters)
    return journal


def end(broker: str, prefix: str, data: Path, journal: Journal) -> None:
    """The hops have come to their end. Alerts of the past are not delivered again."""
    if journal.deliverer:
        with LogReader(broker) as reader:
            spans = reader.spans(reader.partitions(ALERTS.named(prefix)))
        move_group(broker, journal.deliverer, {tp: last for tp, (_, last) in spans.items()})
    (data / JOURNAL).unlink()


def _journal(broker: str, prefix: str, data: Path) -> Journal:
    path = data / JOURNAL
    if path.is_file():
        return decode(path.read_bytes(), Journal)
    with LogReader(broker) as reader:
        try:
            operations = list(operators_records(reader, prefix))
        except TopicMissing:
            operations = []
        try:
            spans = reader.spans(reader.partitions(DEAD_LETTERS.named(prefix)))
            letters = [copy_of(record) for record in reader.read(spans) if _is_kept(record)]
        except TopicMissing:
            letters = []
    deliverer = f"{prefix}fluvial-deliver"
    journal = Journal(
        folder=time.strftime("before-%Y%m%d-%H%M%S", time.gmtime()),
        deliverer=deliverer if deliverer in groups(broker, deliverer) else None,
        operations=operations,
        letters=letters,
    )
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(encode(journal))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(data, os.O_RDONLY)
    try:
        os.fsync(folder)  # topics are deleted next: after a power cut the journal alone has what was in them
    finally:
        os.close(folder)
    return journal


def _is_kept(record: LogRecord) -> bool:
    """Whether the letter is of somebody whose records are not read again."""
    return not record.is_tick and decode(record.value or b"", DeadLetter).hop not in {plan.name for plan in REPLAYED}


def _put_aside(store: Path, kept: Path) -> None:
    """Keep what was there before; what an interrupted rebuild has begun is thrown away."""
    if not store.exists():
        return
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        store.rename(kept)
    elif store.is_dir():
        shutil.rmtree(store)
    else:
        store.unlink()
