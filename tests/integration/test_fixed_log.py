"""A fixed log has a fixed digest: a change of a record or an algorithm that changes the memory is noticed here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess

from support.fixed_log import DIGEST, REDACTION_KEY, write


def test_the_fixed_log_gives_the_memory_it_gave_before(
    environment: Mapping[str, str], fluvial: Callable[..., CompletedProcess[str]], tmp_path: Path, kafka: str
) -> None:
    assert isinstance(environment, dict)
    environment["FLUVIAL_REDACTION_KEY"] = REDACTION_KEY
    write(kafka, environment["FLUVIAL_TOPIC_PREFIX"])
    ended = fluvial("replay", "--from-log", "--data", str(tmp_path / "new"), "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    found = {name: told[name] for name in ("episodes", "insights", "digest")}
    assert found == json.loads(DIGEST.read_text()), (
        "The same log gives another memory than in the release before. If that is meant, say so in CHANGELOG.md "
        f"(Changed: a new digest, and why), and put this into tests/golden/log/{DIGEST.name}: {json.dumps(found)}"
    )
