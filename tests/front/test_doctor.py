"""fluvial doctor."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from typer.testing import CliRunner

from fluvial.cli import app, checks
from fluvial.schemas.topics import ALL_TOPICS, TOOL_CALLS
from fluvial.settings import Settings
from fluvial.streams.broker_jars import locked_jars

NAMES = ["python", "packages", "java", "jars", "data folder", "broker", "kafka port", "quack port", "workers"]


def run(data: Path, **environment: str) -> Any:
    ports = {"FLUVIAL_KAFKA_PORT": "0", "FLUVIAL_QUACK_PORT": "0"}
    return CliRunner().invoke(app, ["doctor", "--data", str(data), "--json"], env=ports | environment)


def by_check(result: Any) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in map(msgspec.json.decode, result.stdout.splitlines())}


def test_it_works_when_nothing_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = run(tmp_path / "data")
    assert result.exit_code == 0, result.output
    found = by_check(result)
    assert list(found) == [*NAMES, "model", "extensions"]
    assert "FAIL" not in {finding["state"] for finding in found.values()}
    assert found["broker"]["detail"] == "the local one does not run; `fluvial up` starts it"
    assert list(tmp_path.iterdir()) == []


def test_people_see_one_line_a_check(tmp_path: Path) -> None:
    environment = {"FLUVIAL_KAFKA_PORT": "0", "FLUVIAL_QUACK_PORT": "0"}
    result = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path)], env=environment)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(NAMES) + 2
    assert all(line.split()[0] in ("ok", "warn") for line in result.stdout.splitlines())


def test_a_broker_of_ones_own_needs_no_java_and_its_topics_are_looked_at(dry_river: Any, tmp_path: Path) -> None:
    result = run(tmp_path, **dry_river.environment)
    assert result.exit_code == 0, result.output
    found = by_check(result)
    assert not {"java", "jars", "kafka port"} & set(found)
    assert found["topics"]["detail"] == f"{len(ALL_TOPICS)} as they must be"
    assert found["workers"]["state"] == "warn"
    assert found["workers"]["detail"].startswith("No worker seems to run")


def test_a_broker_without_the_topics_is_no_fault(kafka: str, tmp_path: Path) -> None:
    found = by_check(run(tmp_path, FLUVIAL_BROKER=kafka, FLUVIAL_TOPIC_PREFIX="never-made-"))
    assert found["topics"]["detail"] == f"{len(ALL_TOPICS)} are still to be made; `fluvial up` makes them"
    assert found["workers"]["detail"] == "none runs; `fluvial up` starts them"


def test_a_topic_with_other_settings_fails(dry_river: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluvial.schemas.topics.ALL_TOPICS", (replace(TOOL_CALLS, partitions=5),))
    finding = checks.topics(Settings(broker=dry_river.broker, topic_prefix=dry_river.prefix))
    assert finding.state == "FAIL"
    assert "has 4 partition(s)" in finding.detail


def test_a_broker_that_was_named_and_does_not_answer_fails(tmp_path: Path) -> None:
    result = run(tmp_path, FLUVIAL_BROKER="127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr == "1 of these would keep `fluvial up` from starting.\n"
    assert by_check(result)["broker"]["state"] == "FAIL"


def test_a_port_in_use_fails_and_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        finding = checks.kafka_port(number)
        assert (finding.state, "FLUVIAL_KAFKA_PORT" in finding.detail) == ("FAIL", True)
        assert checks.quack_port(number).state == "ok"  # keep would take another


def java_of_version(folder: Path, version: str) -> Path:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_a_java_too_old_fails(tmp_path: Path) -> None:
    finding = checks.java(java_of_version(tmp_path, "11.0.2"))
    assert finding.state == "FAIL"
    assert "Java 11, too old" in finding.detail


def test_a_java_that_is_new_enough_is_well(tmp_path: Path) -> None:
    assert checks.java(java_of_version(tmp_path, "17.0.9")).state == "ok"


def test_a_java_that_is_not_there_fails(tmp_path: Path) -> None:
    assert checks.java(tmp_path / "nowhere").state == "FAIL"


def test_jars_that_are_not_there_yet_are_only_noted(tmp_path: Path) -> None:
    finding = checks.jars(tmp_path)
    assert finding.state == "warn"
    assert "fluvial up" in finding.detail


def test_a_damaged_jar_fails_and_is_named(tmp_path: Path) -> None:
    name = locked_jars()[0].file
    (tmp_path / name).write_bytes(b"half a jar")
    finding = checks.jars(tmp_path)
    assert finding.state == "FAIL"
    assert name in finding.detail


def test_a_data_folder_without_permission_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**where: object) -> None:  # not by chmod: root may write everywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    finding = checks.data_folder(tmp_path / "data")
    assert finding.state == "FAIL"
    assert finding.detail.startswith(f"{tmp_path} cannot be written (Permission denied)")


def test_a_data_folder_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = checks.data_folder(tmp_path / "file" / "data")
    assert finding.state == "FAIL"
    assert "--data" in finding.detail


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("free", "state"), [(10**6, "FAIL"), (10**9, "warn"), (10**10, "ok")])
def test_little_room_is_said_before_it_is_too_late(
    free: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - free, free))
    assert checks.data_folder(tmp_path).state == state


def test_packages_are_compared_with_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        "msgspec>=0.1",
        "aiokafka[lz4]==0.14.0",
        "duckdb==0.0.1",
        "nowhere-to-be-found>=1",
        'torch>=99; extra == "reference"',
    ]
    monkeypatch.setattr(checks.metadata, "requires", lambda name: asked)
    finding = checks.packages()
    assert finding.state == "FAIL"
    assert "and must be 0.0.1" in finding.detail
    assert "nowhere-to-be-found is missing" in finding.detail
    assert not any(name in finding.detail for name in ("msgspec", "aiokafka", "torch"))


def test_an_extension_that_is_not_installed_fails() -> None:
    finding = checks.extensions(["nowhere"])
    assert finding.state == "FAIL"
    assert "duckdb-extension-nowhere is not installed" in finding.detail


def test_a_model_that_is_another_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluvial.processors.embed.MODEL_SHA256", "0" * 64)
    assert checks.model().state == "FAIL"
