"""Replay: the hops once more over the log of a river, into stores of their own, up to the last tick it had.

The river's `tool-calls` are read where they are; everything else has topics and groups of the replay's own, under a
prefix that names it, and they are deleted at its end. What operators wrote is copied with the epoch it was handled in.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError

from fluvial.schemas.codec import decode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import (
    ALL_TOPICS,
    DEAD_LETTERS,
    HOPS,
    INSIGHT_OPS,
    LAND,
    MAX_RECORD_BYTES,
    TOOL_CALLS,
    HopPlan,
    Topic,
)
from fluvial.streams.admin import BrokerAway, delete_groups, delete_topics, ensure_topics, groups, topic_names
from fluvial.streams.child import Child, worker_command
from fluvial.streams.hop import Replayed
from fluvial.streams.log_reader import LogReader, LogRecord
from fluvial.streams.operators import Copy, operators_records
from fluvial.streams.progress import marks
from fluvial.streams.supervise import Change, Supervisor, groups_of

REPLAYED: tuple[HopPlan, ...] = tuple(plan for plan in HOPS.values() if TOOL_CALLS not in plan.outputs)
"""The hops that make the memory of `tool-calls`; those that make `tool-calls` of other formats have done so."""
DERIVED: tuple[Topic, ...] = tuple(
    topic
    for topic in ALL_TOPICS
    if topic is DEAD_LETTERS or any(topic in (*plan.outputs, plan.state_topic) for plan in REPLAYED)
)
"""What they write."""
NAME = "replay-"
LOOK_SECONDS = 1.0
AWAY_SECONDS = 120.0
STARTS_WITHIN = 60.0
"""Seconds after which a replay that runs has members in its groups."""
LONGEST_PREFIX = 64


class NothingToReplay(RuntimeError):
    """The log has no tick yet."""


@dataclass(frozen=True)
class Goal:
    """Where a replay ends: the last tick that every partition of `tool-calls` has, and the offsets behind it."""

    slot: int
    ends: Mapping[int, int]

    def reached(self, known: Sequence[Progress]) -> bool:
        """Whether all these partitions have passed the tick."""
        return all(progress.slot >= self.slot for progress in known)


def goal(reader: LogReader, prefix: str = "") -> Goal:
    """The goal of a replay that begins now. Raises NothingToReplay, BrokerAway, TopicMissing."""
    places = reader.partitions(TOOL_CALLS.named(prefix))
    found = reader.last(places, lambda record: record.is_tick)
    last = {tp: (record, decode(record.value or b"", Tick)) for tp, record in found.items()}
    if len(last) < len(places):
        raise NothingToReplay(f"{TOOL_CALLS.named(prefix)} has no ticks yet: `fluvial up` has to run first.")
    slot = min(tick.slot for _, tick in last.values())
    return Goal(slot, {tp.partition: record.offset + 1 for tp, (record, _) in last.items()})


def why_not_comparable(reader: LogReader, prefix: str, goal: Goal) -> str:
    """Why the river's memory need not be that of a replay up to the goal; empty where it has to be the same.

    It has to be where the river was drained before and nothing was published since.
    """
    known = [mark.progress for mark in marks(reader, REPLAYED, prefix).values()]
    flushed = min(progress.flushed for progress in known)
    if not flushed:
        return "it was never drained"
    if flushed > goal.slot:
        return "it was drained again meanwhile"

    def drained(record: LogRecord) -> bool:
        tick = decode(record.value or b"", Tick) if record.is_tick else None
        return tick is not None and tick.flush and tick.slot <= flushed

    places = reader.partitions(TOOL_CALLS.named(prefix))
    last, spans = reader.last(places, drained), reader.spans(places)
    since = {tp: (record.offset + 1, spans[tp][1]) for tp, record in last.items()}
    if len(since) < len(places) or any(not record.is_tick for record in reader.read(since)):
        return "calls were published since it was drained"
    return ""


def new_prefix(broker: str, prefix: str) -> str:
    """A prefix that no replay of this river has. Raises ValueError where it would be too long."""
    taken, token = topic_names(broker), int(time.time())
    while any(name.startswith(f"{prefix}{NAME}{token:08x}-") for name in taken):
        token += 1
    found = f"{prefix}{NAME}{token:08x}-"
    if len(found) > LONGEST_PREFIX:
        raise ValueError(f"The topics of a replay would begin with {found}, which is longer than {LONGEST_PREFIX}.")
    return found


def leftovers(broker: str, prefix: str, older_than: float = STARTS_WITHIN) -> set[str]:
    """Prefixes of this river's replays that were interrupted: begun so long ago (seconds), and nobody is in a group."""
    begins, length = f"{prefix}{NAME}", len(f"{prefix}{NAME}") + 9
    members = groups(broker, begins)
    found = {name[:length] for name in {*topic_names(broker), *members} if name.startswith(begins)}
    alive = {name[:length] for name, count in members.items() if count}
    return {one for one in found - alive if _age(one) >= older_than}


