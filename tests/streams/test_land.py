"""Land on a real store and the real model, without Kafka."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from fluvial.mapping import Unmappable, load_mapping
from fluvial.processors.run_context import RunState
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.episode import Episode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import DEAD_LETTERS, EPISODES, MAX_RECORD_BYTES
from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams import land as module
from fluvial.streams.handling import Item
from fluvial.streams.land import Land
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn

MAPPING = Path(__file__).parents[2] / "examples" / "mapping.toml"
NOW = 1_764_547_200_000_000
MEBIBYTE = 1 << 20


@pytest.fixture
def land(tmp_path: Path) -> Land:
    land = Land("broker.test:9092", episodes=tmp_path / "episodes")
    land.load()
    return land


@pytest.fixture
def store(land: Land, tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.open(tmp_path / "episodes")


def call(seq: int = 0, **fields: Any) -> ToolCall:
    return ToolCall(**({"source": "bot", "run_id": "r", "tool": "swap", "seq": seq} | fields))


def arrivals(calls: Iterable[ToolCall], offset: int = 0, partition: int = 0) -> list[Arrival[ToolCall]]:
    return [
        Arrival(one, f"{one.source}|{one.run_id}", "tool-calls", partition, place, NOW + place, encode(one))
        for place, one in enumerate(calls, offset)
    ]


class Seat:
    """One partition of land: its state goes from turn to turn."""

    def __init__(self, land: Land, partition: int = 0) -> None:
        self.land = land
        self.partition = partition
        self.state = State()
        self.at = NOW

    def take(self, items: Sequence[Item]) -> Turn:
        turn = Turn("land", self.partition, self.state, Progress(resume=0, at=self.at))
        asyncio.run(self._handle(turn, items))
        if items and isinstance(items[-1], Tick):
            self.at = items[-1].at
        return turn

    async def _handle(self, turn: Turn, items: Sequence[Item]) -> None:
        await self.land.handle(turn, items)
        if self.land._maintenance is not None:
            await self.land._maintenance
            self.land._maintenance = None


def landed(turn: Turn) -> list[Episode]:
    return [decode(o.value, Episode) for o in turn.outputs if isinstance(o, Output) and o.topic is EPISODES]


def reasons(turn: Turn) -> list[str]:
    return [
        decode(o.value, DeadLetter).reason for o in turn.outputs if isinstance(o, Output) and o.topic is DEAD_LETTERS
    ]


def test_a_call_becomes_a_row_and_an_episode_under_its_stream_key(land: Land, store: EpisodeStore) -> None:
    one = call(
        chain="base",
        token_pair="WETH/USDC",
        args={"amount": 5},
        result={"out": 9},
        status="error",
        error_type="slippage_exceeded",
        started_at=NOW - 60,
        ended_at=NOW,
        metrics={"pnl_bps": -250.0},
        source_trust=0.75,
    )
    turn = Seat(land, 2).take(arrivals([one], offset=7, partition=2))
    (episode,) = landed(turn)
    assert [output.key for output in turn.outputs if isinstance(output, Output)] == ["swap|base|WETH/USDC"]
    assert store.get(event_id_of(one)) == episode
    assert episode.text == "swap on base WETH/USDC: amount 5 -> error slippage exceeded; pnl_bps -250"
    assert (episode.log_partition, episode.log_offset) == (2, 7)
    assert (episode.args_json, episode.outcome_json) == ('{"amount":5}', '{"out":9}')
    assert (episode.importance, episode.taint, episode.time_given) == (0.5, 0.25, True)
    assert episode.embedding_model.startswith("all-MiniLM-L6-v2@")
    assert (turn.progress.emitted, turn.progress.dead, turn.progress.duplicate) == (1, 0, 0)


def test_the_vector_in_the_store_is_that_of_the_text(land: Land, store: EpisodeStore) -> None:
    Seat(land).take(arrivals([call(0, tool="get_airports"), call(1, error_message="no liquidity", status="error")]))
    query = land._embedder.embed(["swap -> error: no liquidity"])[0]
    (best,) = store.search(query, "liquidity", limit=1)
    assert best.episode.tool == "swap"


def test_a_call_without_time_takes_that_of_its_record(land: Land) -> None:
    (episode,) = landed(Seat(land).take(arrivals([call()], offset=3)))
    assert (episode.started_at, episode.time_given) == (NOW + 3, False)
    assert "hour" not in episode.features


def test_calls_are_seen_in_the_context_of_their_run_over_turns(land: Land) -> None:
    seat = Seat(land)
    first = seat.take(arrivals([call(0, status="error", error_type="stf"), call(1, run_id="other")]))
    second = seat.take(arrivals([call(2), call(3)], offset=2))
    befores = [(one.context.calls_before, one.context.errors_before) for one in landed(first) + landed(second)]
    assert befores == [(0, 0), (0, 0), (1, 1), (2, 1)]
    assert landed(second)[0].features["run.previous_error_type"] == "stf"


def test_a_repeated_call_is_a_duplicate_within_a_batch_and_later(land: Land, store: EpisodeStore) -> None:
    seat = Seat(land)
    turn = seat.take(arrivals([call(0), call(1), call(0)]))
    assert (len(landed(turn)), turn.progress.duplicate) == (2, 1)
    again = seat.take(arrivals([call(1), call(2)], offset=3))
    assert again.progress.duplicate == 1
    assert [one.context.calls_before for one in landed(again)] == [2]
    assert store.count() == 3


def test_an_attempt_that_was_stored_but_not_committed_is_done_again_to_the_letter(
    land: Land, store: EpisodeStore
) -> None:
    batch = arrivals([call(0, status="error"), call(1), call(0)])
    first = Seat(land).take(batch)
    again = Seat(land).take(batch)
    assert again.outputs == first.outputs
    assert again.progress == first.progress
    assert store.count() == 2


def test_an_id_that_another_partition_takes_in_between_is_a_duplicate(
    land: Land, store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also leaves no trace in the run: the calls after it are seen as if it had not been there."""
    ours = [call(0, event_id="x", status="error"), call(1), call(2)]
    positions = land._store.positions

    def slow_positions(ids: Iterable[str]) -> Any:
        found = positions(ids)
        monkeypatch.setattr(land._store, "positions", positions)
        Seat(land, 3).take(arrivals([call(event_id="x", run_id="elsewhere")], partition=3))
        return found

    monkeypatch.setattr(land._store, "positions", slow_positions)
    turn = Seat(land).take(arrivals(ours))
    assert turn.progress.duplicate == 1
    assert [(one.seq, one.context.calls_before, one.context.errors_before) for one in landed(turn)] == [
        (1, 0, 0),
        (2, 1, 0),
    ]
    assert store.count() == 3
    assert turn.table("runs", RunState)["bot|r"].calls == 2


