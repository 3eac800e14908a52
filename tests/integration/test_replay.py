"""The log is the truth: what was published, in another log, at another pace, gives the same memory."""

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from support.balance import assert_balanced
from support.log_copy import copy
from support.up import Up

from fluvial import Publisher
from fluvial.streams.admin import ensure_topics

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
from agents import trade
from market import read_market

CALLS = 900


def digest_of(fluvial: Callable[..., CompletedProcess[str]]) -> dict[str, Any]:
    drained = fluvial("drain", "--timeout", "100")
    assert drained.returncode == 0, drained.stderr
    found: dict[str, Any] = json.loads(fluvial("digest", "--json").stdout)
    return found


def test_a_copy_of_the_log_gives_the_same_memory(
    environment: Mapping[str, str], fluvial: Callable[..., CompletedProcess[str]], tmp_path: Path, kafka: str
) -> None:
    first = environment["FLUVIAL_TOPIC_PREFIX"]
    market = read_market()
    up = Up(environment)
    try:
        up.until("ready", "land", "learn", "keep")
        with Publisher(kafka, topic_prefix=first) as publisher:
            for number, call in enumerate(trade(market, 1_900, 1_200, 4, seed=1)):
                if number < CALLS:
                    publisher.publish(call, wait=10)
                if number % 300 == 299:
                    publisher.flush(30)
        digest = digest_of(fluvial)
    finally:
        up.interrupt()
        up.close()
    assert digest["episodes"]["count"] == CALLS and digest["insights"]["count"] > 0

    second = f"{first}again{uuid.uuid4().hex[:6]}-"
    ensure_topics(kafka, prefix=second)
    asyncio.run(copy(kafka, first, second))
    elsewhere = {"FLUVIAL_TOPIC_PREFIX": second, "FLUVIAL_DATA": str(tmp_path / "again")}
    assert isinstance(environment, dict)
    environment.update(elsewhere)
    again = Up(environment)
    try:
        again.until("ready", "land", "learn", "keep")
        assert digest_of(fluvial) == digest
        assert_balanced(kafka, second, tmp_path / "again")
    finally:
        again.interrupt()
        again.close()
