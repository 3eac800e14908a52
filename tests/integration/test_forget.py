"""`fluvial forget` on a river of real processes: three runs, one is forgotten, and every byte is looked at."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from support.log_copy import copy
from support.up import Up

from fluvial import Publisher
from fluvial.schemas.topics import ALL_TOPICS, DEAD_LETTERS, INSIGHT_OPS, TOOL_CALLS
from fluvial.streams.admin import ensure_topics

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
from agents import trade
from market import read_market

CALLS = 700
SECRET, OTHER, THIRD = (f"run-{name}-5f0c2b7e9d3a41c8a6e4d10b" for name in ("secret", "other", "third"))
WORDS = {SECRET: "Marmaduke7c1e Fitzgerald", OTHER: "Ophelia9d2f Bracegirdle", THIRD: "Quentin3a8b Postlethwaite"}

Fluvial = Callable[..., CompletedProcess[str]]


def lines(run: str, n: int = 12) -> str:
    calls = [
        {
            "type": "tool_call",
            "source": "desk",
            "run_id": run,
            "tool": "pay",
            "seq": number,
            "args": {"to": WORDS[run], "amount": number},
            "result": f"paid {WORDS[run]} {number}",
            "status": "error" if number % 3 == 0 else "ok",
            "started_at": 1_692_308_045_000_000 + number,
        }
        for number in range(n)
    ]
    return "".join(json.dumps(call) + "\n" for call in calls)


def refused(run: str) -> str:
    """A call that land cannot use: its dead letter holds it."""
    call = {
        "source": "desk",
        "run_id": run,
        "tool": "pay",
        "seq": 99,
        "args": WORDS[run],
        "started_at": 9,
        "ended_at": 1,
    }
    return json.dumps(call)


@pytest.fixture
def up(environment: Mapping[str, str]) -> Iterator[Callable[[], Up]]:
    started: list[Up] = []

    def start() -> Up:
        started.append(Up(environment))
        started[-1].until("ready", "land", "learn", "keep")
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.interrupt()
        one.close()


def objects(answer: CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.stdout.splitlines()]


def drained(fluvial: Fluvial) -> None:
    answer = fluvial("drain", "--timeout", "100")
    assert answer.returncode == 0, answer.stderr


def digest(fluvial: Fluvial) -> dict[str, Any]:
    drained(fluvial)
    return objects(fluvial("digest", "--json"))[0]


async def records(broker: str, prefix: str) -> dict[str, list[tuple[bytes, bytes, bool]]]:
    """Key, value and whether it is a tick, of everything committed in every topic; of state the last of each key."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed")
    await consumer.start()
    found: dict[str, list[tuple[bytes, bytes, bool]]] = {}
    try:
        for topic in ALL_TOPICS:
            places = [TopicPartition(topic.named(prefix), number) for number in range(topic.partitions)]
            consumer.assign(places)
            ends, begins = await consumer.end_offsets(places), await consumer.beginning_offsets(places)
            for place in places:
                consumer.seek(place, begins[place])
            rows: dict[Any, tuple[bytes, bytes, bool]] = {}
            async with asyncio.timeout(60):
                while any([await consumer.position(place) < ends[place] for place in places]):
                    for place, messages in (await consumer.getmany(timeout_ms=200)).items():
                        for m in messages:
                            where = (place, m.key) if topic.compacted else (place, m.offset)
                            rows[where] = (m.key or b"", m.value or b"", ("record", b"tick") in m.headers)
            found[topic.name] = [row for row in rows.values() if row[1]]
    finally:
        await consumer.stop()
    return found


def topics_with(broker: str, prefix: str, *needles: str) -> set[str]:
    return {
        name
        for name, rows in asyncio.run(records(broker, prefix)).items()
        for key, value, is_tick in rows
        if not is_tick and any(needle.encode() in key + value for needle in needles)
    }


def files_with(folder: Path, *needles: str) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and any(needle.encode() in file.read_bytes() for needle in needles)
    }


def market(broker: str, prefix: str) -> None:
    with Publisher(broker, topic_prefix=prefix) as publisher:
        for number, call in enumerate(trade(read_market(), 1_900, 1_200, 4, seed=1)):
            if number < CALLS:
                publisher.publish(call, wait=10)


def found_by_name(answer: CompletedProcess[str]) -> dict[str, tuple[int, int]]:
    return {place["place"]: (place["found_before"], place["found_after"]) for place in objects(answer)}


