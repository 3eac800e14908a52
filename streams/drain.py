"""Drain: ask every hop to finish what it holds open, and wait until each has."""

import time
from collections.abc import Callable, Sequence

from kafka import KafkaProducer
from kafka.errors import KafkaError

from fluvial.schemas.codec import encode
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import HOPS, LAND, HopPlan
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
) -> float:
    """Wait until everything published so far has come to its end in every hop; gives the seconds it took.

    A flush tick goes into every partition of `tool-calls`; a hop is done when all its partitions have handled it.
    `on_look` is told at each look which hops are waited for and how many records the first of them have handled.
    Raises Behind after `timeout` seconds, BrokerAway if the broker is away at that time, TopicMissing.
    """
    begun = time.monotonic()
    with LogReader(broker) as reader:
        slot, waiting = flush(reader, prefix), list(HOPS.values())
        while waiting:
            away = None
            try:
                looked = _first_of(waiting)
                known = marks(reader, looked, prefix)
                if _passed_without_flush(known, slot):
                    slot, waiting = flush(reader, prefix), list(HOPS.values())
                done = [plan for plan in looked if _flushed(plan, known, slot)]
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


def flush(reader: LogReader, prefix: str = "") -> int:
    """Publish one flush tick to every partition of `tool-calls`; gives its slot, higher than any that land has seen."""
    known = marks(reader, [LAND], prefix).values()
    now = time.time_ns() // 1_000
    slot = max([now // 1_000, *(mark.progress.slot + 1 for mark in known)])
    tick = Tick(slot=slot, at=max(now, slot * 1_000), flush=True)
    try:
        producer = KafkaProducer(bootstrap_servers=reader.broker, acks="all", metrics_enabled=False)
        try:
            sent = [
                producer.send(tp.topic, encode(tick), partition=tp.partition, headers=[("record", b"tick")])
                for tp in reader.partitions(LAND.source.named(prefix))
            ]
            for delivered in sent:
                delivered.get(timeout=reader.timeout)
        finally:
            producer.close()
    except KafkaError as error:
        raise BrokerAway(f"Kafka at {reader.broker} did not take the flush tick ({error}).") from error
    return slot


def _first_of(waiting: Sequence[HopPlan]) -> list[HopPlan]:
    """The hops that wait for no other: those behind them cannot have finished."""
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
