"""fluvial replay: the memory is made of the log once more, beside the river or in its place."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from kafka import KafkaProducer
from support.balance import assert_balanced
from support.up import Up

from fluvial import Publisher
from fluvial.schemas.codec import encode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.topics import CLUSTERS, INSIGHT_OPS
from fluvial.streams.admin import delete_topics, groups, topic_names

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
from agents import trade
from market import read_market

CALLS = 600
Fluvial = Callable[..., CompletedProcess[str]]


def publish(kafka: str, prefix: str, first: int, last: int) -> None:
    with Publisher(kafka, topic_prefix=prefix) as publisher:
        for number, call in enumerate(trade(read_market(), 1_900, 1_200, 4, seed=1)):
            if first <= number < last:
                publisher.publish(call, wait=10)


def operate(kafka: str, prefix: str, *ops: InsightOp) -> None:
    """What an operator writes by hand: plain records, without the headers of a hop."""
    producer = KafkaProducer(bootstrap_servers=kafka, metrics_enabled=False)
    for op in ops:
        producer.send(INSIGHT_OPS.named(prefix), encode(op), key=op.insight_id.encode()).get(timeout=10)
    producer.close()


def operation(kind: Any, insight_id: str, name: str, content: str | None = None) -> InsightOp:
    now = time.time_ns() // 1_000
    return InsightOp(
        op_id=name, op=kind, reason="operator", actor="ops", at=now, insight_id=insight_id, content=content
    )


def answers(ended: CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def digest_of(fluvial: Fluvial) -> str:
    (drained,) = answers(fluvial("drain", "--timeout", "100", "--json"))
    assert drained["drained"]
    (found,) = answers(fluvial("digest", "--json"))
    return str(found["digest"])


def left_on(kafka: str, prefix: str) -> list[str]:
    """Topics and groups of replays."""
    names = {*topic_names(kafka), *groups(kafka, prefix)}
    return sorted(name for name in names if name.startswith(f"{prefix}replay-"))


def test_the_log_gives_the_same_memory_beside_the_river_and_in_its_place(
    environment: Mapping[str, str], fluvial: Fluvial, tmp_path: Path, kafka: str
) -> None:
    prefix, data = environment["FLUVIAL_TOPIC_PREFIX"], tmp_path / "data"
    up = Up(environment)
    try:
        up.until("ready", "land", "learn", "keep")
        publish(kafka, prefix, 0, CALLS - 100)
        digest_of(fluvial)
        lesson = answers(fluvial("sql", "SELECT id FROM insights ORDER BY id", "--json"))[0]["id"]
        operate(
            kafka,
            prefix,
            operation("DIRECTIVE", "rule-1", "o-1", "Never swap more than 10 % of a pool."),
            operation("DOWNVOTE", lesson, "o-2"),
            operation("EDIT", "nobody", "o-3", "This insight is unknown."),
        )
        publish(kafka, prefix, CALLS - 100, CALLS)
        before = digest_of(fluvial)
        operated = answers(fluvial("sql", "SELECT op_id FROM history WHERE op_id LIKE 'o-%' ORDER BY 1", "--json"))
        assert [row["op_id"] for row in operated] == ["o-1", "o-2"]

        new = tmp_path / "new"
        (told,) = answers(fluvial("replay", "--from-log", "--data", str(new), "--json"))
        assert (told["digest"], told["river"], told["same"]) == (before, before, True)
        assert told["episodes"] == CALLS
        assert left_on(kafka, prefix) == []
        assert digest_of(fluvial) == before
        assert_balanced(kafka, prefix, data)
        refused = fluvial("replay", "--from-log", "--data", str(new))
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"{new} is not empty: a replay needs a new folder.")

        assert fluvial("replay", "--from-log", "--in-place").stderr.startswith("`fluvial up` already runs on ")
    finally:
        up.interrupt()
        up.close()

    delete_topics(kafka, [CLUSTERS.named(prefix)])
    broken = Up(environment)
    try:
        (ended,) = broken.until("ended", "learn")
        assert "the topic has lost its newest records" in ended["reason"]
        assert "run `fluvial replay --from-log --in-place`" in ended["reason"]
    finally:
        broken.interrupt()
        broken.close()

    (told,) = answers(fluvial("replay", "--from-log", "--in-place", "--json"))
    assert told["digest"] == before
    assert (Path(told["before"]) / "insights.duckdb").is_file()
    assert_balanced(kafka, prefix, data)
    mended = Up(environment)
    try:
        mended.until("ready", "land", "learn", "keep")
        assert digest_of(fluvial) == before
        publish(kafka, prefix, CALLS, CALLS + 50)
        assert digest_of(fluvial) != before
        assert_balanced(kafka, prefix, data)
    finally:
        mended.interrupt()
        mended.close()
