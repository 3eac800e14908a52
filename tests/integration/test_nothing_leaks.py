"""224 invented secrets of 28 kinds through a real river: none is in any store, topic, log, spool or dead letter."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess

import duckdb
import lancedb
from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka import KafkaProducer
from support.planted import Planted, calls, forms, planted
from support.up import Up

from fluvial import Publisher, ToolCall
from fluvial.redaction import redactor_of
from fluvial.schemas.codec import encode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.topics import INSIGHT_OPS, TOOL_CALLS
from fluvial.settings import Settings
from fluvial.sinks.episodes import TABLE
from fluvial.streams.admin import topic_names
from fluvial.streams.log_reader import LogReader

NOBODY = "127.0.0.1:9"
Fluvial = Callable[..., "CompletedProcess[str]"]


def test_no_secret_is_found_anywhere(
    kafka: str, environment: Mapping[str, str], fluvial: Fluvial, tmp_path: Path
) -> None:
    prefix, data = environment["FLUVIAL_TOPIC_PREFIX"], Path(environment["FLUVIAL_DATA"])
    secrets = planted()
    redactor = redactor_of(Settings(data=data))
    raw = set(_foreign(secrets))
    up = Up(environment)
    try:
        up.until("ready", "land", "learn", "keep")
        with Publisher(kafka, topic_prefix=prefix, spool=tmp_path / "spool", redactor=redactor) as publisher:
            for call in [*calls(secrets, "ours"), *_lessons(secrets)]:
                publisher.publish(call, wait=10)
            for number, one in enumerate(secrets):
                publisher.publish(ToolCall(source="ours", run_id="r", tool="", args=[one.value]))  # refused
                publisher.refuse(b"{" + _said(one), f"not JSON: {_said(one).decode()}", place=("file", number), wait=10)
        _send_as_others_do(kafka, prefix, raw, secrets)
        drained = fluvial("drain", "--timeout", "110")
        assert drained.returncode == 0, drained.stderr
        asked = fluvial("dead-letters", "show", "--json").stdout + fluvial("insights", "--json").stdout
        assert fluvial("status").returncode == 0
    finally:
        up.interrupt()
        up.close()
    _fill_a_spool(secrets, tmp_path / "waiting", redactor_of(Settings(data=data)))

    places = {
        **{f"file {file.relative_to(tmp_path)}": file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()},
        **{f"topic {name}": records for name, records in asyncio.run(_topics(kafka, prefix, raw)).items()},
        **dict(_rows_of_episodes(data / "episodes")),
        **dict(_rows_of_insights(data)),
        "what up says": json.dumps(up.said).encode(),
        "what commands say": asked.encode(),
    }
    looked_for = {form for one in secrets for trace in one.traces for form in forms(trace)}
    leaks = {place: [form for form in looked_for if form in content] for place, content in places.items()}
    assert {place: found for place, found in leaks.items() if found} == {}

    # It was all there to be found.
    assert places["insights"].count(b"[redacted:") >= 3
    episodes = b"".join(rows for place, rows in places.items() if place.startswith("episodes, "))
    for source in ("ours", "foreign"):
        assert re.search(rf"'source': '{source}', 'run_id': 'run-\d+'".encode(), episodes)
    marks = re.compile(rb"\[redacted:[a-z_]+:[0-9a-f]{12}\]")
    dead, live = places[f"topic {prefix}dead-letters"], places[f"topic {prefix}episodes"]
    assert len(set(marks.findall(live))) >= len(secrets)
    assert dead.count(b'"hop":"land"') >= 2 * len(secrets)
    assert dead.count(b'"hop":"publish"') == 2 * len(secrets)
    assert len(set(marks.findall(live)) & set(marks.findall(dead))) >= 100  # equal secrets stay equal
    assert any(b"ours" in content for place, content in places.items() if place.startswith("file waiting/"))


def _said(one: Planted) -> bytes:
    return json.dumps(one.value, ensure_ascii=False).encode()


def _foreign(secrets: list[Planted]) -> Iterator[bytes]:
    """What clients that are not ours write: whole calls, calls that break a constraint, and garbage."""
    for number, call in enumerate(calls(secrets, "foreign")):
        whole = encode(call)
        yield whole
        yield whole[:-3]  # an end that is missing
        yield json.dumps({"source": "foreign", "run_id": "r", "tool": "t", "status": secrets[number].value}).encode()
        yield b"\xff\xfe" + _said(secrets[number])


def _lessons(secrets: list[Planted]) -> Iterator[ToolCall]:
    """Runs that fail with one secret and not with another: what is learnt from them is about the secret."""
    tokens = [one.traces[0] for one in secrets if one.kind in ("github", "anthropic")][:2]
    for number in range(120):
        bad = number % 3 == 0
        yield ToolCall(
            source="ours",
            run_id=f"lesson-{number}",
            task_id=f"task-{number}",
            tool="connect",
            seq=0,
            args={"api_key": tokens[bad]},
            status="error" if bad else "ok",
            error_message=f"refused {tokens[bad]}" if bad else None,
            started_at=1_700_000_000_000_000 + number * 1_000_000,
        )


def _send_as_others_do(broker: str, prefix: str, raw: set[bytes], secrets: list[Planted]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker)
    for number, value in enumerate(sorted(raw)):
        key = _said(secrets[number % len(secrets)])
        producer.send(TOOL_CALLS.named(prefix), value, key=key, headers=[("authorization", key)])
    for number, one in enumerate(secrets[::20]):
        rule = f"Connect with {_said(one).decode()} only."
        op = InsightOp(
            op_id=f"op-{number}",
            op="DIRECTIVE",
            reason="operator",
            actor="me",
            at=1,
            insight_id=f"i-{number}",
            content=rule,
        )
        raw.add(encode(op))
        producer.send(INSIGHT_OPS.named(prefix), encode(op), key=b"operator")
    producer.flush()
    producer.close()


def _fill_a_spool(secrets: list[Planted], folder: Path, redactor: object) -> None:
    publisher = Publisher(NOBODY, spool=folder, close_timeout=0.1, redactor=redactor)  # type: ignore[arg-type]
    for call in calls(secrets, "ours"):
        publisher.publish(call)
    publisher.close()


async def _topics(broker: str, prefix: str, raw: set[bytes]) -> dict[str, bytes]:
    """Keys, headers and values of every record but those that others wrote, also of transactions that were aborted."""
    found: dict[str, bytes] = {}
    with LogReader(broker) as reader:
        topics = {name: reader.partitions(name) for name in topic_names(broker) if name.startswith(prefix)}
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        for name, partitions in topics.items():
            places = [TopicPartition(name, partition.partition) for partition in partitions]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            parts: list[bytes] = []
            for place in places:
                consumer.seek(place, 0)
            async with asyncio.timeout(60):
                while any([await consumer.position(place) < ends[place] for place in places]):
                    for messages in (await consumer.getmany(timeout_ms=200)).values():
                        for message in messages:
                            if message.value not in raw:
                                headers = (part for name, value in message.headers for part in (name.encode(), value))
                                parts += (message.key or b"", message.value or b"", *headers)
            found[name] = b"\n".join(parts)
    finally:
        await consumer.stop()
    return found


def _rows_of_episodes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every version of the table that is still there: files are compressed, so they are read as rows too."""
    table = lancedb.connect(folder).open_table(TABLE)
    for version in [version["version"] for version in table.list_versions()]:
        table.checkout(version)
        rows = table.to_arrow().drop_columns(["vector"]).to_pylist()
        yield f"episodes, version {version}", "\n".join(map(str, rows)).encode()


def _rows_of_insights(data: Path) -> Iterator[tuple[str, bytes]]:
    for file in (data / "keep" / "live.duckdb", data / "insights.duckdb"):
        with duckdb.connect(str(file), read_only=True) as database:
            names = [name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            rows = [row for name in names for row in database.execute(f'SELECT * FROM "{name}"').fetchall()]
            yield file.stem if file.stem == "insights" else "live insights", "\n".join(map(str, rows)).encode()
