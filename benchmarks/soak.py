"""Memory over time: the whole river at 80 % of what it can land, and what every process holds meanwhile.

    .venv/bin/python benchmarks/soak.py [--minutes 30]      # needs the recorded calls of ../shared (or FLUVIAL_SHARED)

The recorded calls come again and again, each time as new runs with new texts, so that state, stores and caches see
what a long day brings. First the limit is measured for a minute, then 80 % of it is kept up. Printed for each process:
its resident memory after a third of the time and at the end (medians of a twentieth), and the growth an hour.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from statistics import median

import psutil
from land import real_calls
from msgspec.structs import replace
from river import FLUVIAL, SHARED, rows, wait_until_ready

from fluvial import Publisher
from fluvial.schemas.tool_call import ToolCall

LIMIT_SECONDS = 60
SHARE = 0.8
LOOK_SECONDS = 5.0
Sample = dict[str, int]
"""Bytes a process."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FLUVIAL_DATA": folder, "FLUVIAL_KAFKA_PORT": "0", "FLUVIAL_QUACK_PORT": "0"}
        up = subprocess.Popen([*FLUVIAL, "up", "--json"], stdout=subprocess.PIPE, text=True)
        try:
            wait_until_ready(up)
            calls = endless()
            with Publisher() as publisher:
                rate = SHARE * limit(publisher, calls)
                print(f"limit {rate / SHARE:,.0f} events/s; {rate:,.0f} events/s for {options.minutes:g} minutes")
                samples = soak(publisher, calls, rate, options.minutes, up.pid)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)
    report(samples, options.minutes)


def endless() -> Iterator[ToolCall]:
    """The recorded calls in their order, each round as runs and texts of its own."""
    calls = real_calls(SHARED)
    for number in count():
        for call in calls:
            result = f"{call.result} ({number})"
            yield replace(call, run_id=f"{call.run_id}-{number}"[-256:], result=result, started_at=None, event_id="")


def limit(publisher: Publisher, calls: Iterator[ToolCall]) -> float:
    """Landed events a second while more than enough wait."""
    begun, before = time.monotonic(), landed()
    while time.monotonic() - begun < LIMIT_SECONDS:
        for _ in range(500):
            publisher.publish(next(calls), wait=30)
        while publisher.counts().delivered - landed() > 3_000:
            time.sleep(0.5)
    return (landed() - before) / (time.monotonic() - begun)


def landed() -> int:
    return next(row for row in rows("status") if row["hop"] == "land")["in"]


def soak(publisher: Publisher, calls: Iterator[ToolCall], rate: float, minutes: float, pid: int) -> list[Sample]:
    """Publish at this rate and look at the memory now and then."""
    begun, sent, samples = time.monotonic(), 0, []
    looked = 0.0
    while (passed := time.monotonic() - begun) < 60 * minutes:
        while sent < passed * rate:
            publisher.publish(next(calls), wait=30)
            sent += 1
        if passed - looked > LOOK_SECONDS:
            looked = passed
            samples.append(memory(pid))
        time.sleep(0.05)
    waiting = publisher.counts().delivered - landed()
    print(f"{sent:,} published; {waiting:,} were waiting at the end", file=sys.stderr)
    return samples


def memory(pid: int) -> Sample:
    """Resident bytes of every child of `fluvial up`, by what it is."""
    found: Sample = {}
    for child in psutil.Process(pid).children(recursive=True):
        command = child.cmdline()
        name = command[command.index("--hops") + 1] if "--hops" in command else "kafka"
        found[name] = found.get(name, 0) + child.memory_info().rss
    return found


def report(samples: list[Sample], minutes: float) -> None:
    """Print what grew."""
    span = max(1, len(samples) // 20)
    third = len(samples) // 3
    for name in sorted(samples[-1]):
        early = median(sample.get(name, 0) for sample in samples[third : third + span])
        late = median(sample.get(name, 0) for sample in samples[-span:])
        hours = minutes / 60 * 2 / 3
        print(f"{name:<30}{early / 1e6:>8,.0f} MB{late / 1e6:>8,.0f} MB{(late - early) / 1e6 / hours:>+9,.0f} MB/h")


if __name__ == "__main__":
    main()
