"""The whole river under all that can happen: the same log gives the same memory, the same outputs, the same sums.

The workers, the stores and the model are the real ones. Every round plays the same log, ticks included, under blows of
its own seed, and is compared with a run of that log that nothing disturbed.
"""

import gc
import hashlib
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.market_log import Entry, market_log
from support.river_storm import RIVER, Blow, RiverStorm, disks, small
from support.webhook import Receiver

from fluvial.schemas.alert import Alert
from fluvial.schemas.codec import decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.topics import (
    ALERTS,
    CLUSTERS,
    DEAD_LETTERS,
    DRIFT,
    EPISODES,
    HOPS,
    INSIGHT_OPS,
    TOOL_CALLS,
    Topic,
)
from fluvial.streams.broker import LocalBroker
from fluvial.streams.log_reader import LogReader, decoded
from fluvial.streams.progress import HopStatus, status

# kafka-python 3.0 leaves sockets open when a broker dies under it, here again and again.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

LONG = os.environ.get("FLUVIAL_CHAOS") == "long"
ROUNDS = int(os.environ.get("FLUVIAL_CHAOS_ROUNDS", "20")) if LONG else 1
FIRST_SEED = int(os.environ.get("FLUVIAL_CHAOS_SEED", "1"))
CALLS = 1_500 if LONG else 900
AWAY_SECONDS = 60.0 if LONG else 6.0
KILLS = 4 if LONG else 1
OUTPUTS = (EPISODES, CLUSTERS, DRIFT, INSIGHT_OPS, ALERTS, DEAD_LETTERS)
FINISH_SECONDS = 240.0


@dataclass(frozen=True)
class Memory:
    """What a run has come to."""

    digest: dict[str, Any]
    outputs: dict[str, Counter[Any]]
    hops: list[HopStatus]


