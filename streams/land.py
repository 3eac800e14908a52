"""Land: tool calls to episodes: checked, redacted, put into words, embedded, stored, and sent on with their context.

The store comes before the transaction and takes an id once. The log position that a row carries tells what a repeated
call is: the row of this very position is our own earlier attempt, one of another position makes the call a duplicate.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from aiokafka import ConsumerRecord
from msgspec.structs import replace

from fluvial.processors.decay import importance
from fluvial.processors.embed import MODEL_ID, Embedder
from fluvial.processors.features import features
from fluvial.processors.idle import idle
from fluvial.processors.redact import Redactor, count_marks
from fluvial.processors.reflect import reflect
from fluvial.processors.run_context import NEW_RUN, RunState, step
from fluvial.processors.validate import problem_of
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode, stream_key
from fluvial.schemas.formats.message import Map
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import EPISODES, LAND
from fluvial.sinks.episodes import EpisodeStore, Position
from fluvial.streams.handling import Item
from fluvial.streams.hop import Hop
from fluvial.streams.land_erasure import carry_out, forget, is_forgotten
from fluvial.streams.receive import call_of
from fluvial.streams.sweep import sweep_is_due
from fluvial.streams.turn import Arrival, Turn

log = structlog.get_logger(__name__)

RUNS_KEPT = 5_000
"""Runs whose context a partition keeps; a sweep cuts down to them, and comes at the latest at twice as many."""
RUN_IDLE = 7 * 86_400 * 1_000_000
"""How long a run's context is kept after its last call, microseconds of tick time."""
LONGEST_SENT = 32_768
"""Characters of arguments and of outcome that go on in the topic; the store has them whole."""


class Landing(NamedTuple):
    """A call that can land: redacted, with its id, from its place in the log."""

    call: ToolCall
    partition: int
    offset: int
    timestamp: int

    @property
    def position(self) -> Position:
        return self.partition, self.offset


