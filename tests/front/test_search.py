"""fluvial search."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.processors.embed import Embedder
from fluvial.schemas.episode import Episode
from fluvial.sinks.episodes import EpisodeStore

CRASH = 1_692_308_040_000_000
"""2023-08-17 21:34 UTC."""


def episode(event_id: str, text: str, **fields: Any) -> Episode:
    defaults: dict[str, Any] = {
        "source": "bot",
        "run_id": "r",
        "tool": "swap",
        "status": "ok",
        "started_at": CRASH,
        "reflection_source": "template",
        "embedding_model": "m",
        "log_partition": 0,
        "log_offset": 0,
    }
    return Episode(id=event_id, text=text, **(defaults | fields))


EPISODES = [
    episode("thin", "swap on base: amount 9 -> error slippage exceeded", status="error", chain="base"),
    episode("fine", "swap on ethereum: amount 1 -> ok", chain="ethereum", started_at=CRASH - 3_600_000_000),
    episode(
        "air",
        "Could not find a flight from Oslo.\n" + "I should ask again. " * 40,
        tool="find_flight",
        reflection_source="agent",
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    store = EpisodeStore.create(folder / "episodes")
    store.merge(EPISODES, Embedder().embed([one.text for one in EPISODES]))
    return folder


def run(data: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["search", *arguments, "--data", str(data)])


def ids(data: Path, *arguments: str) -> list[str]:
    result = run(data, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line)["id"] for line in result.stdout.splitlines()]


def test_people_see_when_how_it_ended_what_it_was_and_its_id_best_first(data: Path) -> None:
    result = run(data, "trade failed because the price moved: slippage")
    rows = [" ".join(line.split()) for line in result.stdout.splitlines() if "2023-08-17" in line]
    assert len(rows) == 3
    assert rows[0].endswith("2023-08-17 21:34:00Z error swap on base: amount 9 -> error slippage exceeded thin")
    flight = next(row for row in rows if row.endswith("air"))
    assert "find_flight: Could not find a flight from Oslo. I should" in flight
    assert "… air" in flight


def test_json_has_every_field_and_the_score(data: Path) -> None:
    first = msgspec.json.decode(run(data, "slippage", "--json", "--limit", "1").stdout)
    score = first.pop("score")
    assert 0.03 < score < 0.034
    assert msgspec.convert(first | {"type": "episode"}, Episode) == EPISODES[0]


def test_options_leave_only_what_meets_them(data: Path) -> None:
    assert ids(data, "slippage", "--tool", "find_flight") == ["air"]
    assert ids(data, "slippage", "--chain", "ethereum") == ["fine"]
    assert ids(data, "slippage", "--status", "error") == ["thin"]
    assert set(ids(data, "slippage", "--since", "2023-08-17T21:00Z")) == {"thin", "air"}
    assert ids(data, "slippage", "--since", "7d") == []
    assert ids(data, "slippage", "--tool", "x' OR 1=1 --") == []
    assert len(ids(data, "slippage", "--limit", "2")) == 2


def test_nothing_found_is_said(data: Path) -> None:
    assert run(data, "slippage", "--tool", "bridge").stdout == "None matches.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((" ",), 2, "There is nothing to search for"),
        (("x", "--since", "yesterday"), 2, "--since 'yesterday' is no time"),
        (("x", "--limit", "0"), 2, "--limit"),
        (("x", "--status", "bad"), 2, "--status"),
    ],
)
def test_wrong_use_ends_with_2_and_says_why(data: Path, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    result = run(data, *arguments)
    assert result.exit_code == code
    assert sentence in result.output


def test_before_there_are_episodes_a_sentence_says_so(tmp_path: Path) -> None:
    result = run(tmp_path / "new", "slippage")
    assert result.exit_code == 1
    assert result.output.startswith(f"There are no episodes in {tmp_path / 'new' / 'episodes'} yet: start `fluvial up`")
    assert not (tmp_path / "new").exists()
