"""Every hop alone: events a second and CPU an event, against a bare reader of the same topic; land twice.

    .venv/bin/python benchmarks/hops.py [--calls 11513]      # needs the recorded calls of ../shared (or FLUVIAL_SHARED)

One local Apache Kafka, one partition of work after the other: a worker process with one hop handles what stands in its
topic, from its start to the end of the topic. `stubbed` is land with an embedder that costs nothing. `bare` reads and
decodes the same topic with aiokafka and msgspec, and does nothing with it. Rates count whole batches of work that was
waiting, so the start of the process and of its model are not in them.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition
from land import real_calls

from fluvial import Publisher
from fluvial.processors.embed import Embedder
from fluvial.schemas.codec import decode
from fluvial.schemas.topics import HOPS, LAND, HopPlan
from fluvial.streams.admin import ensure_topics
from fluvial.streams.broker import LocalBroker
from fluvial.streams.drain import flush
from fluvial.streams.log_reader import LogReader
from fluvial.streams.partition import TICK_HEADER
from fluvial.streams.progress import marks
from fluvial.streams.worker import main as work

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("FLUVIAL_SHARED", ROOT.parent / "shared"))
MEASURED = ("watch", "gather", "distil", "keep", "notify")
LIMIT_SECONDS = 600.0


class Cost(NamedTuple):
    events: int
    seconds: float
    cpu_seconds: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=11_513)
    parser.add_argument("--stubbed-land", action="store_true", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.stubbed_land:
        stub()
        work(rest)
        return
    calls = real_calls(SHARED)[: options.calls]
    print(f"{'hop':<14}{'events':>8}{'events/s':>10}{'CPU us/event':>14}{'bare us/event':>15}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder) / "kafka") as broker:
        for prefix, stubbed in (("stubbed-", True), ("real-", False)):
            ensure_topics(broker.address, prefix=prefix)
            with Publisher(broker.address, topic_prefix=prefix) as publisher:
                for call in calls:
                    publisher.publish(call, wait=30)
            name = "land, stubbed" if stubbed else "land"
            show(name, LAND, broker.address, prefix, alone(LAND, broker.address, prefix, folder, stubbed=stubbed))
        for hop in MEASURED:
            show(hop, HOPS[hop], broker.address, "real-", alone(HOPS[hop], broker.address, "real-", folder))


def stub() -> None:
    """Vectors that cost nothing, in this process."""

    def embed(self: Embedder, texts: list[str], on_batch: object = None) -> Any:
        vectors = np.zeros((len(texts), 384), dtype=np.float32)
        vectors[:, 0] = 1.0
        return vectors

    Embedder.embed = embed  # type: ignore[method-assign, assignment]


def alone(plan: HopPlan, broker: str, prefix: str, folder: str, *, stubbed: bool = False) -> Cost:
    """Run a worker with this hop until it has passed a flush tick behind everything."""
    environment = os.environ | {
        "FLUVIAL_BROKER": broker,
        "FLUVIAL_TOPIC_PREFIX": prefix,
        "FLUVIAL_DATA": f"{folder}/{prefix}data",
        "FLUVIAL_QUACK_PORT": "0",
    }
    command = (
        [sys.executable, __file__, "--stubbed-land"] if stubbed else [sys.executable, "-m", "fluvial.streams.worker"]
    )
    with LogReader(broker) as reader:
        slot = flush(reader, prefix) if plan is LAND else 0
        worker = subprocess.Popen([*command, "--hops", plan.name], env=environment, stderr=subprocess.DEVNULL)
        try:
            return measured(plan, reader, prefix, psutil.Process(worker.pid), slot)
        finally:
            worker.terminate()
            worker.wait(60)


def measured(plan: HopPlan, reader: LogReader, prefix: str, process: psutil.Process, slot: int) -> Cost:
    """From the first committed record to the last flush: events, wall and CPU seconds."""
    deadline = time.monotonic() + LIMIT_SECONDS
    begun: tuple[int, float, float] | None = None
    while time.monotonic() < deadline:
        known = [mark.progress for mark in marks(reader, [plan], prefix).values()]
        read, flushed = sum(progress.read for progress in known), min(progress.flushed for progress in known)
        used = process.cpu_times()
        now = read, time.monotonic(), used.user + used.system
        begun = begun or (now if read else None)
        if flushed > 0 and flushed >= slot:
            first = begun or now
            return Cost(now[0] - first[0], now[1] - first[1], now[2] - first[2])
        time.sleep(0.05)
    raise TimeoutError(f"{plan.name} has not come to its end in {LIMIT_SECONDS:g} s")


async def bare(plan: HopPlan, broker: str, prefix: str) -> Cost:
    """Read and decode the hop's source."""
    topic = plan.source
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed")
    await consumer.start()
    places = [TopicPartition(topic.named(prefix), number) for number in range(topic.partitions)]
    consumer.assign(places)
    ends = await consumer.end_offsets(places)
    for place in places:
        consumer.seek(place, 0)
    events, wall, cpu = 0, time.monotonic(), time.process_time()
    while any([await consumer.position(place) < ends[place] for place in places]):
        for messages in (await consumer.getmany(timeout_ms=100)).values():
            for message in messages:
                if TICK_HEADER not in message.headers:
                    decode(message.value, topic.record)
                    events += 1
    cost = Cost(events, time.monotonic() - wall, time.process_time() - cpu)
    await consumer.stop()
    return cost


def show(name: str, plan: HopPlan, broker: str, prefix: str, cost: Cost) -> None:
    reader = asyncio.run(bare(plan, broker, prefix))
    if not cost.events or not reader.events:
        print(f"{name:<14}{cost.events:>8,}   too few to measure")
        return
    own, floor = 1e6 * cost.cpu_seconds / cost.events, 1e6 * reader.cpu_seconds / reader.events
    rate = cost.events / cost.seconds
    print(f"{name:<14}{cost.events:>8,}{rate:>10,.0f}{own:>14,.0f}{floor:>15,.0f}{own / floor:>7,.1f}")


if __name__ == "__main__":
    main()
