"""The whole river on this machine: landed events a second with the embedding included, and the memory of everything.

    .venv/bin/python benchmarks/river.py        # needs the recorded calls of ../shared (or FLUVIAL_SHARED)

Starts `fluvial up` in a temporary folder, publishes 11,513 recorded calls, drains, and compares the rate with that of
the bare model on the same texts, each computed (no cache), on one thread.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lancedb
import psutil

from fluvial.processors.embed import Embedder

SHARED = Path(os.environ.get("FLUVIAL_SHARED", Path(__file__).parents[2] / "shared"))
CALLS = sorted((SHARED / "data" / "agents").glob("*.jsonl.gz"))
MAPPING = Path(__file__).parents[1] / "examples" / "mapping.toml"
FLUVIAL = [sys.executable, "-m", "fluvial"]
SAMPLE = 500


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FLUVIAL_DATA": folder, "FLUVIAL_KAFKA_PORT": "0", "FLUVIAL_QUACK_PORT": "0"}
        up = subprocess.Popen([*FLUVIAL, "up", "--json"], stdout=subprocess.PIPE, text=True)
        try:
            wait_until_ready(up)
            begun = time.monotonic()
            published = run("publish", "--map", str(MAPPING), *map(str, CALLS))
            peak = watch_until_landed(up.pid, published["published"])
            landed_s = time.monotonic() - begun
            drained = run("drain", "--timeout", "300")
            peak = max(peak, memory(up.pid))
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)
        table = lancedb.connect(Path(folder) / "episodes").open_table("episodes").to_arrow()
    texts = table.column("text").to_pylist()
    bare = bare_rate(sorted(set(texts))[:: max(1, len(set(texts)) // SAMPLE)])
    rate = len(texts) / landed_s
    print(f"landed        {len(texts):,} events in {landed_s:.0f} s: {rate:.0f}/s ({len(set(texts)):,} distinct texts)")
    print(f"drained       {drained['seconds']:.1f} s after the last had landed")
    print(f"bare model    {bare:.0f} texts/s on one thread: the river lands {rate / bare:.2f} events for each")
    print(f"memory        {peak / 1e6:,.0f} MB at most, broker and every worker included")


def wait_until_ready(up: "subprocess.Popen[str]") -> None:
    assert up.stdout is not None
    ready: set[str] = set()
    while len(ready) < 4:
        change = json.loads(up.stdout.readline())
        if change["what"] == "ready":
            ready.add(change["name"])


def watch_until_landed(pid: int, events: int) -> int:
    """The largest memory seen until everything has landed, in bytes."""
    peak = 0
    while True:
        peak = max(peak, memory(pid))
        land = next(row for row in rows("status") if row["hop"] == "land")
        if land["in"] >= events:
            return peak
        time.sleep(1)


def memory(pid: int) -> int:
    parent = psutil.Process(pid)
    return sum(process.memory_info().rss for process in (parent, *parent.children(recursive=True)))


def bare_rate(texts: list[str]) -> float:
    embedder = Embedder(cached_texts=1)
    embedder.embed(texts[:8])
    begun = time.monotonic()
    embedder.embed(texts)
    return len(texts) / (time.monotonic() - begun)


def rows(*arguments: str) -> list[dict[str, int]]:
    done = subprocess.run([*FLUVIAL, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def run(*arguments: str) -> dict[str, float]:
    return rows(*arguments)[0]


if __name__ == "__main__":
    main()
