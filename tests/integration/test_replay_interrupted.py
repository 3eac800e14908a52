"""A replay that is interrupted leaves nothing that the next one, or a command, does not take away."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.balance import assert_balanced
from support.fixed_log import DIGEST, ERASED, REDACTION_KEY, write

from fluvial.streams.admin import groups, topic_names

Fluvial = Callable[..., CompletedProcess[str]]


@pytest.fixture
def prefix(environment: Mapping[str, str], kafka: str) -> str:
    """Of topics that hold the fixed log."""
    assert isinstance(environment, dict)
    environment["FLUVIAL_REDACTION_KEY"] = REDACTION_KEY
    write(kafka, environment["FLUVIAL_TOPIC_PREFIX"])
    return str(environment["FLUVIAL_TOPIC_PREFIX"])


@pytest.fixture
def start(environment: Mapping[str, str]) -> "Iterator[Callable[..., subprocess.Popen[bytes]]]":
    started: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fluvial", "replay", "--from-log", *arguments]
        started.append(subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def of_replays(kafka: str, prefix: str) -> set[str]:
    names = {*topic_names(kafka), *groups(kafka, prefix)}
    return {name for name in names if name.startswith(f"{prefix}replay-")}


def has_members(kafka: str, prefix: str) -> bool:
    return any(groups(kafka, prefix).values())


def test_after_ctrl_c_nothing_is_left_and_after_kill_9_what_is_left_can_be_deleted(
    prefix: str, kafka: str, fluvial: Fluvial, start: "Callable[..., subprocess.Popen[bytes]]", tmp_path: Path
) -> None:
    replay = start("--data", str(tmp_path / "one"))
    until(lambda: has_members(kafka, f"{prefix}replay-"))
    replay.send_signal(signal.SIGINT)
    assert replay.wait(60) == 130
    assert of_replays(kafka, prefix) == set()

    replay = start("--data", str(tmp_path / "two"))
    until(lambda: has_members(kafka, f"{prefix}replay-"))
    os.kill(replay.pid, signal.SIGKILL)
    replay.wait()
    until(lambda: not has_members(kafka, prefix), seconds=30)
    left = of_replays(kafka, prefix)
    assert f"{next(iter(left))[: len(prefix) + 16]}episodes" in left
    cleaned = fluvial("replay", "--clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert cleaned.stderr.startswith(f"Deleted the topics and groups of {prefix}replay-")
    assert of_replays(kafka, prefix) == set()
    assert f"{prefix}tool-calls" in topic_names(kafka)


def test_a_rebuild_in_place_that_was_killed_keeps_up_from_starting_and_begins_anew(
    prefix: str, kafka: str, fluvial: Fluvial, start: "Callable[..., subprocess.Popen[bytes]]", tmp_path: Path
) -> None:
    data = tmp_path / "data"
    replay = start("--in-place")
    until(lambda: has_members(kafka, prefix))
    os.kill(replay.pid, signal.SIGKILL)
    replay.wait()
    refused = fluvial("up")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"A rebuild of {data} was interrupted: run `fluvial replay --from-log --in-place` again, it begins anew.\n"
    )
    until(lambda: not has_members(kafka, prefix), seconds=30)
    again = fluvial("replay", "--from-log", "--in-place", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["digest"] == json.loads(DIGEST.read_text())["digest"]
    assert not (data / "rebuild.json").exists()
    assert_balanced(kafka, prefix, data, forgotten=ERASED)
