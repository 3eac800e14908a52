"""The health of one service: `python -m fluvial.streams.health land` ends with 0 unless the hop stands still.

Standing still: records wait, and for longer than ticks may stay away nothing was committed. A hop whose records do not
come, because the one before it is down, is not to blame.
"""

import sys
import time
from collections.abc import Iterable

from fluvial.schemas.topics import HOPS
from fluvial.settings import Settings
from fluvial.streams.admin import BrokerAway
from fluvial.streams.log_reader import LogReader, TopicMissing
from fluvial.streams.progress import HopStatus, status

ANSWER_SECONDS = 10.0
LEAST_PATIENCE = 60.0


def standing_still(hops: Iterable[HopStatus], now: int, seconds: float) -> list[str]:
    """Names of the hops that have something to read and committed nothing in the `seconds` before `now` (µs UTC)."""
    since = now - round(seconds * 1_000_000)
    return [hop.hop for hop in hops if hop.lag and (hop.last_progress is None or hop.last_progress < since)]


def main(names: list[str]) -> None:
    """Look at these hops of the broker of the settings; SystemExit with a sentence where one stands still."""
    if unknown := [name for name in names if name not in HOPS]:
        raise SystemExit(f"fluvial: {unknown[0]!r} is no hop; there are {', '.join(HOPS)}")
    settings = Settings()
    try:
        with LogReader(settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
            hops = status(reader, settings.topic_prefix, names)
    except (BrokerAway, TopicMissing) as error:
        raise SystemExit(f"fluvial: {error}") from error
    patience = max(LEAST_PATIENCE, 3 * settings.idle_tick_seconds)
    if still := standing_still(hops, time.time_ns() // 1_000, patience):
        raise SystemExit(f"fluvial: standing still with work to do: {', '.join(still)}")


if __name__ == "__main__":
    main(sys.argv[1:])
