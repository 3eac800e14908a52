"""Recovery: from kill -9 to the next commit of every partition that was struck.

    .venv/bin/python benchmarks/recovery.py [TIMES]        # 5 times each by default

The workers of `fluvial up`, one of each group, work on trades that keep coming. Each group is killed and started again
at once (`fluvial up` waits a second first), and so is the broker. Recovered is who has committed in every partition of
every hop of the group again, the broker in all of them.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.market_log import market_log
from support.river_storm import GROUPS, RiverStorm
from support.webhook import Receiver

from fluvial.streams.broker import LocalBroker

PIECE = 24
"""Records that come just before the blow, and again just after it."""


def main(times: int) -> None:
    """Measure and print."""
    receiver = Receiver()
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder) / "kafka") as broker:
        storm = RiverStorm(broker, Path(folder) / "river", "bench-", market_log(4_000), receiver.url)
        try:
            storm.start(land=1, learn=1, keep=1)
            storm.strike("start", GROUPS, lambda: None, burst=PIECE)
            print(f"{'killed':<8} {'median':>7} {'worst':>7}")
            for group in GROUPS:
                row(group, [storm.kill(storm.of([group])[0], PIECE).recovered for _ in range(times)])
            row("broker", [storm.kill_broker(PIECE).recovered for _ in range(times)])
            storm.stop()
        finally:
            storm.end()
            receiver.close()


def row(name: str, seconds: list[float]) -> None:
    print(f"{name:<8} {median(seconds):6.1f}s {max(seconds):6.1f}s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
