"""Drain: ask every hop to finish what it holds open, and wait until each has."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from fluvial.schemas.codec import encode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import HOPS, JOIN, LAND, HopPlan
from fluvial.streams.admin import BrokerAway
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import Mark, Place, lags, marks

LOOK_SECONDS = 0.4


class Behind(RuntimeError):
    """Not everything came to its end in time; the message names the hops that are behind."""


def drain(
    broker: str,
    timeout: float,
    prefix: str = "",
    on_look: Callable[[Sequence[HopPlan], int], None] = lambda waiting, handled: None,
    erase: Erasure | None = None,
) -> float:
    """Wait until everything published so far has come to its end in every hop; gives the seconds it took.

    First the hops that receive foreign formats have to have read what was published, then join hands on what it holds,
    then the rest of the river finishes: a flush tick goes into every partition of `call-parts`, and then of
    `tool-calls`, and a hop is done when all its partitions have handled it. `on_look` is told at each look which hops
    are waited for and how many records the first of them have handled. `erase`: what the hops forget at those ticks.
    Raises Behind after `timeout` seconds, BrokerAway if the broker is away at that time, TopicMissing.
    """
    begun = time.monotonic()
    with LogReader(broker) as reader:
        published = _ends_of_foreign_topics(reader, prefix)
        slots: dict[str, int] = {}
        waiting = list(HOPS.values())
        while waiting:
            away = None
            try:
                looked = _first_of(waiting)
                known = marks(reader, looked, prefix)
                if looked[0].source.foreign:
                    done = [plan for plan in looked if _has_read(reader, plan, known, published)]
                elif looked == [JOIN] and _nothing_came(reader, known, prefix):
                    done = looked  # it need not even run
                else:
                    head = JOIN if JOIN in looked else LAND
                    if head.name not in slots or _passed_without_flush(known, slots[head.name]):
                        slots[head.name] = flush(reader, prefix, head, erase)
                        waiting = list(HOPS.values())[list(HOPS.values()).index(head) :]
                    done = [plan for plan in looked if _flushed(plan, known, slots[head.name])]
                waiting = [plan for plan in waiting if plan not in done]
                on_look(waiting, sum(mark.progress.read for mark in known.values()))
                if done:
                    continue  # with those behind it, at once
            except BrokerAway as error:
                away = error
            if time.monotonic() - begun > timeout:
                raise away or Behind(_who_is_behind(reader, waiting, timeout, prefix))
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - begun


def flush(reader: LogReader, prefix: str = "", plan: HopPlan = LAND, erase: Erasure | None = None) -> int:
    """Publish one flush tick to every partition of a hop's source; gives its slot."""
    return publish_tick(reader, plan, prefix, flush=True, erase=erase)


def publish_tick(reader: LogReader, plan: HopPlan, prefix: str = "", **fields: Any) -> int:
    """Publish a tick with these fields to every partition of a hop's source; gives its slot, higher than any it has
    seen. Raises BrokerAway, TopicMissing.
    """
    known = marks(reader, [plan], prefix).values()
    now = time.time_ns() // 1_000
    slot = max([now // 1_000, *(mark.progress.slot + 1 for mark in known)])
    tick = Tick(slot=slot, at=max(now, slot * 1_000), **fields)
    try:
        producer = KafkaProducer(bootstrap_servers=reader.broker, acks="all", metrics_enabled=False)
        try:
            sent = [
                producer.send(tp.topic, encode(tick), partition=tp.partition, headers=[("record", b"tick")])
                for tp in reader.partitions(plan.source.named(prefix))
            ]
            for delivered in sent:
                delivered.get(timeout=reader.timeout)
        finally:
            producer.close()
    except KafkaError as error:
        raise BrokerAway(f"Kafka at {reader.broker} did not take a tick ({error}).") from error
    return slot


def _ends_of_foreign_topics(reader: LogReader, prefix: str) -> dict[str, dict[TopicPartition, int]]:
    """Where the topics end that the hops for foreign formats read, by hop."""
    return {
        plan.name: {tp: end for tp, (_, end) in reader.spans(reader.partitions(plan.source.named(prefix))).items()}
        for plan in HOPS.values()
        if plan.source.foreign
    }


def _has_read(
    reader: LogReader,
    plan: HopPlan,
    known: Mapping[Place, Mark],
    published: Mapping[str, Mapping[TopicPartition, int]],
) -> bool:
    """Whether the hop has read everything before these ends, marks of transactions apart."""
    left = {tp: (known[plan.name, tp.partition].progress.resume, end) for tp, end in published[plan.name].items()}
    return next(reader.read(left), None) is None


def _nothing_came(reader: LogReader, known: dict[Place, Mark], prefix: str) -> bool:
    """Whether join never had anything to do."""
    read = sum(mark.progress.read for mark in known.values())
    return read + sum(lags(reader, [JOIN], known, prefix).values()) == 0


def _first_of(waiting: Sequence[HopPlan]) -> list[HopPlan]:
    """The hops that wait for no other: those behind them cannot have finished."""
    receiving = [plan for plan in waiting if plan.source.foreign]
    if receiving or JOIN in waiting:
        return receiving or [JOIN]
    return [plan for plan in waiting if not any(before in waiting for before in plan.upstream())]


def _flushed(plan: HopPlan, known: dict[Place, Mark], slot: int) -> bool:
    return all(mark.progress.flushed >= slot for (hop, _), mark in known.items() if hop == plan.name)


def _passed_without_flush(known: dict[Place, Mark], slot: int) -> bool:
    """Whether a later tick came first somewhere, so that ours was not taken there."""
    return any(mark.progress.slot >= slot > mark.progress.flushed for mark in known.values())


def _who_is_behind(reader: LogReader, waiting: Sequence[HopPlan], timeout: float, prefix: str) -> str:
    first = _first_of(waiting)
    behind = dict.fromkeys((plan.name for plan in first), 0)
    for (hop, _), lag in lags(reader, first, marks(reader, first, prefix), prefix).items():
        behind[hop] += lag
    hops = ", ".join(f"{hop} (lag {lag:,})" for hop, lag in behind.items())
    others = [plan.name for plan in waiting if plan not in first]
    after = f"; after it: {', '.join(others)}" if others else ""
    return f"Not drained after {timeout:g} s; behind: {hops}{after}. `fluvial status` shows whether the workers run."
