"""What is installed: the links, the wheel and the source distribution they become, and what the locks pin."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ROOMS = ("schemas", "drift", "processors", "sinks", "streams")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built here with what is installed."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, as an installer would lay it."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


def sources() -> Iterator[str]:
    """The files of the rooms, as they are named in an archive."""
    for room in ROOMS:
        for file in (ROOT / room).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"fluvial/{file.relative_to(ROOT)}"


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_a_relative_link_to_the_folder_at_the_top(room: str) -> None:
    link = ROOT / "fluvial" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room
    assert link.resolve() == ROOT / room


def test_the_links_are_the_only_ones() -> None:
    assert {file.name for file in (ROOT / "fluvial").iterdir() if file.is_symlink()} == set(ROOMS)


def test_the_wheel_holds_every_room_as_real_files_and_nothing_beside_fluvial(installed: Path) -> None:
    assert set(sources()) <= {str(file.relative_to(installed)) for file in installed.rglob("*")}
    assert not any(file.is_symlink() for file in installed.rglob("*"))
    assert {file.name.partition("-")[0] for file in installed.iterdir()} == {"fluvial"}


def test_the_source_distribution_holds_every_room_as_real_files(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isreg()}
    assert set(sources()) <= files
    assert {"pyproject.toml", "README.md", "LICENSE"} <= files


def test_what_is_installed_imports_without_the_sources(installed: Path) -> None:
    modules = ["fluvial.schemas.topics", "fluvial.streams.broker", "fluvial.settings", "fluvial.cli"]
    code = f"import importlib\nfor name in {modules}: print(importlib.import_module(name).__file__)"
    for line in run_installed(installed, "-c", code).splitlines():
        assert line.startswith(str(installed))


def test_the_command_is_installed_and_helps(installed: Path, project: dict[str, Any]) -> None:
    [entry] = installed.glob("*.dist-info/entry_points.txt")
    assert "fluvial = fluvial.cli:main" in entry.read_text()
    assert project["project"]["scripts"] == {"fluvial": "fluvial.cli:main"}
    helped = run_installed(installed, "-c", "import sys; from fluvial.cli import main; sys.exit(main())", "--help")
    assert "publish" in helped


def test_the_jars_of_the_broker_are_locked_in_the_wheel(installed: Path) -> None:
    code = "from fluvial.streams.broker_jars import locked_jars; print(len(locked_jars()))"
    assert run_installed(installed, "-c", code).strip() == "46"


def run_installed(installed: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    said = subprocess.run(
        [sys.executable, *arguments], cwd=installed, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def pins(lock: str) -> dict[str, set[str]]:
    """name -> versions (a lock for every system and Python may pin several)."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", lock, re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def needed(project: dict[str, Any], lock: str) -> list[str]:
    requirements: list[str] = {
        "runtime": project["project"]["dependencies"],
        "dev": project["project"]["dependencies"] + project["dependency-groups"]["dev"],
        "build": project["build-system"]["requires"],
    }[lock]
    return requirements


@pytest.mark.parametrize("name", ["runtime", "dev", "build"])
def test_a_lock_pins_what_the_project_needs_with_hashes_and_names_no_registry(
    project: dict[str, Any], name: str
) -> None:
    lock = (ROOT / "requirements" / f"{name}.txt").read_text()
    pinned = pins(lock)
    for requirement in map(Requirement, needed(project, name)):
        versions = pinned.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement} is not in requirements/{name}.txt: run `make lock`"
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), requirement
    entries = [entry for entry in re.split(r"\n(?=\S)", lock) if not entry.startswith("#")]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|^\s*-[fi]\b|^--(?!hash)", lock, re.MULTILINE)


def test_the_runtime_and_the_tests_run_the_same_versions() -> None:
    runtime, dev = (pins((ROOT / "requirements" / f"{name}.txt").read_text()) for name in ("runtime", "dev"))
    assert runtime.items() <= dev.items()


def test_no_torch_is_needed() -> None:
    assert not {"torch", "sentence-transformers"} & set(pins((ROOT / "requirements" / "dev.txt").read_text()))
