"""Real series and seeded ones, as (value, time) pairs."""

import csv
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fluvial.drift.detector import Alarm, Config, Detector

Series = list[tuple[float, int]]
MINUTE = 60_000_000


@pytest.fixture
def read_series(shared: Path) -> Callable[[str, str], Series]:
    """A column of a file in data/drift; where the first column is no time, a value a second from 1970."""

    def read(name: str, column: str) -> Series:
        with open(shared / "data" / "drift" / f"{name}.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row[column]]
        return [(float(row[column]), _micros(row.get("ts"), number)) for number, row in enumerate(rows)]

    return read


def _micros(text: str | None, number: int) -> int:
    if text is None or not text.endswith("Z"):
        return number * 1_000_000
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


@pytest.fixture
def alarms_of() -> Callable[..., list[Alarm]]:
    """Every alarm of a detector over values one minute apart, or over (value, time) pairs."""

    def run(values: Any, config: Config) -> list[Alarm]:
        detector = Detector(config)
        pairs = ((v if isinstance(v, tuple) else (v, i * MINUTE)) for i, v in enumerate(values))
        return [alarm for value, at in pairs if (alarm := detector.push(value, at)) is not None]

    return run
