"""The episode store on a real LanceDB."""

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pytest

from fluvial.schemas.episode import Episode, RunContext
from fluvial.sinks import episodes as module
from fluvial.sinks.episodes import DIMENSIONS, EpisodeStore, NoEpisodes, Vectors

CRASH = 1_692_308_040_000_000
"""2023-08-17 21:34 UTC."""


def episode(number: int, **fields: Any) -> Episode:
    defaults: dict[str, Any] = {
        "id": f"{number:032x}",
        "source": "bot",
        "run_id": "r",
        "tool": "swap",
        "status": "ok",
        "started_at": CRASH + number * 1_000_000,
        "text": f"swap number {number}",
        "reflection_source": "template",
        "embedding_model": "m",
        "log_partition": 0,
        "log_offset": number,
    }
    return Episode(**(defaults | fields))


def vectors(numbers: Sequence[int]) -> Vectors:
    """One direction a number."""
    rows = np.zeros((len(numbers), DIMENSIONS), np.float32)
    rows[range(len(numbers)), [number % DIMENSIONS for number in numbers]] = 1
    return rows


def fill(store: EpisodeStore, numbers: Sequence[int], **fields: Any) -> int:
    return store.merge([episode(number, **fields) for number in numbers], vectors(numbers))


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "episodes")


def test_an_episode_comes_back_as_it_went_in(store: EpisodeStore) -> None:
    full = episode(
        1,
        task_id="t",
        agent_id="a",
        model="m",
        seq=-(2**63),
        call_id="c",
        status="error",
        error_type="stf",
        error_message="NUL \0, quotes ' \", 😀, \ud83d".encode("utf-8", "replace").decode(),
        chain="base",
        token_pair="WETH/USDC",
        started_at=-62_135_596_800_000_000,
        ended_at=253_402_300_799_999_999,
        time_given=False,
        labels={"k": "v'\""},
        metrics={"slippage_bps": 1e-300, "gas_gwei": 3.0},
        reward=-0.5,
        args_json='{"amount":' + "9" * 4_000 + "}",
        outcome_json='"' + "x" * 1_048_576 + '"',
        importance=0.25,
        redactions=3,
        taint=1.0,
        context=RunContext(calls_before=2, previous_status="error"),
        features={"args.x": "y", "args.n": 1.5, "args.f": True},
    )
    store.merge([full, episode(2)], vectors([1, 2]))
    assert store.get(full.id) == full
    assert store.get(episode(2).id) == episode(2)
    assert store.get("' OR true --") is None
    assert sorted(one.id for one in store.all()) == [full.id, episode(2).id]


def test_an_id_is_taken_once_and_the_first_wins(store: EpisodeStore) -> None:
    assert fill(store, [1, 2]) == 2
    assert fill(store, [2, 3], log_partition=3) == 1
    twice = [episode(4, text="first"), episode(4, text="second")]
    assert store.merge(twice, vectors([4, 4])) == 1
    assert store.count() == 4
    assert store.positions([episode(n).id for n in (2, 3, 9)]) == {episode(2).id: (0, 2), episode(3).id: (3, 3)}
    kept = store.get(episode(4).id)
    assert kept is not None
    assert kept.text == "first"
    assert store.positions([]) == {}
    assert store.has_partition(3)
    assert not store.has_partition(1)


def test_analysts_meet_plain_columns(store: EpisodeStore, tmp_path: Path) -> None:
    fill(store, [1], metrics={"gas_gwei": 3.0})
    table = lancedb.connect(str(tmp_path / "episodes")).open_table("episodes")
    row = table.to_arrow().to_pylist()[0]
    assert row["started_at"].isoformat() == "2023-08-17T21:34:01+00:00"
    assert row["metrics"] == '{"gas_gwei":3.0}'
    assert len(row["vector"]) == DIMENSIONS
    assert table.schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}


def test_meaning_and_words_are_both_found_best_first(store: EpisodeStore) -> None:
    fill(store, range(20))
    store.merge([episode(50, text="liquidity was thin")], vectors([50]))
    found = store.search(vectors([7])[0], "liquidity was thin", limit=3)
    assert {one.episode.id for one in found} >= {episode(7).id, episode(50).id}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    both = store.search(vectors([50])[0], "thin liquidity", limit=1)
    assert both[0].episode.id == episode(50).id


