"""fluvial dead-letters."""

from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer, TopicPartition
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.dead_letters import excerpt
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter, dead_letter_id
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import AGENT_EVENTS, DEAD_LETTERS, EPISODES, INSIGHT_OPS, TOOL_CALLS, Topic
from fluvial.streams.log_reader import LogReader, LogRecord

CALL = ToolCall(source="shop", run_id="run-1", tool="search")


def letter(topic: str, partition: int, offset: int, **fields: Any) -> DeadLetter:
    whole = {"hop": "land", "reason": "not JSON: it ends too early", "value": "{", "at": 1_692_308_040_000_000} | fields
    place = {"topic": topic, "partition": partition, "offset": offset}
    return DeadLetter(id=dead_letter_id(topic, partition, offset), **place, **whole)


def run(river: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["dead-letters", *arguments], env=river.environment)


def objects(result: Any) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]


def records(river: Any, topic: Topic) -> list[LogRecord]:
    with LogReader(river.broker) as reader:
        spans = reader.spans(TopicPartition(topic.named(river.prefix), number) for number in range(topic.partitions))
        return list(reader.read(spans))


def test_without_a_word_more_they_are_shown(dry_river: Any) -> None:
    dry_river.write(DEAD_LETTERS, [letter("tool-calls", 2, 17)])
    result = run(dry_river)
    assert result.exit_code == 0
    _, line = (" ".join(line.split()) for line in result.stdout.splitlines() if line.strip("─ "))
    assert line == f"{letter('tool-calls', 2, 17).id} land not JSON: it ends too early tool-calls[2]@17 {{"
    assert run(dry_river, "show").stdout == result.stdout


def test_with_json_they_are_whole(dry_river: Any) -> None:
    first, second = letter("tool-calls", 2, 17), letter("calls.jsonl", 0, 9, hop="publish", value="x" * 1_000)
    dry_river.write(DEAD_LETTERS, [first, b"what somebody else wrote", second])
    assert objects(run(dry_river, "--json")) == [msgspec.to_builtins(first), msgspec.to_builtins(second)]


def test_they_are_chosen_by_hop_and_by_id(dry_river: Any) -> None:
    first, second = letter("tool-calls", 2, 17, event_id="event"), letter("calls.jsonl", 0, 9, hop="publish")
    dry_river.write(DEAD_LETTERS, [first, second])
    assert [o["id"] for o in objects(run(dry_river, "show", "--hop", "publish", "--json"))] == [second.id]
    assert [o["id"] for o in objects(run(dry_river, "show", first.id, "--json"))] == [first.id]
    assert [o["id"] for o in objects(run(dry_river, "show", "event", "--json"))] == [first.id]


def test_an_id_that_no_dead_letter_has_is_said(dry_river: Any) -> None:
    result = run(dry_river, "show", "nobody")
    assert result.exit_code == 1
    assert result.stderr == "No dead letter is called nobody. `fluvial dead-letters` lists them.\n"


def test_where_there_are_none_that_is_said(dry_river: Any) -> None:
    assert run(dry_river).stdout == "No dead letters.\n"
    assert run(dry_river, "replay").stdout.startswith("0 replayed")


def test_a_record_is_published_again_as_it_was(dry_river: Any) -> None:
    broken = b'{"source": "shop", "run_id": "run-1", \xff'
    dry_river.write(TOOL_CALLS, [CALL, (b"shop|run-1", broken), CALL], partition=2)
    dry_river.write(DEAD_LETTERS, [letter(f"{dry_river.prefix}tool-calls", 2, 1)])
    result = run(dry_river, "replay")
    assert result.exit_code == 0
    assert result.stdout == "1 replayed, 0 the same again, 0 not replayable. `fluvial drain` waits for them.\n"
    last = records(dry_river, TOOL_CALLS)[-1]
    assert (last.partition.partition, last.key, last.value) == (2, b"shop|run-1", broken)


