"""What the store of insights costs: folding, drift, the snapshot, exact search; CPU time, and wall time beside it.

    python benchmarks/insights.py [--insights 10000]

Vectors are random: the model is not measured here (benchmarks of land do that).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fluvial.processors.expel import step
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.drift_event import MetricKey
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.sinks.insights import Insights, Vectors
from fluvial.sinks.snapshot import write_snapshot

BATCH = 256
TOOLS = 50

_dice = np.random.default_rng(0)


def vectors(texts: Sequence[str]) -> Vectors:
    found: Vectors = _dice.standard_normal((len(texts), 384)).astype(np.float32)
    return found


def add(number: int) -> InsightOp:
    atom = Atom(feature="args.size", op="ge", value=number)
    return InsightOp(
        op_id=f"add-{number}",
        op="ADD",
        reason="episode",
        actor="bench",
        at=number,
        insight_id=f"{number:032x}",
        content=f"Calls whose size is at least {number} fail more often than others: 80 % against 20 %.",
        category="slippage" if number % 3 else "general",
        claim=Claim(source="bench", tool=f"tool-{number % TOOLS}", atoms=(atom,), expected=0.8, reference=0.2),
        evidence=tuple(f"event-{number}-{n}" for n in range(20)),
    )


def vote(number: int, insights: int) -> InsightOp:
    chosen = int(_dice.integers(insights))
    return InsightOp(
        op_id=f"vote-{number}",
        op="UPVOTE" if number % 3 else "DOWNVOTE",
        reason="prediction",
        actor="bench",
        at=number,
        insight_id=f"{chosen:032x}",
        evidence=(f"event-{number}",),
    )


def drift(number: int) -> InsightOp:
    about = MetricKey(tool=f"tool-{number % TOOLS}", metric="error_rate")
    return InsightOp(
        op_id=f"drift-{number}", op="DOWNVOTE", reason="drift", actor="bench", at=number, about=about, cause="drift"
    )


def apply(store: Insights, ops: Sequence[InsightOp]) -> None:
    for start in range(0, len(ops), BATCH):
        store.commit(store.fold(list(enumerate(ops[start : start + BATCH]))), Progress(resume=start))


def cost(work: Callable[[], object], times: int = 1) -> tuple[float, float]:
    """CPU and wall seconds of the median of several."""
    cpu, wall = [], []
    for _ in range(times):
        began = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - began[0])
        wall.append(time.perf_counter() - began[1])
    return statistics.median(cpu), statistics.median(wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--insights", type=int, default=10_000)
    n = parser.parse_args().insights
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        store = Insights(data / "live.duckdb", step, vectors)
        say("ADD, batches of 256", *cost(lambda: apply(store, [add(i) for i in range(n)])), per=n)
        say("votes, batches of 256", *cost(lambda: apply(store, [vote(i, n) for i in range(n)])), per=n)
        numbers = iter(range(1_000))
        say(f"one drift downvoting {n // TOOLS}", *cost(lambda: apply(store, [drift(next(numbers))]), 20))
        say("one commit of progress alone", *cost(lambda: store.commit(store.fold([]), Progress(resume=n)), 20))
        asked = vectors(["asked"])[0]
        say("nearest 5 of all", *cost(lambda: store.nearest(asked), 20))
        say("nearest 5 of one category", *cost(lambda: store.nearest(asked, "slippage"), 20))
        connection = store.cursor()
        say("snapshot", *cost(lambda: write_snapshot(connection, data / "insights.duckdb", data / "scratch"), 3))
        megabytes = (data / "insights.duckdb").stat().st_size / 1e6
        connection.close()
        store.close()
        say("open", *cost(lambda: Insights(data / "live.duckdb", step, vectors).close(), 3))
        print(json.dumps({"insights": n, "snapshot_megabytes": round(megabytes, 1)}))


def say(what: str, cpu: float, wall: float, per: int = 0) -> None:
    rate = {"per_cpu_second": round(per / cpu)} if per else {}
    print(
        json.dumps({"what": what, "cpu_ms": round(cpu * 1e3, 1), "wall_ms": round(wall * 1e3, 1), **rate}), flush=True
    )


if __name__ == "__main__":
    main()
