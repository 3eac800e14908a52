"""The command line as a whole: global options, exit codes, errors as sentences."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from kafka.errors import KafkaConnectionError
from typer.testing import CliRunner

from fluvial.cli import COMMANDS, app
from fluvial.cli.output import Context, emit, fail, moment, sentence, table
from fluvial.schemas.codec import Undecodable

NOBODY = "127.0.0.1:1"


def fluvial(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")}
    command = [sys.executable, "-m", "fluvial", *arguments]
    return subprocess.run(
        command,
        env=clean | environment,
        text=True,
        capture_output=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """Puts a command `probe` in the place of `status`, which notes the context it got."""
    contexts: list[Context] = []

    def register(probe_app: typer.Typer) -> None:
        @probe_app.command(name="status")
        def probe(ctx: typer.Context) -> None:
            contexts.append(ctx.obj)

    monkeypatch.setattr(importlib.import_module("fluvial.cli.status"), "register", register)
    return contexts


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "d", "--broker", "h:1", "--json", "status"],
        ["status", "--data", "d", "--broker", "h:1", "--json"],
        ["--data", "other", "--json", "status", "--broker", "h:1", "--data", "d"],
    ],
)
def test_global_options_may_stand_before_and_after_the_command(seen: list[Context], arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [Context(data=Path("d"), broker="h:1", json=True)]


def test_without_options_the_context_is_empty(seen: list[Context]) -> None:
    assert CliRunner().invoke(app, ["status"]).exit_code == 0
    assert seen == [Context()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_global_options(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert all(option in result.output for option in ("--data", "--broker", "--json"))


def test_the_help_of_the_program_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(f"\n  {name} " in result.output for name in COMMANDS)


def test_the_program_starts_without_the_libraries_that_are_slow_to_import() -> None:
    code = (
        "import sys, typer\nfrom fluvial.cli import app\n"
        "typer.main.get_command(app).main(['--help'], standalone_mode=False)\n"
        "slow = {'kafka', 'lancedb', 'duckdb', 'faust', 'aiokafka', 'pydantic', 'numpy', 'onnxruntime', 'rich'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=60, check=True)
    assert said.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Usage: fluvial"),
        (["nonsense"], "No such command 'nonsense'"),
        (["publsh"], "Did you mean 'publish'?"),
        (["publish"], "Name files to publish"),
        (["publish", "-", "--nonsense"], "No such option"),
        (["--broker", "nonsense", "publish", "-"], "--broker is 'nonsense': a broker is host:port"),
    ],
)
def test_wrong_use_ends_with_two_and_says_what_is_wrong(arguments: list[str], says: str) -> None:
    result = fluvial(*arguments)
    assert result.returncode == 2
    assert says in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


def test_a_setting_out_of_its_range_ends_with_two_and_names_the_variable() -> None:
    result = fluvial("publish", "-", FLUVIAL_KAFKA_PORT="99999")
    assert result.returncode == 2
    assert result.stderr == "FLUVIAL_KAFKA_PORT is '99999': input should be less than or equal to 65535.\n"


def test_what_does_not_work_ends_with_one_and_one_sentence() -> None:
    result = fluvial("publish", "-", "--broker", NOBODY, "--timeout", "0.5")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"No Kafka broker answers at {NOBODY}")
    assert result.stderr.count("\n") == 1


def test_with_debug_the_traceback_is_shown() -> None:
    quiet, loud = fluvial("publish", "nowhere"), fluvial("publish", "nowhere", FLUVIAL_DEBUG="1")
    assert (quiet.returncode, quiet.stderr) == (1, "nowhere: No such file or directory.\n")
    assert loud.returncode == 1
    assert "Traceback" in loud.stderr


def test_ctrl_c_ends_with_130_and_without_a_traceback() -> None:
    command = [sys.executable, "-m", "fluvial", "publish", "-", "--broker", NOBODY, "--timeout", "60"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in said


def test_the_version_is_that_of_the_project() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    version = CliRunner().invoke(app, ["--version"]).output.removeprefix("fluvial ").strip()
    assert f'version = "{version}"' in text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Undecodable("not JSON: truncated"), "not JSON: truncated"),
        (PermissionError(13, "Permission denied", "/srv/x"), "No permission for /srv/x. Change its permissions or"),
        (FileNotFoundError(2, "No such file or directory", "calls"), "calls: No such file or directory."),
        (OSError(28, "No space left on device"), "No space left on device."),
        (KafkaConnectionError("refused"), "The Kafka broker did not answer (KafkaConnectionError: refused)."),
        (KeyError("x"), "Unexpected KeyError: 'x' (FLUVIAL_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), "Interrupted."),
    ],
)
def test_an_error_is_said_as_a_sentence(error: BaseException, expected: str) -> None:
    assert sentence(error).startswith(expected)


def test_emit_prints_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"text": "two\nlines", "n": 1})
    emit({"none": None})
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line) for line in lines] == [{"text": "two\nlines", "n": 1}, {"none": None}]


def test_fail_says_it_on_stderr_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail("It did not work.", 2)
    assert (ended.value.exit_code, capsys.readouterr()) == (2, ("", "It did not work.\n"))


def test_a_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", "note"), [("a", "x" * 500), ("[bold]", None)])
    out = capsys.readouterr().out
    assert "x" * 500 in out
    assert "[bold]" in out


def test_a_moment_is_written_in_utc() -> None:
    assert moment(1_692_308_040_000_000) == "2023-08-17 21:34:00Z"
    assert moment(None) == ""


def test_the_front_door_has_the_client_and_the_record() -> None:
    package: Any = importlib.import_module("fluvial")
    assert package.Publisher.__name__ == "Publisher"
    assert package.ToolCall.__name__ == "ToolCall"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing
