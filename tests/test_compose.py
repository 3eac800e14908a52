"""compose.yaml and the Dockerfile, as far as they can be checked where no container engine is."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fluvial.schemas.topics import HOPS
from fluvial.settings import Settings
from fluvial.streams.broker_jars import KAFKA_VERSION
from fluvial.streams.broker_settings import JAVA_OPTIONS, server_properties
from fluvial.streams.supervise import GROUPS

ROOT = Path(__file__).parents[1]
SERVICES = {"receive": GROUPS["receive"]} | {hop: (hop,) for hop in HOPS if hop not in GROUPS["receive"]}
OF_CONTAINERS = {"LISTENERS", "ADVERTISED", "LISTENER", "CONTROLLER", "INTER", "NODE", "LOG_DIRS", "HEAP"}
"""The beginnings of Kafka's settings that differ because there is a network, not a loopback."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


def test_it_is_valid_by_the_schema_of_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    said = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_schema_would_have_found_a_wrong_key(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((ROOT / "compose.yaml").read_text().replace("healthcheck:", "healthchek:"))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(wrong)]
    said = subprocess.run(check, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "healthchek" in said.stdout


def test_every_hop_is_a_service_of_its_own_and_those_that_receive_share_one(compose: dict[str, Any]) -> None:
    workers = {name: service["command"] for name, service in compose["services"].items() if "command" in service}
    assert workers == {name: ["--hops", ",".join(hops)] for name, hops in SERVICES.items()}
    assert [hop for hops in SERVICES.values() for hop in hops] == list(HOPS)


def test_the_health_of_a_service_is_that_of_its_own_hops(compose: dict[str, Any]) -> None:
    tests = {name: compose["services"][name]["healthcheck"]["test"] for name in SERVICES}
    assert tests == {name: ["CMD", "python", "-m", "fluvial.streams.health", *hops] for name, hops in SERVICES.items()}


def test_the_kafka_is_the_one_that_is_tested(compose: dict[str, Any]) -> None:
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_the_kafka_is_set_as_the_local_broker(compose: dict[str, Any]) -> None:
    local = {name.replace(".", "_").upper(): value for name, value in server_properties(9092, 9093).items()}
    given = {name.removeprefix("KAFKA_"): value for name, value in compose["services"]["kafka"]["environment"].items()}
    assert given["HEAP_OPTS"] in JAVA_OPTIONS
    alike = {name: value for name, value in given.items() if not name.startswith(tuple(OF_CONTAINERS))}
    assert len(alike) > 15
    assert alike.items() <= local.items()


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_service_is_watched_starts_again_and_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert "restart" in service
        assert "healthcheck" in service or name == "topics"
        for needed in service.get("depends_on", {}):
            assert needed in compose["services"]


def test_what_must_last_is_on_named_volumes(compose: dict[str, Any]) -> None:
    used = {volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert used == set(compose["volumes"])


def test_every_setting_given_is_one_that_exists(compose: dict[str, Any]) -> None:
    given = {name for service in compose["services"].values() for name in service["environment"]}
    known = {f"FLUVIAL_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in given if name.startswith("FLUVIAL_")} <= known


def test_the_image_is_built_from_files_that_are_there_and_its_packages_are_checked_by_hash() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert copied == ["requirements/build.txt", ".", "requirements/runtime.txt"]
    assert all((ROOT / file).exists() for file in copied)
    installs = [line for line in lines if "pip install" in line]
    assert all("--require-hashes" in line or re.search(r"--no-deps /tmp/wheel/\*\.whl", line) for line in installs)
    assert "USER fluvial" in lines