@pytest.fixture(autouse=True)
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What kafka-python leaves is found here, where it is known of: a record of its log would hold it to the end."""
    caplog.set_level(logging.CRITICAL, logger="kafka")
    yield
    gc.collect()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("chaos") / "kafka") as broker:
        yield broker


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return market_log(CALLS)


@pytest.fixture(scope="module")
def calm(
    broker: LocalBroker, receiver: Receiver, entries: list[Entry], tmp_path_factory: pytest.TempPathFactory
) -> Memory:
    """The undisturbed run."""
    storm = RiverStorm(broker, tmp_path_factory.mktemp("calm"), "calm-", entries, f"{receiver.url}calm-")
    try:
        storm.start(land=1, learn=1, keep=1)
        storm.finish(FINISH_SECONDS)
        memory = remembered(storm)
        assert storm.stop() == [0, 0, 0]
    finally:
        storm.end()
    for topic in OUTPUTS:
        assert memory.outputs[topic.name], f"the log makes no {topic.name}: nothing would be tested"
    return memory


def remembered(storm: RiverStorm) -> Memory:
    command = [sys.executable, "-m", "fluvial", "digest", "--json"]
    asked = subprocess.run(command, env=storm.environment, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked.stderr
    with LogReader(storm.broker.address) as reader:
        outputs = {topic.name: records(reader, topic, storm.prefix) for topic in OUTPUTS}
        hops = status(reader, storm.prefix, [plan.name for plan in RIVER])
    return Memory(json.loads(asked.stdout), outputs, hops)


def records(reader: LogReader, topic: Topic, prefix: str) -> Counter[Any]:
    """Committed records, ticks left out; of a dead letter what does not name the prefix."""
    found: Counter[Any] = Counter()
    for record in reader.read(reader.spans(reader.partitions(topic.named(prefix)))):
        if record.is_tick:
            continue
        if topic is DEAD_LETTERS:
            letter = decode(record.value or b"", DeadLetter)
            found[letter.hop, letter.partition, letter.offset, letter.reason] += 1
        else:
            found[record.partition.partition, record.key, hashlib.blake2b(record.value or b"").hexdigest()] += 1
    return found


def sent(entries: list[Entry]) -> Counter[Any]:
    return Counter((e.partition, e.key, hashlib.blake2b(e.value).hexdigest()) for e in entries if not e.tick)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_a_storm_leaves_the_memory_of_a_calm_day(
    seed: int, broker: LocalBroker, receiver: Receiver, entries: list[Entry], calm: Memory, tmp_path: Path
) -> None:
    dice, begun, prefix = random.Random(seed), time.monotonic(), f"storm{seed}-"
    blows = []
    with small(disks(tmp_path / "river").values()) as may_fill:
        storm = RiverStorm(broker, tmp_path / "river", prefix, entries, receiver.url + prefix)
        try:
            storm.start(land=2, learn=2, keep=1)
            deeds: list[Callable[[int], Blow]] = [lambda burst: storm.kill(dice.choice(storm.workers), burst)] * KILLS
            deeds += [
                storm.kill_all,
                lambda burst: storm.pause(dice.choice(storm.workers), burst),
                storm.kill_broker,
                lambda burst: storm.kill_broker(burst, AWAY_SECONDS),
                storm.empty_disks,
                lambda burst: storm.scale(dice, burst),
                *([storm.fill_disks] if may_fill else []),
            ]
            dice.shuffle(deeds)
            burst = len(entries) // (4 * len(deeds) + 12)  # some is left for the end
            blows.append(storm.strike("start", ("land", "learn", "keep"), lambda: None, burst=burst))
            for deed in deeds:
                time.sleep(dice.uniform(0, 1.5))
                blows.append(deed(burst))
            finished = storm.finish(FINISH_SECONDS)
            memory = remembered(storm)
            with LogReader(broker.address) as reader:
                assert records(reader, TOOL_CALLS, prefix) == sent(entries), "the feeder wrote another log"
            wait_for_alerts(receiver, storm)
            assert set(storm.stop()) == {0}
        finally:
            storm.end()
            print(f"\nround {seed}: {time.monotonic() - begun:.0f} s; {', '.join(map(str, blows))}", flush=True)
            print("".join(f"  {end}\n" for end in storm.ends()), end="", flush=True)
        if not may_fill:
            print("  no disk was filled: only root may mount a small one")
    print(f"  finished {finished:.1f} s after the last entry")
    for topic in OUTPUTS:
        there, wanted = memory.outputs[topic.name], calm.outputs[topic.name]
        assert there == wanted, f"{topic.name}: lost {wanted - there}, doubled or foreign {there - wanted}"
    assert memory.digest == calm.digest
    assert_balanced(memory, entries)


def wait_for_alerts(receiver: Receiver, storm: RiverStorm) -> None:
    """Every alert is delivered at least once; it may be on its way yet."""
    with LogReader(storm.broker.address) as reader:
        found = reader.read(reader.spans(reader.partitions(ALERTS.named(storm.prefix))))
        alerts = {alert.alert_id for alert in decoded(found, Alert)}
    deadline = time.monotonic() + 30
    while missing := alerts - set(receiver.received[f"/{storm.prefix}"]):
        assert time.monotonic() < deadline, f"alerts that reached nobody: {missing}"
        time.sleep(0.2)


def assert_balanced(memory: Memory, entries: list[Entry]) -> None:
    """Every record of a source is counted once, as what became of it, and what hops sent is what is there."""
    sizes = {name: counts.total() for name, counts in memory.outputs.items()} | {TOOL_CALLS.name: sent(entries).total()}
    for hop in memory.hops:
        assert hop.read == hop.done + hop.duplicate + hop.dead + hop.late, hop
        assert hop.read == sizes[HOPS[hop.hop].source.name], hop
        assert hop.lag == 0, hop
    assert sum(hop.dead for hop in memory.hops) == sizes[DEAD_LETTERS.name]
    assert sum(hop.emitted for hop in memory.hops) == sum(sizes[topic.name] for topic in OUTPUTS[:-1])
