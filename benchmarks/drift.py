"""What the transform, the history and the bank cost on top of river's bare ADWIN, and how large a detector is at rest.

    python benchmarks/drift.py [--values 100000] [--keys 100]

The figures of one run belong together: CPU time of one process, best of three, Gaussian values without a change.
"""

import argparse
import json
import random
import time
from collections.abc import Callable

from river.drift import ADWIN

from fluvial.drift.bank import Bank, restore, snapshot
from fluvial.drift.detector import RATE, VALUE, Config, Detector
from fluvial.schemas.codec import encode
from fluvial.schemas.drift_event import MetricKey

MINUTE = 60_000_000


def seconds(work: Callable[[], object]) -> float:
    """CPU time of the fastest of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def bare(values: list[float]) -> None:
    adwin = ADWIN(delta=VALUE.delta, clock=VALUE.clock)
    for value in values:
        adwin.update(value)
        if adwin.drift_detected:
            raise AssertionError("an alarm without a change")


def detected(values: list[float]) -> None:
    detector = Detector(VALUE)
    for index, value in enumerate(values):
        if detector.push(value, index * MINUTE) is not None:
            raise AssertionError("an alarm without a change")


def banked(values: list[float], keys: list[MetricKey]) -> Bank:
    bank = Bank({})
    for index, value in enumerate(values):
        bank.push(keys[index % len(keys)], value, index * MINUTE)
    return bank


def state_bytes(config: Config, n: int) -> int:
    """Of a detector after `n` values at irregular times, as it is written to the log."""
    dice = random.Random(5)
    detector = Detector(config)
    at = 1_690_000_000_000_000
    for _ in range(n):
        at += int(dice.expovariate(1 / MINUTE))
        detector.push(float(dice.random() < 0.1) if config is RATE else dice.gauss(50, 5), at)
    return len(encode(snapshot(detector)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=100)
    options = parser.parse_args()
    dice = random.Random(3)
    values = [dice.gauss(0.5, 0.1) for _ in range(options.values)]
    keys = [MetricKey(tool="swap", metric=f"m{number}") for number in range(options.keys)]

    river = seconds(lambda: bare(values))
    detector = seconds(lambda: detected(values))
    bank = seconds(lambda: banked(values, keys))
    full = banked(values, keys)
    start = time.process_time()
    full.save()
    saved = time.process_time() - start
    record = next(iter(full.states.values()))
    restored = seconds(lambda: [restore(record, VALUE) for _ in range(100)]) / 100

    figures = {
        "river_values_per_s": round(len(values) / river),
        "detector_values_per_s": round(len(values) / detector),
        "bank_values_per_s": round(len(values) / bank),
        "detector_to_river": round(river / detector, 3),
        "bank_to_river": round(river / bank, 3),
        "save_us_per_key": round(1e6 * saved / len(keys), 1),
        "restore_us_per_key": round(1e6 * restored, 1),
        "state_bytes_value": {n: state_bytes(VALUE, n) for n in (1, 100, 255, 256, 1_000, 10_000, 100_000)},
        "state_bytes_rate": {n: state_bytes(RATE, n) for n in (1, 100, 1_000, 10_000, 100_000)},
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
