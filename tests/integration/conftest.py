"""Real processes: the command line as a user runs it, on the test's own topics and data folder."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

COMMAND_SECONDS = 120.0

Fluvial = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(kafka: str, topic_prefix: str, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a fluvial process: the test's broker, topics and data folder, nothing of the user's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")}
    own = {"BROKER": kafka, "TOPIC_PREFIX": topic_prefix, "DATA": str(tmp_path / "data"), "QUACK_PORT": "0"}
    return inherited | {f"FLUVIAL_{name}": value for name, value in own.items()}


@pytest.fixture
def fluvial(environment: Mapping[str, str]) -> Fluvial:
    """Run `fluvial ARGUMENTS...` and give back its exit code and output; `stdin` is what it reads."""

    def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "fluvial", *arguments],
            env=dict(environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    return run