def test_filters_hold_for_every_hit_and_are_data(store: EpisodeStore) -> None:
    evil = "x' OR tool = 'swap"
    store.merge(
        [
            episode(1, chain="base"),
            episode(2, tool=evil, status="error"),
            episode(3, tool='quote "), ', status="error", chain="base"),
        ],
        vectors([1, 2, 3]),
    )

    def ids(**filters: Any) -> set[int]:
        return {int(one.episode.id, 16) for one in store.search(vectors([1])[0], "swap number", **filters)}

    assert ids() == {1, 2, 3}
    assert ids(equal={"tool": evil}) == {2}
    assert ids(equal={"tool": 'quote "), '}) == {3}
    assert ids(equal={"status": "error", "chain": "base"}) == {3}
    assert ids(equal={"tool": "x' OR 1=1 --"}) == set()
    assert ids(since=CRASH + 2_000_000) == {2, 3}
    assert ids(since=CRASH + 1, equal={"tool": "swap"}) == {1}
    assert len(store.search(vectors([1])[0], "swap number", limit=2)) == 2


@pytest.mark.parametrize("text", ['"unbalanced', "a AND (", "swap*", "\0", "~", "😀", "the of", "x" * 10_000])
def test_any_words_can_be_asked_for(store: EpisodeStore, text: str) -> None:
    fill(store, range(3))
    assert store.search(vectors([1])[0], text, limit=1)[0].episode.id == episode(1).id


def test_small_pieces_are_compacted_and_indexed_and_nothing_is_lost(store: EpisodeStore, tmp_path: Path) -> None:
    assert not store.maintain()
    for number in range(module.FEWEST_PIECES):
        fill(store, [number])
    assert store.maintain()
    assert not store.maintain()
    fill(store, [900], text="not indexed yet")
    assert store.count() == module.FEWEST_PIECES + 1
    assert fill(store, range(module.FEWEST_PIECES)) == 0
    assert store.search(vectors([1])[0], "number 40", limit=2)[0].episode.id in {episode(1).id, episode(40).id}
    assert episode(900).id in {one.episode.id for one in store.search(vectors([1])[0], "indexed", limit=2)}
    table = lancedb.connect(str(tmp_path / "episodes")).open_table("episodes")
    assert table.stats()["fragment_stats"]["num_fragments"] == 2
    assert [index.columns for index in table.list_indices()] == [["text"]]


def test_no_folder_is_made_by_looking_for_episodes(tmp_path: Path) -> None:
    with pytest.raises(NoEpisodes, match=r"There are no episodes in .*yet: start `fluvial up` and publish tool calls"):
        EpisodeStore.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_table_whose_first_version_is_not_written_yet_is_none(tmp_path: Path) -> None:
    (tmp_path / "episodes.lance" / "_versions").mkdir(parents=True)
    with pytest.raises(NoEpisodes, match="There are no episodes in"):
        EpisodeStore.open(tmp_path)


def test_an_open_reader_sees_what_another_process_adds(store: EpisodeStore, tmp_path: Path) -> None:
    reader = EpisodeStore.open(tmp_path / "episodes")
    assert reader.count() == 0
    code = """if True:
        import sys
        from pathlib import Path
        import numpy as np
        from fluvial.schemas.episode import Episode
        from fluvial.sinks.episodes import EpisodeStore
        one = Episode(id="theirs", source="s", run_id="r", tool="t", status="ok", started_at=0, text="swap",
                      reflection_source="template", embedding_model="m", log_partition=0, log_offset=0)
        EpisodeStore.create(Path(sys.argv[1])).merge([one], np.ones((1, 384), np.float32))
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "episodes")], check=True)
    assert reader.count() == 1
    assert reader.get("theirs") is not None


def test_writers_that_begin_at_once_share_one_table(tmp_path: Path) -> None:
    def begin(number: int) -> int:
        return fill(EpisodeStore.create(tmp_path / "episodes"), [number])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(begin, range(4))) == [1, 1, 1, 1]
    assert EpisodeStore.open(tmp_path / "episodes").count() == 4


def test_ids_stay_single_while_several_write_them_beside_compaction(tmp_path: Path) -> None:
    folder = tmp_path / "episodes"
    EpisodeStore.create(folder)
    until = time.monotonic() + 8

    def write(writer: int) -> int:
        store = EpisodeStore.create(folder)
        numbers = np.random.default_rng(writer)
        added = 0
        while time.monotonic() < until:
            added += fill(store, [int(n) for n in numbers.choice(400, 8, replace=False)], log_partition=writer)
        return added

    def compact() -> None:
        table = lancedb.connect(str(folder)).open_table("episodes")
        while time.monotonic() < until:
            table.checkout_latest()
            table.optimize()
            time.sleep(0.1)

    with ThreadPoolExecutor(4) as pool:
        compacting = pool.submit(compact)
        added = sum(pool.map(write, range(3)))
        compacting.result()
    ids = [one.id for one in EpisodeStore.open(folder).all()]
    assert len(ids) == len(set(ids)) == added
