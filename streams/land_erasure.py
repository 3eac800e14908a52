"""Forgetting in land: what the store has of an erasure is found at its tick, and deleted once that is committed.

The transaction of the tick takes the ids along and remembers, as hashes, what was forgotten and where it stands. Only a
later turn deletes the rows: whoever dies in between finds the order in the state and carries it out. What is found thus
depends on the log alone, and the same events published again are known by their hashes.
"""

from fluvial.processors.erasure import concerns
from fluvial.processors.run_context import RunState
from fluvial.schemas.codec import encode
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tick import Tick
from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams.life import Life
from fluvial.streams.state import Table
from fluvial.streams.turn import Turn

MOST_BYTES = 524_288
"""Of the ids that one tick takes along from a partition: those of all partitions go on in one record."""


def is_forgotten(turn: Turn, event_id: str) -> bool:
    """Whether an event of this id has been forgotten in this partition."""
    return stable_id(event_id) in _forgotten(turn)


def forget(turn: Turn, tick: Tick, store: EpisodeStore) -> None:
    """Find what the tick's erasure concerns, as far as one tick can carry it: the oldest first."""
    if tick.erase is None:
        return
    forgotten, runs = _forgotten(turn), turn.table("runs", RunState)
    found = [
        (episode.log_offset, episode.id, f"{episode.source}|{episode.run_id}")
        for episode in store.candidates(tick.erase, turn.partition, turn.progress.resume)
        if stable_id(episode.id) not in forgotten and concerns(episode, tick.erase)
    ]
    size, offsets = 0, set()
    for offset, event_id, run in sorted(found):
        size += len(encode(event_id)) + 1
        if size > MOST_BYTES:
            break
        turn.erased.append(event_id)
        forgotten[stable_id(event_id)] = tick.slot
        offsets.add(offset)
        runs.pop(run, None)
    if tick.erase.what == "run":
        for run in [run for run in runs if run.endswith(f"|{tick.erase.value}")]:
            del runs[run]
    if offsets:
        _to_delete(turn)[str(tick.slot)] = tuple(sorted(offsets))


def carry_out(turn: Turn, store: EpisodeStore, life: Life) -> None:
    """Delete from the store what earlier turns have forgotten."""
    waiting, forgotten = _to_delete(turn), _forgotten(turn)
    for slot in [slot for slot in waiting if int(slot) <= turn.began]:
        there = store.ids_at(turn.partition, waiting[slot])
        with life.patient():
            store.erase(turn.partition, [event_id for event_id in there if stable_id(event_id) in forgotten])
        del waiting[slot]


def _forgotten(turn: Turn) -> Table[int]:
    """Hash of an event's id -> slot of the tick."""
    return turn.table("forgotten", int)


def _to_delete(turn: Turn) -> Table[tuple[int, ...]]:
    """Slot -> offsets in `tool-calls` of rows that the store still has."""
    return turn.table("to-delete", tuple[int, ...])
