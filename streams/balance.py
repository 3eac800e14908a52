"""The balance between hops: what hops sent into a topic is what the hop behind has read or still waits for."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from fluvial.schemas.topics import HOPS, HopPlan, Topic, senders
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import Mark, Place, Waiting, marks, waiting

TRIES = 4
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Flow:
    """Records that hops sent into a topic, and what the hop `reader` made of them; ticks are not counted."""

    topic: str
    reader: str
    sent: int
    read: int
    waiting: int

    @property
    def missing(self) -> int:
        """Sent, and neither read nor waiting; negative: more was read than sent."""
        return self.sent - self.read - self.waiting


def open_flows(reader: LogReader, prefix: str = "") -> list[Flow]:
    """The flows whose balance does not close, looked at four times within 2 s: a running river is never still.

    Not judged: what is more than 2,000 offsets behind, and hops that fill a store again. Raises BrokerAway,
    TopicMissing.
    """
    found: list[Flow] = []
    for attempt in range(TRIES):
        found = _open_now(reader, prefix)
        if not found:
            break
        if attempt < TRIES - 1:
            time.sleep(PAUSE_SECONDS)
    return found


def _open_now(reader: LogReader, prefix: str) -> list[Flow]:
    """What is sent while the topics are looked at makes no difference: it is between the marks before and after."""
    plans = list(HOPS.values())
    before = marks(reader, plans, prefix)
    behind = [plan for plan in plans if senders(plan.source)]
    waits = waiting(reader, behind, before, prefix)
    after = marks(reader, plans, prefix)
    return [flow for plan in behind if (flow := _open(plan, before, waits, after))]


def _open(
    plan: HopPlan, before: Mapping[Place, Mark], waits: Mapping[Place, Waiting], after: Mapping[Place, Mark]
) -> Flow | None:
    own = [mark.progress for (hop, _), mark in before.items() if hop == plan.name]
    ahead = [one for (hop, _), one in waits.items() if hop == plan.name]
    sending = [mark.progress for (hop, _), mark in before.items() if hop in senders(plan.source)]
    unclear = any(one.muted_until > one.resume or sum(one.sent.values()) != one.emitted for one in sending)
    if unclear or not all(one.exact for one in ahead):
        return None
    read = sum(one.read - one.foreign for one in own)
    flow = Flow(plan.source.name, plan.name, _sent(plan.source, before), read, sum(one.sent for one in ahead))
    return None if flow.sent <= flow.read + flow.waiting <= _sent(plan.source, after) else flow


def _sent(topic: Topic, known: Mapping[Place, Mark]) -> int:
    return sum(mark.progress.sent.get(topic.name, 0) for mark in known.values())
