"""The key of redaction: given, or made once in the data folder."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.processors.redact import Redactor
from fluvial.redaction import KEY_FILE, key_in, redactor_of
from fluvial.settings import Settings

SECRET = "password=hunter2"


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUVIAL_REDACTION_KEY", raising=False)
    monkeypatch.delenv("FLUVIAL_REDACT_PERSONAL", raising=False)


def test_the_key_of_a_folder_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    key = key_in(folder)
    assert len(bytes.fromhex(key)) == 32
    assert key_in(folder) == key
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert [file.name for file in folder.iterdir()] == [KEY_FILE]
    assert key_in(tmp_path / "other") != key


def test_all_who_begin_at_once_get_the_same_key(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from fluvial.redaction import key_in; print(key_in(Path({str(tmp_path)!r})))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=60)[0].strip() for process in processes}
    with ThreadPoolExecutor(16) as threads:
        said |= set(threads.map(key_in, [tmp_path] * 64))
    assert said == {key_in(tmp_path)}


def test_threads_that_race_for_a_new_folder_get_the_same_key(tmp_path: Path) -> None:
    for number in range(20):
        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(key_in, [tmp_path / str(number)] * 8))) == 1


def test_the_key_of_the_environment_wins_and_the_files_content_gives_the_same_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_file = redactor_of(Settings(data=tmp_path))
    assert of_file.text(SECRET)[0] != redactor_of(Settings(data=tmp_path / "other")).text(SECRET)[0]
    monkeypatch.setenv("FLUVIAL_REDACTION_KEY", (tmp_path / KEY_FILE).read_text().strip())
    elsewhere = tmp_path / "elsewhere"
    assert redactor_of(Settings(data=elsewhere)) == of_file
    assert not elsewhere.exists()


def test_the_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "correct-horse-battery"
    monkeypatch.setenv("FLUVIAL_REDACTION_KEY", key)
    settings = Settings()
    redactor = redactor_of(settings)
    assert not any(
        key in shown for shown in (repr(settings), str(settings), settings.model_dump_json(), repr(redactor))
    )
    assert redactor.key.hex() not in repr(redactor)
    assert key not in Redactor().text(f"FLUVIAL_REDACTION_KEY={key}")[0]


def test_a_short_key_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_REDACTION_KEY", "too-short")
    with pytest.raises(ValidationError, match="16 characters or more") as refused:
        Settings()
    assert "too-short" not in str(refused.value)


def test_personal_data_are_asked_for_by_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not redactor_of(Settings(data=tmp_path)).personal
    monkeypatch.setenv("FLUVIAL_REDACT_PERSONAL", "true")
    assert redactor_of(Settings(data=tmp_path)).personal


def test_the_command_line_does_not_repeat_a_key_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_REDACTION_KEY", "too-short")
    said = CliRunner().invoke(app, ["status"])
    assert said.exit_code == 2
    assert "FLUVIAL_REDACTION_KEY is not usable: a key has 16 characters or more" in said.output
    assert "too-short" not in said.output