def _age(replay: str) -> float:
    try:
        return time.time() - int(replay[-9:-1], 16)
    except ValueError:
        return -1.0  # no replay of ours is called so


def clean(broker: str, replay: str) -> None:
    """Delete the topics and groups of a replay; `replay` is its prefix. Raises BrokerAway, KafkaError."""
    delete_topics(broker, sorted(name for name in topic_names(broker) if name.startswith(replay)))
    delete_groups(broker, sorted(groups(broker, replay)))


def prepare(broker: str, prefix: str, replay: str) -> int:
    """Make the topics of a replay and put in what operators wrote; gives how many records that are."""
    ensure_topics(broker, (*DERIVED, TOOL_CALLS), replay)  # of the last only the number of partitions is looked at
    with LogReader(broker) as reader:
        said = list(operators_records(reader, prefix))
    send(broker, INSIGHT_OPS.named(replay), said)
    return len(said)


def send(broker: str, topic: str, records: Sequence[Copy]) -> None:
    """Copy records into the first partition of a topic, all or none. Raises BrokerAway."""
    if not records:
        return
    try:
        producer = KafkaProducer(
            bootstrap_servers=broker,
            transactional_id=f"{topic}-copy",
            max_request_size=MAX_RECORD_BYTES,
            metrics_enabled=False,
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for record in records:
                producer.send(topic, record.value, record.key, list(record.headers), 0, record.time // 1_000)
            producer.commit_transaction()
        finally:
            producer.close()
    except KafkaError as error:
        raise BrokerAway(f"Kafka at {broker} did not take the records of {topic} ({error}).") from error


def run(
    environment: Mapping[str, str],
    replayed: Replayed,
    logs: Path,
    look: Callable[[], bool],
    tell: Callable[[Change], None] = lambda change: None,
) -> None:
    """Run the hops as processes, with their settings in the environment, until `look` says that all is done.

    Raises GaveUp where one ends again and again, and what `look` raises.
    """
    extra = ["--log-prefix", replayed.prefix, "--until", str(replayed.slot)]
    children = [
        Child(name, [*worker_command(hops), *extra], logs / f"{name}.log", environment)
        for name, hops in groups_of([plan.name for plan in REPLAYED]).items()
    ]
    supervisor = Supervisor(children, tell)
    try:
        supervisor.run(look)
    finally:
        supervisor.stop()


class Look:
    """Asks once a second how far the hops have come; `told` hears which part of the log has landed, and who waits."""

    def __init__(
        self, reader: LogReader, prefix: str, goal: Goal, told: Callable[[float, Sequence[str]], object]
    ) -> None:
        self._reader, self._prefix, self._goal, self._told = reader, prefix, goal, told
        self._next = 0.0
        self._heard = time.monotonic()

    def __call__(self) -> bool:
        """Whether every hop has passed the goal. Raises BrokerAway once none has answered for two minutes."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        try:
            known = marks(self._reader, REPLAYED, self._prefix)
        except BrokerAway:
            if now - self._heard > AWAY_SECONDS:
                raise
            return False
        self._heard = now
        places: dict[str, list[Progress]] = {}
        for (hop, _), mark in known.items():
            places.setdefault(hop, []).append(mark.progress)
        landed = {number: mark.progress.resume for (hop, number), mark in known.items() if hop == LAND.name}
        ends = self._goal.ends
        part = sum(min(landed[n], end) for n, end in ends.items()) / max(1, sum(ends.values()))
        waiting = [hop for hop, progress in places.items() if not self._goal.reached(progress)]
        self._told(part if waiting else 1.0, waiting)
        return not waiting
