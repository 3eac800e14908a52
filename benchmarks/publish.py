"""What publishing costs an agent: latency of `with publisher.call(...)` and CPU a call, with and without a spool.

    .venv/bin/python benchmarks/publish.py [--calls 1500]

One local Apache Kafka. Every way publishes the same calls in turns of 100, a call each millisecond, so that what else
the machine does meets all of them. `nothing sent` records, redacts and encodes a call and lets it go: the ratios stand
against it. `kafka-python` is a bare `send` of bytes that are ready, without a call around it. CPU is that of all
threads of the process until everything is acknowledged; while the broker is away, until everything is in the spool.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fluvial import Publisher, ToolCall
from fluvial.prepare import prepare
from fluvial.processors.redact import Redactor
from fluvial.producer import Producer
from fluvial.schemas.topics import TOOL_CALLS
from fluvial.streams.admin import ensure_topics
from fluvial.streams.broker import LocalBroker

TURN = 100
PACE_SECONDS = 0.001
NOBODY = "127.0.0.1:1"
ARGS = {"amount_usd": 500, "tolerance_bps": 10, "route": ["USDC", "WETH"], "deadline": 1_700_000_000}
RESULT = {"hash": "0x" + "5e" * 32, "received": "0.2913", "steps": [{"pool": "0x" + "45" * 20, "fee": 500}] * 2}

Publish = Callable[[int], None]


class Nowhere(Publisher):
    """Takes every call and sends none."""

    def send(self, call: ToolCall, value: bytes, wait: float = 0.0) -> bool:
        return True


def through(publisher: Publisher) -> Publish:
    def publish(number: int) -> None:
        with publisher.call("swap", ARGS, chain="polygon", token_pair="USDC/WETH") as call:
            call.result = RESULT
            call.metrics["gas_gwei"] = 31.0 + number

    return publish


def bare(broker: str) -> tuple[Publish, Producer]:
    """kafka-python alone."""
    call = ToolCall(source="agent", run_id="r", tool="swap", args=ARGS, result=RESULT, metrics={"gas_gwei": 31.0})
    value = prepare(call, Redactor())[1]
    producer = Producer(broker, 5.0)
    producer.partitions_for(TOOL_CALLS.name)
    return lambda number: producer.send(TOOL_CALLS.name, value, b"agent|r"), producer


@contextmanager
def ways(broker: str, folder: Path) -> Iterator[dict[str, tuple[Publish, Callable[[], Any]]]]:
    """Name -> how to publish one call, and how to wait for what was published."""
    options: dict[str, dict[str, Any]] = {
        "memory only": {"spool": False},
        "spool": {"spool": folder / "second"},
        "spool, sync=never": {"spool": folder / "never", "spool_sync": "never"},
        "spool, sync=record": {"spool": folder / "record", "spool_sync": "record"},
    }
    publishers = {name: Publisher(broker, close_timeout=30, **more) for name, more in options.items()}
    away = {"spool, broker away": Publisher(NOBODY, spool=folder / "away", close_timeout=0)}
    away |= {"memory, broker away": Publisher(NOBODY, spool=False, close_timeout=0, buffer_calls=100_000)}
    nowhere = Nowhere(NOBODY, spool=False)
    send, producer = bare(broker)
    try:
        yield (
            {"nothing sent": (through(nowhere), lambda: None), "kafka-python": (send, producer.flush)}
            | {name: (through(publisher), publisher.flush) for name, publisher in publishers.items()}
            | {name: (through(publisher), lambda: None) for name, publisher in away.items()}
        )
    finally:
        producer.stop()
        for publisher in [nowhere, *publishers.values(), *away.values()]:
            publisher.close()


def turn(publish: Publish, settle: Callable[[], Any], first: int) -> tuple[list[float], float]:
    """Microseconds of each call of a turn, and CPU microseconds a call."""
    took = []
    begun = time.process_time()
    for number in range(first, first + TURN):
        before = time.perf_counter()
        publish(number)
        took.append((time.perf_counter() - before) * 1e6)
        time.sleep(PACE_SECONDS)
    settle()
    return took, (time.process_time() - begun) / TURN * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1_500)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder) / "kafka") as broker:
        os.environ["FLUVIAL_DATA"] = folder
        ensure_topics(broker.address)
        with ways(broker.address, Path(folder)) as all_ways:
            latencies: dict[str, list[float]] = {name: [] for name in all_ways}
            costs: dict[str, list[float]] = {name: [] for name in all_ways}
            for publish, settle in all_ways.values():  # connections, first segments, caches
                turn(publish, settle, 0)
            for first in range(0, calls, TURN):
                for name, (publish, settle) in all_ways.items():
                    took, cpu = turn(publish, settle, first)
                    latencies[name] += took
                    costs[name].append(cpu)
    floor = np.median(latencies["nothing sent"])
    print(f"{'':22}{'p50 us':>9}{'p99 us':>9}{'max us':>9}{'p50 ratio':>11}{'CPU us':>9}")
    for name, took in latencies.items():
        p50, p99 = np.percentile(took, (50, 99))
        cpu = np.median(costs[name])
        print(f"{name:22}{p50:9.0f}{p99:9.0f}{max(took):9.0f}{p50 / floor:11.2f}{cpu:9.0f}")


if __name__ == "__main__":
    main()
