"""What `fluvial trace` takes on a long log: one event, a run, and an id that nobody knows.

    python benchmarks/trace.py [--events 100000]

The log is made: calls, clusters of 100 with features, one operation a cluster and its vote, some drift. Prints seconds.
"""

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from kafka import KafkaProducer

from fluvial.cli.kept import Kept
from fluvial.processors.expel import step
from fluvial.schemas.claim import Claim
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, INSIGHT_OPS, KEEP, LAND, TOOL_CALLS, WATCH, Topic
from fluvial.settings import Settings
from fluvial.sinks.episodes import EpisodeStore
from fluvial.sinks.insights import Insights
from fluvial.streams.admin import ensure_topics
from fluvial.streams.broker import LocalBroker
from fluvial.streams.log_reader import LogReader
from fluvial.streams.trace import Trace

START = 1_764_547_200_000_000
CLUSTER = 100
BATCH = 5_000
FEATURES = {f"args.field_{n}": float(n) for n in range(20)}
CLAIM = Claim(source="bench", tool="swap", expected=0.6, reference=0.2)


def episode(number: int) -> Episode:
    return Episode(
        id=f"event-{number}",
        source="bench",
        run_id=f"run-{number // 10}",
        tool="swap",
        status="ok",
        started_at=START + number * 1_000_000,
        text=f"swap number {number} worked.",
        reflection_source="template",
        embedding_model="none",
        log_partition=0,
        log_offset=number,
        features=msgspec.convert(FEATURES, dict),
    )


def call(number: int) -> ToolCall:
    return ToolCall(source="bench", run_id=f"run-{number // 10}", tool="swap", event_id=f"event-{number}", seq=number)


def cluster(number: int) -> Cluster:
    members = [episode(n) for n in range(number * CLUSTER, (number + 1) * CLUSTER)]
    rows = tuple(
        Row(event_id=e.id, run_id=e.run_id, failed=False, at=e.started_at, features=e.features) for e in members
    )
    window = {"window_start": members[0].started_at, "window_end": members[-1].started_at + 1}
    return Cluster(id=f"cluster-{number}", source="bench", tool="swap", rows=rows, **window)


def operations(clusters: int) -> Iterator[InsightOp]:
    fields = {"actor": "distil", "insight_id": "lesson"}
    for number in range(clusters):
        at = START + number * CLUSTER * 1_000_000
        evidence = tuple(f"event-{n}" for n in range(number * CLUSTER, number * CLUSTER + 50))
        about = {"op_id": f"op-{number}", "at": at, "evidence": evidence, "cause": f"cluster-{number}", **fields}
        if number:
            yield InsightOp(op="UPVOTE", reason="prediction", **about)
        else:
            yield InsightOp(op="ADD", reason="episode", content="swap fails.", claim=CLAIM, **about)


def write(broker: str, topic: Topic, records: Iterable[object], every_us: int, partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=broker, linger_ms=20, compression_type="lz4", metrics_enabled=False)
    for number, record in enumerate(records):
        key, value = record if isinstance(record, tuple) else (b"key", encode(record))
        producer.send(topic.name, value, key, partition=partition, timestamp_ms=(START + number * every_us) // 1_000)
    producer.close()


def fill(broker: str, settings: Settings, events: int) -> None:
    ensure_topics(broker)
    clusters = events // CLUSTER
    write(broker, TOOL_CALLS, map(call, range(events)), 1_000_000)
    write(broker, CLUSTERS, map(cluster, range(clusters)), (CLUSTER + 1) * 1_000_000)
    write(broker, INSIGHT_OPS, operations(clusters), (CLUSTER + 1) * 1_000_000)
    for plan, resume in ((LAND, events), (WATCH, events), (KEEP, clusters)):
        marker = (PROGRESS_KEY, encode(Progress(resume=resume, at=START * 2)))
        for partition in range(plan.source.partitions):
            write(broker, plan.state_topic, [marker], 1, partition)
    store = EpisodeStore.create(settings.episodes)
    for first in range(0, events, BATCH):
        batch = [episode(n) for n in range(first, min(first + BATCH, events))]
        store.merge(batch, np.full((len(batch), 384), 0.05, np.float32))
    insights = Insights(settings.insights, step, lambda texts: np.full((len(texts), 384), 0.05, np.float32))
    insights.commit(insights.fold(list(enumerate(operations(clusters)))), Progress(resume=clusters))
    insights.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder) / "kafka") as broker:
        settings = Settings(data=Path(folder), broker=broker.address)
        begun = time.perf_counter()
        fill(broker.address, settings, events)
        print(f"{events:,} events written in {time.perf_counter() - begun:.0f} s")
        for what, name in (
            ("one of the first", f"event-{events // 100}"),
            ("one of the middle", f"event-{events // 2}"),
            ("one of the last", f"event-{events - 5}"),
            ("an unknown id", "nobody"),
        ):
            begun = time.perf_counter()
            with LogReader(broker.address) as reader:
                stations = list(Trace(reader, Kept(settings)).stations(name))
            print(f"{what:<20}{time.perf_counter() - begun:6.2f} s  {', '.join(s['station'] for s in stations)}")
        begun = time.perf_counter()
        with LogReader(broker.address) as reader:
            trace = Trace(reader, Kept(settings))
            found = trace.landed(trace.calls(f"run-{events // 20}", 20))
        print(f"{'a run of ten calls':<20}{time.perf_counter() - begun:6.2f} s  {len(found)} calls")


if __name__ == "__main__":
    main()