def test_what_cannot_land_is_put_aside_and_the_rest_lands(land: Land, store: EpisodeStore) -> None:
    turn = Seat(land).take(arrivals([call(0, tool="  "), call(1), call(2, started_at=9, ended_at=1)]))
    assert reasons(turn) == [
        "tool is blank: give a name",
        "ended_at is 8e-06 s before started_at: check both (microseconds UTC)",
    ]
    assert (len(landed(turn)), store.count(), turn.progress.dead) == (1, 1, 2)


def test_secrets_are_in_neither_the_store_nor_the_topic(land: Land, store: EpisodeStore) -> None:
    secret = "ab" * 32
    one = call(args={"private_key": secret, "to": "0x" + "c" * 40}, reflection=f"used private key {secret}")
    turn = Seat(land).take(arrivals([one]))
    (episode,) = landed(turn)
    assert episode.redactions == 2
    assert secret not in str(turn.outputs) + str(store.get(episode.id))
    assert "0x" + "c" * 40 in episode.args_json


def test_secrets_that_were_taken_out_before_publishing_are_counted_too(land: Land) -> None:
    (episode,) = landed(Seat(land).take(arrivals([call(args={"password": "[redacted:password]"})])))
    assert episode.redactions == 1


def test_a_long_call_is_stored_whole_and_sent_on_short(land: Land, store: EpisodeStore) -> None:
    one = call(args={"blob": '"\\' * MEBIBYTE}, result="\0" * (MEBIBYTE // 4))
    turn = Seat(land).take(arrivals([one]))
    (sent,) = landed(turn)
    kept = store.get(sent.id)
    assert kept is not None
    assert msgspec.json.decode(kept.args_json) == one.args
    assert msgspec.json.decode(sent.args_json)["cut"] is True
    assert len(turn.outputs[0].value) < MAX_RECORD_BYTES // 16  # type: ignore[union-attr]


def test_nothing_is_sent_while_an_emptied_store_is_filled_again(land: Land, store: EpisodeStore) -> None:
    turn = Turn("land", 0, State(), Progress(resume=0, at=NOW))
    turn.muted = True
    asyncio.run(land.handle(turn, arrivals([call(0), call(1, tool=" ")])))
    assert (turn.outputs, store.count()) == ([], 1)


LANDED = Progress(resume=9, read=5, emitted=5)


async def test_progress_begins_anew_where_the_store_has_nothing_of_a_partition(land: Land) -> None:
    assert await land.stored_progress(0, LANDED) == Progress(resume=0)
    turn = Turn("land", 0, State(), Progress(resume=0, at=NOW))
    await land.handle(turn, arrivals([call()]))
    assert await land.stored_progress(0, LANDED) is None
    assert await land.stored_progress(1, LANDED) == Progress(resume=0)
    assert await land.stored_progress(1, Progress(resume=9, read=5, dead=5)) is None


def test_idle_runs_leave_the_state_with_time(land: Land) -> None:
    seat = Seat(land)
    seat.take([*arrivals([call(0), call(1, run_id="q")]), Tick(slot=1, at=NOW + 1)])
    seat.take([*arrivals([call(2)], offset=2), Tick(slot=2, at=NOW + module.RUN_IDLE // 2)])
    seat.take([*arrivals([call(3)], offset=3), Tick(slot=3, at=NOW + module.RUN_IDLE + 9)])
    assert list(seat.state.table("runs", RunState)) == ["bot|r"]


def test_runs_are_forgotten_before_the_hour_where_they_are_twice_too_many(
    land: Land, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RUNS_KEPT", 3)
    seat = Seat(land)
    seat.take([Tick(slot=1, at=NOW + 1)])
    seat.take([*arrivals(call(run_id=f"r{n}") for n in range(5)), Tick(slot=2, at=NOW + 2)])
    latest = [call(run_id="a"), call(run_id="b"), call(run_id="r0", seq=1)]
    seat.take([*arrivals(latest, offset=5), Tick(slot=3, at=NOW + 3)])
    runs = seat.state.table("runs", RunState)
    assert sorted(runs) == ["bot|a", "bot|b", "bot|r0"]


def test_only_the_first_partition_looks_after_the_store(land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    maintained: list[int] = []
    monkeypatch.setattr(land._store, "maintain", lambda: maintained.append(1))
    Seat(land, 1).take([Tick(slot=1, at=NOW)])
    assert maintained == []
    Seat(land, 0).take([Tick(slot=1, at=NOW)])
    assert maintained == [1]


async def test_a_store_that_cannot_be_maintained_does_not_stop_the_river(
    land: Land, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> bool:
        raise RuntimeError("Commit conflict")

    monkeypatch.setattr(land._store, "maintain", broken)
    turn = Turn("land", 0, State(), Progress(resume=0, at=NOW))
    await land.handle(turn, [*arrivals([call()]), Tick(slot=1, at=NOW)])
    assert land._maintenance is not None
    await land._maintenance
    assert len(landed(turn)) == 1


def hard_rows(shared: Path) -> list[dict[str, Any]]:
    rows = [msgspec.json.decode(line) for line in (shared / "data/hard/hard_cases.jsonl").read_text().splitlines()]
    for row in rows:
        if row["hard_case"] == "kafka_1mb_value":
            blob = "x" * row["args"]["blob_len"]
            assert hashlib.sha256(blob.encode()).hexdigest().startswith(row["args"]["blob_sha256"][:8])
            row["args"] = {"blob": blob}
    return rows


def test_each_of_the_81_hard_cases_lands_or_is_refused_with_a_reason(
    land: Land, store: EpisodeStore, shared: Path
) -> None:
    mapping = load_mapping(MAPPING)
    calls, refused = [], {}
    rows = hard_rows(shared)
    for number, row in enumerate(rows):
        try:
            one = replace(mapping.call(row), event_id=f"hard-{number}")
            calls.append(decode(encode(one), ToolCall))
        except (Unmappable, Undecodable) as error:
            refused[row["hard_case"]] = str(error)
    turn = Seat(land).take(arrivals(calls))
    assert len(rows) == 81
    assert set(refused) == {"empty_tool_name"}
    assert "tool" in refused["empty_tool_name"]
    assert reasons(turn) == []
    assert len(landed(turn)) == len(calls) == store.count() == 77
    found = {row["hard_case"]: store.get(f"hard-{number}") for number, row in enumerate(rows)}
    for case, episode in found.items():
        if episode is not None:
            assert episode.redactions == ("secret_like" in case), case
    assert found["uint256_max_amount"].args_json.count("9") > 5  # type: ignore[union-attr]
    assert found["nul_and_control"].args_json == '{"s":"a\\u0000b\\u001b[31mred\\u0007"}'  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "args",
    ['{"x":' * 950 + "1" + "}" * 950, "[" * 950 + "]" * 950, '{"n":' + "9" * 4_290 + "}", '{"f":1e308,"g":-1e308}'],
)
def test_what_json_can_just_hold_breaks_nothing(land: Land, store: EpisodeStore, args: str) -> None:
    value = f'{{"type":"tool_call","source":"s","run_id":"r","tool":"t","args":{args},"result":{args}}}'.encode()
    try:
        record = decode(value, ToolCall)
    except Undecodable:
        return
    turn = Seat(land).take([Arrival(record, "s|r", "tool-calls", 0, 0, NOW, value)])
    assert len(landed(turn)) + len(reasons(turn)) == 1
    assert store.count() == len(landed(turn))


def test_a_batch_of_texts_is_embedded_once_each(land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = land._embedder._compute

    def counting(texts: Sequence[str], on_batch: Any) -> Any:
        computed.extend(texts)
        vectors = compute(texts, on_batch)
        assert vectors.dtype == np.float32
        return vectors

    monkeypatch.setattr(land._embedder, "_compute", counting)
    Seat(land).take(arrivals([call(number, agent_id=f"a{number}") for number in range(256)]))
    assert computed == ["swap -> ok"]
