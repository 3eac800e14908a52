"""What learning costs: CPU time a cluster and an event, and whether it stays the same as the stream grows.

    python benchmarks/distil.py [--events 20000] [--features 20]

A made stream of one source and two tools, 100 calls a cluster, ten calls a run: one rule is planted, the other features
are noise. `mined` are the clusters after which the evidence (2,000 calls) was mined; the others only vote and remember.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator

from fluvial.processors.distil import finish, learn
from fluvial.processors.lessons import Lessons
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.types import Scalar

CALLS = 100
RUN = 10


def stream(events: int, features: int, dice: random.Random) -> Iterator[Cluster]:
    for number in range(events // CALLS):
        rows = tuple(row(number, n, features, dice) for n in range(CALLS))
        tool = "swap" if number % 2 else "quote"
        yield Cluster(id=str(number), source="bot", tool=tool, window_start=number, window_end=number + 1, rows=rows)


def row(number: int, n: int, features: int, dice: random.Random) -> Row:
    known: dict[str, Scalar] = {f"metrics.m{i}": dice.lognormvariate(3, 2) for i in range(features // 2)}
    known |= {f"args.choice{i}": dice.choice("abcdef") for i in range(features - features // 2)}
    tolerance = known["args.tolerance_bps"] = dice.choice((1, 3, 10, 30, 100))
    failed = dice.random() < (0.7 if tolerance == 1 else 0.2)
    run = f"{number}-{n // RUN}"
    return Row(event_id=f"{number}-{n}", run_id=run, failed=failed, at=number * CALLS + n, features=known)


def measure(events: int, features: int) -> dict[str, float]:
    lessons = Lessons({}, {}, {}, {})
    plain: list[float] = []
    mined: list[float] = []
    found = 0
    for cluster in stream(events, features, random.Random(7)):
        start = time.process_time()
        ops = learn(lessons, cluster)
        spent = (time.process_time() - start) * 1e3
        was_mined = any(tool.cause == cluster.id and not tool.unmined for tool in lessons.tools.values())
        (mined if was_mined else plain).append(spent)
        found += sum(op.op == "ADD" for op in ops)
    start = time.process_time()
    finish(lessons)
    return {
        "events": events,
        "features": features + 1,
        "claims": found,
        "ms_event": round((sum(plain) + sum(mined)) / events, 3),
        "ms_cluster_median": round(statistics.median(plain + mined), 2),
        "ms_mined_median": round(statistics.median(mined), 1),
        "ms_mined_most": round(max(mined), 1),
        "ms_finish": round((time.process_time() - start) * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=20)
    given = parser.parse_args()
    for events in (given.events // 10, given.events):
        print(json.dumps(measure(events, given.features)), flush=True)


if __name__ == "__main__":
    main()
