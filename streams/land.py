"""Land: tool calls to episodes: checked, redacted, put into words, embedded, stored, and sent on with their context.

The store comes before the transaction and takes an id once. The log position that a row carries tells what a repeated
call is: the row of this very position is our own earlier attempt, one of another position makes the call a duplicate.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fluvial.processors.decay import importance
from fluvial.processors.embed import MODEL_ID, Embedder
from fluvial.processors.features import features
from fluvial.processors.redact import redact
from fluvial.processors.reflect import reflect
from fluvial.processors.run_context import NEW_RUN, RunState, idle_runs, step
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode, stream_key
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import EPISODES, LAND
from fluvial.sinks.episodes import EpisodeStore, Position
from fluvial.streams.hop import Hop, Item
from fluvial.streams.turn import Arrival, Turn

RUNS_KEPT = 20_000
"""Runs whose context a partition keeps, and how long after their last call (microseconds of tick time)."""
RUN_IDLE = 7 * 86_400 * 1_000_000
SWEEP = 3_600 * 1_000_000
"""Idle runs are looked for once in so many microseconds of tick time."""


class Unusable(ValueError):
    """A call that is well formed and still cannot be landed; the message says why."""


class Land(Hop):
    """One row an event id in the store, one episode in the topic; the first call of an id wins."""

    plan = LAND

    def __init__(self, broker: str, *, episodes: Path, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._folder = episodes

    async def on_start(self) -> None:
        self._store = await asyncio.to_thread(EpisodeStore.create, self._folder)
        self._embedder = await asyncio.to_thread(Embedder)
        await super().on_start()

    async def stored_progress(self, partition: int) -> Progress | None:
        """The beginning where the store has nothing of this partition, so that an emptied store is filled again."""
        return None if await asyncio.to_thread(self._store.has_partition, partition) else Progress(resume=0)

    async def handle(self, turn: Turn, items: Sequence[Item]) -> None:
        arrivals = [item for item in items if isinstance(item, Arrival)]
        if arrivals:
            await asyncio.to_thread(self._land, turn, arrivals)
        if items and isinstance(items[-1], Tick):
            await asyncio.to_thread(self._tick, turn, items[-1])

    def _land(self, turn: Turn, arrivals: Sequence[Arrival[ToolCall]]) -> None:
        usable: list[tuple[Arrival[ToolCall], ToolCall, int]] = []
        for arrival in arrivals:
            try:
                usable.append((arrival, *_prepared(arrival)))
            except Unusable as error:
                turn.dead_letter(arrival, str(error))
        runs = turn.table("runs", RunState)
        episodes: list[Episode] = []
        known = self._store.positions(call.event_id for _, call, _ in usable)
        for arrival, call, redactions in usable:
            if known.setdefault(call.event_id, _place(arrival)) != _place(arrival):
                turn.count("duplicate")
                continue
            run = arrival.key or f"{call.source}|{call.run_id}"
            before = runs.get(run, NEW_RUN)
            context, runs[run] = step(before, call, turn.now)
            text, source = reflect(call)
            episodes.append(
                Episode(
                    id=call.event_id,
                    source=call.source,
                    run_id=call.run_id,
                    tool=call.tool,
                    status=call.status,
                    started_at=call.started_at or 0,
                    text=text,
                    reflection_source=source,
                    embedding_model=MODEL_ID,
                    log_partition=arrival.partition,
                    log_offset=arrival.offset,
                    ended_at=call.ended_at,
                    time_given=arrival.record.started_at is not None,
                    task_id=call.task_id,
                    agent_id=call.agent_id,
                    model=call.model,
                    seq=call.seq,
                    call_id=call.call_id,
                    error_type=call.error_type,
                    error_message=call.error_message,
                    chain=call.chain,
                    token_pair=call.token_pair,
                    labels=call.labels,
                    metrics=call.metrics,
                    reward=call.reward,
                    args_json=encode(call.args).decode(),
                    outcome_json=encode(call.result).decode(),
                    importance=importance(call.metrics.get("pnl_bps", 0.0), 0),
                    redactions=redactions,
                    taint=1.0 - call.source_trust,
                    context=context,
                    features=features(call, context, before),
                )
            )
        self._merge(turn, episodes)
        for episode in episodes:
            turn.emit(EPISODES, stream_key(episode.tool, episode.chain, episode.token_pair), episode)

    def _merge(self, turn: Turn, episodes: list[Episode]) -> None:
        """Make the episodes durable; those whose id another partition has taken in between leave the list."""
        if not episodes:
            return
        self._store.merge(episodes, self._embedder.embed([episode.text for episode in episodes]))
        stored = self._store.positions(episode.id for episode in episodes)
        lost = [episode for episode in episodes if stored[episode.id] != (episode.log_partition, episode.log_offset)]
        for episode in lost:
            episodes.remove(episode)
            turn.count("duplicate")

    def _tick(self, turn: Turn, tick: Tick) -> None:
        swept = turn.table("swept", int)
        if tick.at - swept.get("", 0) >= SWEEP:
            swept[""] = tick.at
            runs = turn.table("runs", RunState)
            for run in idle_runs({name: runs[name].touched for name in runs}, tick.at, RUN_IDLE, RUNS_KEPT):
                del runs[run]
        if turn.partition == 0:
            self._store.maintain()


def _place(arrival: Arrival[Any]) -> Position:
    return arrival.partition, arrival.offset


def _prepared(arrival: Arrival[ToolCall]) -> tuple[ToolCall, int]:
    """The call with its id and time, redacted, and the number of redactions. Raises Unusable."""
    call = arrival.record
    if not call.tool.strip():
        raise Unusable("the name of the tool is blank: give the tool that was called")
    if call.started_at is not None and call.ended_at is not None and call.ended_at < call.started_at:
        raise Unusable("the call ends before it starts: check started_at and ended_at (microseconds UTC)")
    try:
        event_id = event_id_of(call)
        call, redactions = redact(call)
        encode(call)
    except RecursionError as error:
        raise Unusable("arguments or result are nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise Unusable(f"the call cannot be written as JSON: {error}") from error
    started_at = arrival.timestamp if call.started_at is None else call.started_at
    return replace(call, event_id=event_id, started_at=started_at), redactions