def test_a_run_is_forgotten_everywhere_and_for_ever(
    environment: Mapping[str, str], fluvial: Fluvial, up: Callable[[], Up], kafka: str, tmp_path: Path
) -> None:
    prefix, data = environment["FLUVIAL_TOPIC_PREFIX"], tmp_path / "data"
    first = up()
    market(kafka, prefix)
    for run in WORDS:
        assert fluvial("publish", "-", stdin=lines(run)).returncode == 0
        fluvial("publish", "-", stdin=refused(run))
    before = digest(fluvial)
    assert before["episodes"]["count"] == CALLS + 3 * 12
    assert before["insights"]["count"] > 0
    needles = (SECRET, *WORDS[SECRET].split())
    assert {"tool-calls", "episodes", "dead-letters", "land-state"} <= topics_with(kafka, prefix, *needles)
    assert files_with(data, SECRET)
    ids = [event["id"] for event in objects(fluvial("search", WORDS[SECRET], "--limit", "12", "--json"))]
    lessons = objects(fluvial("sql", "SELECT id, support FROM insights ORDER BY id", "--json"))

    answer = fluvial("forget", "--run", SECRET, "--json")
    assert answer.returncode == 0, answer.stderr + answer.stdout
    places = found_by_name(answer)
    assert places["episode store"] == places["episodes"] == (12, 0)
    assert places["dead-letters"] == (1, 0)
    assert places["episode store: bytes"][0] > 0
    assert places["tool-calls"][1] > 0
    logs = {place["place"] for place in objects(answer) if place["is_log"]}
    assert all(after == 0 for name, (_, after) in places.items() if name not in logs)

    assert files_with(data, *needles, *ids) == set()
    assert topics_with(kafka, prefix, *needles) == {TOOL_CALLS.name}
    assert topics_with(kafka, prefix, *ids) <= {TOOL_CALLS.name, INSIGHT_OPS.name}
    assert "Ophelia9d2f" in fluvial("search", WORDS[OTHER], "--limit", "3").stdout
    assert "Marmaduke7c1e" not in fluvial("search", WORDS[SECRET], "--limit", "30").stdout
    assert objects(fluvial("sql", "SELECT id, support FROM insights ORDER BY id", "--json"))[: len(lessons)] == lessons
    letters = objects(fluvial("dead-letters", "--json"))
    assert sorted(run for run in WORDS if any(run in letter["value"] for letter in letters)) == [OTHER, THIRD]

    assert fluvial("publish", "-", stdin=lines(SECRET)).returncode == 0
    after = digest(fluvial)
    assert after["episodes"]["count"] == CALLS + 2 * 12
    assert files_with(data, *needles) == set()

    replayed = fluvial("replay", "--from-log", "--data", str(tmp_path / "replayed"), "--json")
    assert (replayed.returncode, objects(replayed)[0]["digest"]) == (0, after["digest"]), replayed.stderr
    assert files_with(tmp_path / "replayed", *needles) == set()
    assert first.interrupt() == 0

    second = f"{prefix}again{uuid.uuid4().hex[:6]}-"
    ensure_topics(kafka, prefix=second)
    asyncio.run(copy(kafka, prefix, second))
    assert isinstance(environment, dict)
    environment.update({"FLUVIAL_TOPIC_PREFIX": second, "FLUVIAL_DATA": str(tmp_path / "again")})
    again = up()
    assert digest(fluvial) == after
    drained(fluvial)
    assert files_with(tmp_path / "again", *needles) == set()
    assert topics_with(kafka, second, *needles) <= {TOOL_CALLS.name}
    assert again.interrupt() == 0


def test_land_killed_again_and_again_while_it_forgets_forgets_all_the_same(
    environment: Mapping[str, str], fluvial: Fluvial, up: Callable[[], Up], kafka: str, tmp_path: Path
) -> None:
    prefix, data = environment["FLUVIAL_TOPIC_PREFIX"], tmp_path / "data"
    one = up()
    for run in WORDS:
        assert fluvial("publish", "-", stdin=lines(run, 150)).returncode == 0
    drained(fluvial)
    done = threading.Event()

    def kill() -> None:
        """Each land that is ready, a little later each time."""
        for pause in (0.0, 0.15, 0.4, 0.8):
            if done.wait(pause):
                return
            land = [line["pid"] for line in one.said if line["what"] == "ready" and line.get("name") == "land"][-1]
            os.kill(land, signal.SIGKILL)
            one.until("ready", "land")

    command = [sys.executable, "-m", "fluvial", "forget", "--subject", "marmaduke7c1e FITZGERALD", "--yes"]
    forgetting = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True)
    time.sleep(3)  # it first looks through everything
    killer = threading.Thread(target=kill)
    killer.start()
    said, _ = forgetting.communicate(timeout=240)
    done.set()
    killer.join()
    assert forgetting.returncode == 0, said
    drained(fluvial)
    needles = (SECRET, *WORDS[SECRET].split())
    assert files_with(data, *needles) == set()
    assert topics_with(kafka, prefix, *needles) <= {TOOL_CALLS.name, INSIGHT_OPS.name}
    assert digest(fluvial)["episodes"]["count"] == 300
    assert fluvial("publish", "-", stdin=lines(SECRET, 150)).returncode == 0
    assert digest(fluvial)["episodes"]["count"] == 300
    assert objects(fluvial("dead-letters", "--json")) == []


def test_what_cannot_be_forgotten_is_said_before_anything_is_done(fluvial: Fluvial) -> None:
    for arguments in ((), ("--run", "a", "--agent", "b"), ("--run", " ")):
        answer = fluvial("forget", *arguments)
        assert (answer.returncode, answer.stderr) == (2, "Name one of --run, --agent and --subject.\n")
    unknown = fluvial("forget", "--run", "nobody", "--yes")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("Nothing tells of run nobody")
    assert DEAD_LETTERS.name not in unknown.stdout