class Land(Hop):
    """One row an event id in the store, one episode in the topic; the first call of an id wins."""

    plan = LAND

    def __init__(self, broker: str, *, episodes: Path, mapping: Map | None = None, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._folder = episodes
        self._mapping = mapping
        self._maintenance: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Open the store and load the model. Raises ModelUnusable, OSError."""
        self._store = EpisodeStore.create(self._folder)
        self._embedder = Embedder()

    async def on_start(self) -> None:
        await asyncio.to_thread(self.load)
        await super().on_start()

    async def on_stop(self) -> None:
        await super().on_stop()
        if self._maintenance is not None:
            await self._maintenance

    def record_of(self, message: ConsumerRecord) -> ToolCall:
        return call_of(message, self._mapping)

    async def stored_progress(self, partition: int, known: Progress) -> Progress | None:
        """The beginning where the store has lost what this partition has landed: it is filled again."""
        if known.emitted == 0 or await asyncio.to_thread(self._store.has_partition, partition):
            return None
        return Progress(resume=0)

    async def handle(self, turn: Turn, items: Sequence[Item]) -> None:
        arrivals = [item for item in items if isinstance(item, Arrival)]
        if arrivals:
            await asyncio.to_thread(self._land, turn, arrivals)
        if items and isinstance(items[-1], Tick):
            await asyncio.to_thread(self._forget, turn, items[-1])
            self._maintain_if_owner(turn.partition)

    def _land(self, turn: Turn, arrivals: Sequence[Arrival[ToolCall]]) -> None:
        usable = _not_forgotten(turn, list(_usable(turn, arrivals, self.redactor, self.life.beat)))
        stored = self._store.positions(landing.call.event_id for landing in usable)
        landings = _firsts(turn, usable, stored)
        runs = turn.table("runs", RunState)
        episodes, changed = _episodes(landings, runs, turn.now)
        new = [episode for episode in episodes if episode.id not in stored]
        if new and self._store.merge(new, self._embedder.embed([one.text for one in new], self.life.beat)) < len(new):
            # Another partition has taken some of these ids since we looked.
            landings = _firsts(turn, landings, self._store.positions(one.id for one in episodes))
            episodes, changed = _episodes(landings, runs, turn.now)
        runs.update(changed)
        turn.count("done", len(episodes))
        for episode in episodes:
            turn.emit(EPISODES, stream_key(episode.tool, episode.chain, episode.token_pair), _to_send(episode))

    def _forget(self, turn: Turn, tick: Tick) -> None:
        carry_out(turn, self._store, self.life)
        forget(turn, tick, self._store)
        _forget_idle_runs(turn, tick)

    def _maintain_if_owner(self, partition: int) -> None:
        """One worker looks after the store, beside its work: the one that has the first partition."""
        if partition == 0 and (self._maintenance is None or self._maintenance.done()):
            self._maintenance = asyncio.create_task(self._maintain())

    async def _maintain(self) -> None:
        try:
            await asyncio.to_thread(self._store.maintain)
        except (RuntimeError, OSError) as error:  # what LanceDB raises; nothing is lost, the next tick tries again
            log.warning("the episode store could not be maintained", error=str(error))


def _usable(
    turn: Turn, arrivals: Sequence[Arrival[ToolCall]], redactor: Redactor, beat: Callable[[], object]
) -> Iterator[Landing]:
    """The calls that can land; the others become dead letters. `beat` is told of each: a large one takes seconds."""
    for arrival in arrivals:
        beat()
        if problem := problem_of(arrival.record):
            turn.dead_letter(arrival, problem)
            continue
        call, _ = redactor.call(arrival.record)
        call = replace(call, event_id=event_id_of(call))
        yield Landing(call, arrival.partition, arrival.offset, arrival.timestamp)


def _not_forgotten(turn: Turn, landings: Sequence[Landing]) -> list[Landing]:
    """Without the calls that an erasure has taken: published again they are duplicates of nothing that is left."""
    left = [one for one in landings if not is_forgotten(turn, one.call.event_id)]
    if len(left) < len(landings):
        turn.count("duplicate", len(landings) - len(left))
    return left


def _firsts(turn: Turn, landings: Sequence[Landing], stored: Mapping[str, Position]) -> list[Landing]:
    """Those that have their id first, or had it already in an earlier attempt; the others are counted."""
    owners = dict(stored)
    firsts = [one for one in landings if owners.setdefault(one.call.event_id, one.position) == one.position]
    if len(firsts) < len(landings):
        turn.count("duplicate", len(landings) - len(firsts))
    return firsts


def _episodes(
    landings: Sequence[Landing], runs: Mapping[str, RunState], now: int
) -> tuple[list[Episode], dict[str, RunState]]:
    """An episode a landing, each in the context of the run's calls before it, and the runs as they are afterwards."""
    changed: dict[str, RunState] = {}
    episodes = []
    for landing in landings:
        run = f"{landing.call.source}|{landing.call.run_id}"
        before = changed.get(run) or runs.get(run, NEW_RUN)
        episode, changed[run] = _episode(landing, before, now)
        episodes.append(episode)
    return episodes, changed


def _episode(landing: Landing, before: RunState, now: int) -> tuple[Episode, RunState]:
    call = landing.call
    context, after = step(before, call, now)
    text, reflection_source = reflect(call)
    episode = Episode(
        id=call.event_id,
        source=call.source,
        run_id=call.run_id,
        tool=call.tool,
        status=call.status,
        started_at=landing.timestamp if call.started_at is None else call.started_at,
        text=text,
        reflection_source=reflection_source,
        embedding_model=MODEL_ID,
        log_partition=landing.partition,
        log_offset=landing.offset,
        ended_at=call.ended_at,
        time_given=call.started_at is not None,
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
        redactions=count_marks(call),
        taint=1.0 - call.source_trust,
        context=context,
        features=features(call, context, before),
    )
    return episode, after


def _to_send(episode: Episode) -> Episode:
    """The episode as the hops behind need it: long arguments and outcomes cut, so that it fits into a record."""
    return replace(episode, args_json=_cut(episode.args_json), outcome_json=_cut(episode.outcome_json))


def _cut(json: str) -> str:
    if len(json) <= LONGEST_SENT:
        return json
    return encode({"cut": True, "characters": len(json), "begins": json[:1_000]}).decode()


def _forget_idle_runs(turn: Turn, tick: Tick) -> None:
    runs = turn.table("runs", RunState)
    if sweep_is_due(turn, tick, len(runs), RUNS_KEPT):
        for run in idle({name: state.touched for name, state in runs.items()}, tick.at, RUN_IDLE, RUNS_KEPT):
            del runs[run]
