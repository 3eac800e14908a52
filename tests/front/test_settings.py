"""Settings: options over environment over defaults."""

from pathlib import Path

import pytest
import typer
from pydantic import ValidationError

from fluvial.cli.output import Context
from fluvial.settings import LOCAL_BROKER, Settings


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"FLUVIAL_{name.upper()}", raising=False)


def test_an_option_wins_over_the_environment_which_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Context().settings.data == Path("fluvial-data")
    monkeypatch.setenv("FLUVIAL_DATA", "/srv/river")
    assert Context().settings.data == Path("/srv/river")
    assert Context(data=Path("/tmp/other")).settings.data == Path("/tmp/other")


def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_BROKER", "")
    monkeypatch.setenv("FLUVIAL_KAFKA_PORT", "")
    assert (Settings().broker, Settings().kafka_port) == (None, 9092)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BROKER", "localhost"),
        ("BROKER", "localhost:99999"),
        ("BROKER", "a:1,,b:2"),
        ("TOPIC_PREFIX", "a b"),
        ("KAFKA_PORT", "-1"),
        ("TICK_SECONDS", "0"),
        ("WINDOW_EPISODES", "2"),
        ("WINDOW_MINIMUM", "101"),
        ("SNAPSHOT_SECONDS", "61"),
        ("WEBHOOK_URL", "ftp://x"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_value_out_of_its_range_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(f"FLUVIAL_{variable}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_a_window_cannot_require_more_than_it_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUVIAL_WINDOW_EPISODES", "5")
    monkeypatch.setenv("FLUVIAL_WINDOW_MINIMUM", "5")
    assert Settings().window_minimum == 5
    monkeypatch.setenv("FLUVIAL_WINDOW_MINIMUM", "6")
    with pytest.raises(typer.Exit):
        _ = Context().settings
    assert capsys.readouterr().err == (
        "FLUVIAL_WINDOW_MINIMUM is '6': a window is closed at 5 episodes (FLUVIAL_WINDOW_EPISODES), so no more can be "
        "required.\n"
    )


def test_the_log_level_may_be_written_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_LOG_LEVEL", "debug")
    assert Settings().log_level == "DEBUG"


def test_the_broker_is_the_one_given_else_the_one_noted_in_the_data_folder_else_the_default(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    assert settings.broker_address() == LOCAL_BROKER
    settings.kafka.mkdir()
    (settings.kafka / "address").write_text("127.0.0.1:4711\n")
    assert settings.broker_address() == "127.0.0.1:4711"
    assert Settings(data=tmp_path, broker="kafka:9092").broker_address() == "kafka:9092"


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings(data=Path("~/river")).data == tmp_path / "river"


def test_a_mapping_is_read_at_the_start_and_what_is_wrong_with_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"nowhere\.toml cannot be read \(No such file or directory\)"):
        Settings(mapping=tmp_path / "nowhere.toml")
    file = tmp_path / "mapping.toml"
    file.write_text('source = "a"\nrun_id = "b"\n')
    with pytest.raises(ValidationError, match=r"mapping\.toml: tool is required and missing\."):
        Settings(mapping=file)
    file.write_text('source = "a"\nrun_id = "b"\ntool = "c"\n')
    assert Settings(mapping=file).mapping == file
