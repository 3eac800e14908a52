"""A worker that cannot come on ends within a minute and says why; a real worker process on a real broker."""

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka import KafkaProducer
from support.stand import as_it_is, held_loop, hung_start, hung_state, hung_store, poisoned
from support.storm import TESTS

from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import EPISODES, TOOL_CALLS, Topic
from fluvial.streams.admin import delete_topics, ensure_topics, topic_names
from fluvial.streams.child import Child
from fluvial.streams.supervise import TRIES, Change, GaveUp, Supervisor

MINUTE = 60.0


WAYS = (hung_store, hung_start, hung_state, held_loop, as_it_is)


@dataclass(frozen=True)
class End:
    """A worker's exit code and last words, and the seconds since it began with what it could not end."""

    code: int
    words: str
    seconds: float
    prefix: str


def environment_of(kafka: str, prefix: str, data: Path) -> dict[str, str]:
    own = {"BROKER": kafka, "TOPIC_PREFIX": prefix, "DATA": str(data), "QUACK_PORT": "0"}
    own["TICK_SECONDS"] = "100000"  # what is to be read is what the test wrote
    return {**os.environ, **{f"FLUVIAL_{name}": value for name, value in own.items()}, "PYTHONPATH": str(TESTS)}


def command(way: Callable[[], None], *hops: str) -> list[str]:
    return [sys.executable, "-m", "support.stand", way.__name__, "--hops", ",".join(hops)]


def write(broker: str, topic: Topic, prefix: str, *values: bytes, tick: bool = False) -> None:
    """The values into every partition."""
    producer = KafkaProducer(bootstrap_servers=broker, metrics_enabled=False)
    for partition in range(topic.partitions):
        for value in values:
            headers = [("record", b"tick")] if tick else []
            producer.send(topic.named(prefix), value, key=b"k", partition=partition, headers=headers)
    producer.flush()
    producer.close()


def call(number: int) -> bytes:
    return encode(ToolCall(source="s", run_id=f"r{number}", tool="t", args={"n": number}, started_at=1_700_000_000))


class Clinging(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member that does not let go of its partitions when another joins."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Collection[object]) -> None:
        if revoked:
            await self.may_go.wait()

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Keeps them."""


@contextmanager
def clinging_member(broker: str, group: str, topic: str) -> Iterator[None]:
    joined, over = threading.Event(), threading.Event()

    async def cling() -> None:
        listener = Clinging()
        member = AIOKafkaConsumer(
            bootstrap_servers=broker,
            group_id=group,
            enable_auto_commit=False,
            partition_assignment_strategy=[StickyPartitionAssignor],
            rebalance_timeout_ms=600_000,
            max_poll_interval_ms=600_000,
        )
        await member.start()
        member.subscribe([topic], listener=listener)
        while not over.is_set():
            await asyncio.sleep(0.1)
            if member.assignment():
                joined.set()
        listener.may_go.set()
        await member.stop()

    thread = threading.Thread(target=asyncio.run, args=(cling(),))
    thread.start()
    assert joined.wait(MINUTE)
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def ends(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, End]]:
    """All workers that stand still, each in its own way; they do so at the same time, since it takes them a minute."""
    prefixes = {way.__name__: f"{way.__name__}-{uuid.uuid4().hex[:6]}-" for way in WAYS}
    for prefix in prefixes.values():
        ensure_topics(kafka, prefix=prefix)
        write(kafka, TOOL_CALLS, prefix, call(1))

    def end_of(way: Callable[[], None]) -> End:
        hops, begins = {
            hung_store: ("land", "partitions opened"),
            hung_start: ("land", "Land]: Starting"),
        }.get(way, ("gather", "ready"))
        prefix = prefixes[way.__name__]
        environment = environment_of(kafka, prefix, tmp_path_factory.mktemp(way.__name__))
        last, since = "", time.monotonic()
        with subprocess.Popen(command(way, hops), env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            for line in process.stderr:
                last = line.rstrip()
                if begins in line:
                    since = time.monotonic()
        return End(process.returncode, last, time.monotonic() - since, prefix)

    clung = prefixes[as_it_is.__name__]
    with clinging_member(kafka, f"{clung}fluvial-gather", f"{clung}episodes"), ThreadPoolExecutor(len(WAYS)) as pool:
        yield dict(zip(prefixes, pool.map(end_of, WAYS), strict=True))
    delete_topics(kafka, [name for name in topic_names(kafka) if name.startswith(tuple(prefixes.values()))])


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (hung_store, r"the hop land made no progress for 45 s while handling .*{}tool-calls\[0\] from offset 0.*"),
        (hung_start, r"the hop land made no progress for 45 s while starting"),
        (hung_state, r"gather: {}episodes \[0, 1, 2, 3\] cannot be opened: it took too long"),
        (held_loop, r"the event loop made no progress for 45 s"),
        (as_it_is, r"the hop gather made no progress for 45 s while waiting for its share of {}episodes"),
    ],
    ids=["a store hangs", "its start hangs", "its state is not handed out", "its loop is held up", "a member clings"],
)
def test_it_ends_within_a_minute_when(way: Callable[[], None], reason: str, ends: dict[str, End]) -> None:
    end = ends[way.__name__]
    assert re.fullmatch(f"fluvial: {reason.format(end.prefix)}", end.words), end
    assert end.code == 70
    assert end.seconds < MINUTE


def test_a_record_that_the_hop_chokes_on_each_time_ends_in_giving_up(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of(kafka, topic_prefix, tmp_path / "data")
    monkeypatch.setattr("fluvial.streams.supervise.FIRST_PAUSE", 0.1)
    episode = Episode(
        id="e",
        source="s",
        run_id="r",
        tool="t",
        status="ok",
        started_at=1,
        text="",
        reflection_source="template",
        embedding_model="none",
        log_partition=0,
        log_offset=0,
    )
    write(kafka, EPISODES, topic_prefix, encode(episode))
    producer = KafkaProducer(bootstrap_servers=kafka, metrics_enabled=False)
    for partition in range(EPISODES.partitions):
        for origin in range(TOOL_CALLS.partitions):
            headers = [("record", b"tick"), ("origin", b"land/%d" % origin), ("epoch", b"1")]
            tick = encode(Tick(slot=1, at=1))
            producer.send(EPISODES.named(topic_prefix), tick, partition=partition, headers=headers)
    producer.flush()
    producer.close()
    changes: list[Change] = []
    poison = Child("learn", command(poisoned, "gather"), tmp_path / "learn.log", environment)
    supervisor = Supervisor([poison], changes.append)
    begun = time.monotonic()
    try:
        with pytest.raises(GaveUp, match=rf"learn ended {TRIES} times in a row; see .*learn\.log") as caught:
            supervisor.run()
    finally:
        supervisor.stop()
    reason = "gather: ZeroDivisionError: this record divides by zero (while handling "
    assert reason in str(caught.value).splitlines()[-1]
    ends = [change for change in changes if change.what == "ended"]
    assert [end.code for end in ends] == [70] * TRIES
    assert all(end.reason.startswith(reason) for end in ends)
    assert (time.monotonic() - begun) / TRIES < MINUTE
