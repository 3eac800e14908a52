"""What is erased is in no version, file or index of the table any more, whoever writes meanwhile."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.episodes import episode, put

from fluvial.schemas.erasure import Erasure
from fluvial.sinks.episodes import FEWEST_PIECES, EpisodeStore

TESTS = Path(__file__).parents[1]
SECRET = "5f0c2b7e9d3a41c8a6e4d10b97f2c35e"
ERASURE = Erasure(what="run", value=SECRET)


def files_with(folder: Path, *needles: str) -> list[str]:
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and any(needle.encode() in file.read_bytes() for needle in needles)
    ]


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path)


def test_the_bytes_of_one_row_among_thousands_leave_every_file(store: EpisodeStore, tmp_path: Path) -> None:
    put(store, [episode(number) for number in range(2_000)])
    put(store, [episode(2_000, SECRET, text="marmalade with kedgeree")])
    for number in range(FEWEST_PIECES):
        put(store, [episode(3_000 + number)])
    assert store.maintain()  # one fragment, with an index of the text
    put(store, [episode(4_000)])
    assert files_with(tmp_path, SECRET)
    assert [one.id for one in store.candidates(ERASURE)] == [f"{SECRET}-2000"]
    store.erase(0, [f"{SECRET}-2000"])
    assert files_with(tmp_path, SECRET, "marmalade", "kedgeree") == []
    assert store.count() == 2_000 + FEWEST_PIECES + 1
    assert [list(older.candidates(ERASURE)) for older in store.versions()] == [[]]
    vector = np.zeros(384, np.float32)
    vector[0] = 1.0
    assert store.search(vector, "call 4000", limit=1)
    assert SECRET not in str(store.search(vector, "marmalade", limit=10))


def test_what_a_killed_writer_left_goes_too(store: EpisodeStore, tmp_path: Path) -> None:
    put(store, [episode(1), episode(2, SECRET)])
    (tmp_path / "episodes.lance" / "data" / "half.lance").write_text(SECRET)
    store.erase(0, [f"{SECRET}-2"])
    assert files_with(tmp_path, SECRET) == []
    assert store.get("ordinary-1") is not None


def test_an_erasure_that_was_cut_short_is_finished_by_the_next_one(store: EpisodeStore, tmp_path: Path) -> None:
    put(store, [episode(1), episode(2, SECRET)])
    store._table.delete(f"id = '{SECRET}-2'")
    assert files_with(tmp_path, SECRET)
    store.erase(0, [])
    assert files_with(tmp_path, SECRET) == []


def test_a_partition_emptied_by_erasure_is_not_taken_for_lost(store: EpisodeStore) -> None:
    put(store, [episode(1), episode(2, SECRET, log_partition=3)])
    store.erase(3, [f"{SECRET}-2"])
    assert store.has_partition(3)
    assert not store.has_partition(2)
    store.erase(0, ["ordinary-1"])
    assert store.count() == 0


def test_a_subject_is_sought_in_every_text_and_in_json(store: EpisodeStore) -> None:
    named = [
        episode(1, text="Refund for ALICE Smith"),
        episode(2, args_json='{"note":"dear\\nAlice Smith"}'),
        episode(3, labels={"customer": "alice smith"}),
        episode(4, error_message="it's O'Neill, not Alice"),
        episode(5),
    ]
    put(store, named)
    found = {one.log_offset for one in store.candidates(Erasure(what="subject", value="Alice Smith"))}
    assert {1, 2, 3} <= found
    assert 5 not in found
    assert len(list(store.candidates(Erasure(what="subject", value="Ünal")))) == 5
    assert {one.log_offset for one in store.candidates(Erasure(what="subject", value="O'Neill"), 0, 5)} == {4}
    assert list(store.candidates(Erasure(what="agent", value="x' OR '1'='1"))) == []


def test_other_writers_lose_and_double_nothing_meanwhile(store: EpisodeStore, tmp_path: Path) -> None:
    put(store, [episode(number) for number in range(300)])
    writers = [
        subprocess.Popen([sys.executable, "-m", "support.episodes", str(tmp_path), partition], cwd=TESTS)
        for partition in ("1", "2")
    ]
    done = threading.Event()

    def maintain() -> None:
        while not done.is_set():
            store.maintain()

    beside = threading.Thread(target=maintain)
    beside.start()
    for number in range(10):
        put(store, [episode(5_000 + number, SECRET, log_partition=3)])
        store.erase(3, [f"{SECRET}-{5_000 + number}"])
    assert [writer.wait(60) for writer in writers] == [0, 0]
    done.set()
    beside.join()
    ids = [one.id for one in store.all()]
    assert len(ids) == len(set(ids)) == 300 + 2 * 40 * 5
    assert files_with(tmp_path, SECRET) == []