def test_a_record_in_another_format_is_published_again_with_its_headers_and_without_those_of_a_hop(
    dry_river: Any,
) -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"7")]
    with KafkaProducer(bootstrap_servers=dry_river.broker) as producer:
        for topic, marks in ((AGENT_EVENTS, []), (TOOL_CALLS, [("origin", b"join/0"), ("epoch", b"3")])):
            producer.send(topic.named(dry_river.prefix), b"{}", headers=[*marks, *headers], partition=1)
    dry_river.write(DEAD_LETTERS, [letter("agent-events", 1, 0, hop="events"), letter("tool-calls", 1, 0)])
    assert [o["outcome"] for o in objects(run(dry_river, "replay", "--json"))] == ["replayed"] * 2
    for topic in (AGENT_EVENTS, TOOL_CALLS):
        again = records(dry_river, topic)[-1]
        assert (again.partition.partition, again.value, list(again.headers)) == (1, b"{}", headers)


def test_the_same_event_is_published_once_however_often_it_died(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [(b"k", b"broken"), (b"k", b"broken"), (b"k", b"other")])
    places = [letter("tool-calls", 0, offset) for offset in range(3)]
    dry_river.write(DEAD_LETTERS, places)
    answer = objects(run(dry_river, "replay", "--json"))
    assert [(o["id"], o["outcome"]) for o in answer] == [
        (places[0].id, "replayed"),
        (places[1].id, "same"),
        (places[2].id, "replayed"),
    ]
    assert [r.value for r in records(dry_river, TOOL_CALLS)] == [b"broken", b"broken", b"other", b"broken", b"other"]


def test_an_operation_on_insights_is_published_again(dry_river: Any) -> None:
    op = InsightOp(op_id="op-1", op="UPVOTE", reason="operator", actor="ann", at=1, insight_id="i")
    dry_river.write(INSIGHT_OPS, [op])
    dry_river.write(DEAD_LETTERS, [letter("insight-ops", 0, 0, hop="keep")])
    assert [o["outcome"] for o in objects(run(dry_river, "replay", "--json"))] == ["replayed"]
    assert [r.value for r in records(dry_river, INSIGHT_OPS)] == [encode(op)] * 2


def test_a_call_refused_at_publishing_is_published_if_it_has_become_valid(dry_river: Any) -> None:
    dead = letter("calls.jsonl", 0, 7, hop="publish", value=encode(CALL).decode())
    dry_river.write(DEAD_LETTERS, [dead])
    assert [o["outcome"] for o in objects(run(dry_river, "replay", "--json"))] == ["replayed"]
    (record,) = records(dry_river, TOOL_CALLS)
    assert (record.key, record.value) == (b"shop|run-1", encode(CALL))


@pytest.mark.parametrize(
    ("dead", "why"),
    [
        (letter("calls.jsonl", 0, 7, hop="publish"), "what was kept of it is not JSON"),
        (letter("calls.jsonl", 0, 7, hop="publish", value="[]", size=300_000), "only 256 KiB of its 300,000 bytes"),
        (letter("tool-calls", 0, 99), r"tool-calls[0] holds no record at offset 99 any more"),
        (letter("episodes", 0, 0, hop="watch"), "episodes is what the river makes of what was published"),
    ],
)
def test_what_cannot_be_replayed_is_said_with_the_reason(dry_river: Any, dead: DeadLetter, why: str) -> None:
    dry_river.write(EPISODES, [b"{}"])
    dry_river.write(DEAD_LETTERS, [dead])
    (answer,) = objects(run(dry_river, "replay", "--json"))
    assert answer["outcome"] == "impossible"
    assert answer["why"].startswith(why)
    assert records(dry_river, TOOL_CALLS) == []
    assert len(records(dry_river, EPISODES)) == 1
    shown = run(dry_river, "replay").stdout
    assert dead.id in shown and why in shown


def test_an_excerpt_cannot_move_the_cursor_of_a_terminal() -> None:
    assert excerpt("a\x1b[31mred\r\n\u202e") == "a·[31mred  ·"
    assert excerpt("x" * 61) == "x" * 60 + "…"
