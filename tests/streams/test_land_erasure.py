"""Land forgets at the order's place in the log, and gives the same whatever ends it in between."""

from pathlib import Path

import pytest

from fluvial.processors.run_context import RunState
from fluvial.schemas.codec import decode
from fluvial.schemas.episode import Episode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams import land_erasure
from fluvial.streams.land import Land
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn

NOW = 1_764_547_200_000_000
SECRET = Erasure(what="run", value="secret")


def call(seq: int, run: str = "secret", **fields: object) -> ToolCall:
    return ToolCall(source="bot", run_id=run, tool="swap", seq=seq, **fields)  # type: ignore[arg-type]


class Log:
    """A partition of tool-calls, and land on it: turns are committed, or lost with what they did not commit."""

    def __init__(self, land: Land) -> None:
        self.land = land
        self.items: list[ToolCall | Tick] = []
        self.state: dict[bytes, bytes] = {}
        self.progress = Progress(resume=0, at=NOW)

    async def handle(self, *items: ToolCall | Tick, commit: bool = True) -> Turn:
        """One turn over what is new in the log."""
        self.items += items
        state = State()
        for key, row in self.state.items():
            state.load(key, row)
        turn = Turn("land", 0, state, self.progress)
        waiting: list[Arrival[ToolCall] | Tick] = []
        for offset in range(self.progress.resume, len(self.items)):
            item = self.items[offset]
            if isinstance(item, Tick):
                await self.land.handle(turn, [*waiting, item])
                turn.pass_tick(item)
                turn.reach(slot=item.slot)
                waiting = []
            else:
                waiting.append(Arrival(item, f"bot|{item.run_id}", "tool-calls", 0, offset, NOW))
            turn.reach(resume=offset + 1)
        if waiting:
            await self.land.handle(turn, waiting)
        if commit:
            for key, data in state.changes():
                if data is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = data
            self.progress = turn.progress
        return turn


def order(slot: int, erasure: Erasure = SECRET) -> Tick:
    return Tick(slot=slot, at=NOW + slot, erase=erasure)


def tick(slot: int) -> Tick:
    return Tick(slot=slot, at=NOW + slot)


def erased(turn: Turn) -> list[tuple[str, ...]]:
    return [output.erased for output in turn.outputs if isinstance(output, Tick)]


def ids(*calls: ToolCall) -> tuple[str, ...]:
    return tuple(sorted(map(event_id_of, calls)))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    land = Land("broker.test:9092", episodes=tmp_path / "episodes")
    land.load()
    return Log(land)


@pytest.fixture
def store(log: Log, tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.open(tmp_path / "episodes")


def runs(store: EpisodeStore) -> list[str]:
    return sorted(episode.run_id for episode in store.all())


async def test_the_order_takes_ids_along_and_the_next_turn_deletes_the_rows(log: Log, store: EpisodeStore) -> None:
    turn = await log.handle(call(1), call(2), call(1, "other"), order(5), tick(6))
    assert erased(turn) == [ids(call(1), call(2)), ()]
    assert runs(store) == ["other", "secret", "secret"]
    await log.handle(tick(7))
    assert runs(store) == ["other"]
    assert not any(key.startswith(b"to-delete") for key in log.state)


async def test_a_forgotten_run_begins_anew_and_others_go_on(log: Log) -> None:
    turn = await log.handle(call(1), call(1, "other"), order(5), call(9), call(2, "other"))
    contexts = {episode.run_id: episode.context.calls_before for episode in sent(turn) if episode.seq in (9, 2)}
    assert contexts == {"secret": 0, "other": 1}
    assert sorted(turn.table("runs", RunState)) == ["bot|other", "bot|secret"]


def sent(turn: Turn) -> list[Episode]:
    return [decode(output.value, Episode) for output in turn.outputs if isinstance(output, Output)]


async def test_the_same_events_published_again_are_duplicates_before_and_after_the_rows_are_gone(
    log: Log, store: EpisodeStore
) -> None:
    again = [call(1), call(2)]
    await log.handle(*again, order(5))
    turn = await log.handle(*again, tick(6))
    assert (turn.progress.duplicate, sent(turn)) == (2, [])
    turn = await log.handle(*again, call(3))
    assert (turn.progress.duplicate, len(sent(turn))) == (4, 1)
    assert runs(store) == ["secret"]


async def test_an_order_that_was_not_committed_is_carried_out_again_to_the_letter(
    log: Log, store: EpisodeStore
) -> None:
    first = await log.handle(call(1), order(5), tick(6), call(2), tick(7), commit=False)
    again = await log.handle(commit=False)
    assert again.outputs == first.outputs
    assert erased(again) == [ids(call(1)), (), ()]
    await log.handle()
    await log.handle(tick(8))
    assert [episode.seq for episode in store.all()] == [2]


async def test_a_deletion_that_was_not_committed_is_finished(log: Log, store: EpisodeStore) -> None:
    await log.handle(call(1), call(1, "other"), order(5))
    await log.handle(tick(6), commit=False)
    assert runs(store) == ["other"]
    turn = await log.handle(order(7))
    assert erased(turn) == [(), ()]
    assert runs(store) == ["other"]


async def test_a_second_order_in_the_same_turn_finds_nothing_more(log: Log) -> None:
    turn = await log.handle(call(1), order(5), order(6))
    assert erased(turn) == [ids(call(1)), ()]


async def test_more_than_a_tick_can_carry_goes_with_the_next_order_the_oldest_first(
    log: Log, store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(land_erasure, "MOST_BYTES", 3 * 36)
    calls = [call(number) for number in range(5)]
    assert erased(await log.handle(*calls, order(5))) == [ids(*calls[:3])]
    assert erased(await log.handle(order(6))) == [ids(*calls[3:])]
    await log.handle(tick(7))
    assert store.count() == 0


async def test_an_emptied_store_is_filled_again_and_forgets_the_same(
    log: Log, store: EpisodeStore, tmp_path: Path
) -> None:
    first = await log.handle(call(1), call(1, "other"), order(5), tick(6), call(1), call(2))
    await log.handle(tick(7))
    land = Land("broker.test:9092", episodes=tmp_path / "again")
    land.load()
    refill = Log(land)
    again = await refill.handle(*log.items)
    assert erased(again)[:2] == erased(first)
    await refill.handle(tick(8))
    filled = EpisodeStore.open(tmp_path / "again")
    assert sorted(e.id for e in filled.all()) == sorted(e.id for e in store.all())
    assert sorted(e.id for e in filled.all()) == list(ids(call(1, "other"), call(2)))


async def test_what_is_kept_of_what_was_forgotten_does_not_name_it(log: Log) -> None:
    await log.handle(call(1, event_id="secret-1"), order(5))
    await log.handle(tick(6))
    kept = b"".join(key + row for key, row in log.state.items())
    assert b"secret" not in kept
    assert b"forgotten" in kept


async def test_a_store_that_forgot_its_last_row_of_a_partition_is_not_filled_again(log: Log) -> None:
    await log.handle(call(1), order(5))
    await log.handle(tick(6))
    assert await log.land.stored_progress(0, log.progress) is None
