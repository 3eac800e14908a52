"""A log of trades that is the same at every run, ticks included, and who puts it on a broker piece by piece."""

import random
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError
from msgspec.structs import replace

from fluvial.schemas.codec import encode
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import event_id_of
from fluvial.schemas.topics import MAX_RECORD_BYTES, TOOL_CALLS
from fluvial.streams.admin import BrokerAway
from fluvial.streams.log_reader import LogReader

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
from agents import trade
from market import read_market

FIRST_SLOT = 1_764_500_000_000
"""Milliseconds; every tick is a second after the one before."""
EVERY = 12
"""Calls between two ticks."""
FLUSH_SLOT = FIRST_SLOT + 10_000_000
PIECE = 100


@dataclass(frozen=True)
class Entry:
    """One record of `tool-calls`."""

    partition: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    tick: bool = False


def market_log(calls: int, seed: int = 1) -> list[Entry]:
    """Trades through the crash, some twice, some unreadable, with ticks between them and a flush tick at the end."""
    dice = random.Random(seed)
    entries: list[Entry] = []
    slot = FIRST_SLOT
    for number, call in enumerate(trade(read_market(), 2_400 - calls // 3, calls, 4, seed)):
        if number == calls:
            break
        call = replace(call, event_id=event_id_of(call))
        key = f"{call.source}|{call.run_id}".encode()
        partition = zlib.crc32(key) % TOOL_CALLS.partitions
        entry = Entry(partition, key, encode(call), slot)
        entries.append(entry)
        if dice.random() < 0.03:
            entries.append(entry)
        if dice.random() < 0.01:
            entries.append(Entry(partition, key, b"{broken %d" % number, slot))
        if number % EVERY == EVERY - 1:
            slot += 1_000
            entries += _ticks(slot)
    return entries + _ticks(FLUSH_SLOT, flush=True)


def _ticks(slot: int, flush: bool = False) -> list[Entry]:
    value = encode(Tick(slot=slot, at=slot * 1_000, flush=flush))
    return [Entry(partition, None, value, slot, tick=True) for partition in range(TOOL_CALLS.partitions)]


def _between(last: Entry, following: Entry) -> bool:
    """Whether a tick has just come to every partition."""
    return last.tick and not following.tick


class Feeder(threading.Thread):
    """Writes the entries in order, as far as they were released; goes on where the topic ends when the broker is back.

    What it has written is exactly the log: it alone writes, and after every trouble it looks where it was.
    """

    def __init__(self, broker: str, prefix: str, entries: Sequence[Entry]) -> None:
        super().__init__(name="feeder", daemon=True)
        self._broker = broker
        self._topic = TOOL_CALLS.named(prefix)
        self._entries = entries
        self._released = 0
        self._fed = 0
        self._over = threading.Event()

    @property
    def left(self) -> int:
        """Entries that are not released yet."""
        return len(self._entries) - self._released

    @property
    def done(self) -> bool:
        return self._fed == len(self._entries)

    def release(self, entries: int) -> None:
        """Let it write so many more, and what follows up to a tick in every partition."""
        released = min(len(self._entries), self._released + entries)
        while released < len(self._entries) and not _between(self._entries[released - 1], self._entries[released]):
            released += 1
        self._released = released

    def close(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(60)

    def run(self) -> None:
        while not self._over.is_set() and not self.done:
            try:
                self._feed()
            except (KafkaError, BrokerAway):
                self._over.wait(1.0)

    def _feed(self) -> None:
        missing = self._missing()
        self._fed = len(self._entries) - len(missing)
        producer: Any = KafkaProducer(
            bootstrap_servers=self._broker,
            acks="all",
            max_request_size=MAX_RECORD_BYTES,
            delivery_timeout_ms=15_000,
            request_timeout_ms=5_000,
            metrics_enabled=False,
        )
        try:
            while missing and not self._over.is_set():
                piece = [number for number in missing[:PIECE] if number < self._released]
                if not piece:
                    time.sleep(0.02)
                    continue
                for delivered in [self._send(producer, self._entries[number]) for number in piece]:
                    delivered.get(timeout=20)
                del missing[: len(piece)]
                self._fed += len(piece)
        finally:
            producer.close(timeout=5)

    def _send(self, producer: Any, entry: Entry) -> Any:
        return producer.send(
            self._topic,
            entry.value,
            key=entry.key,
            partition=entry.partition,
            timestamp_ms=entry.timestamp_ms,
            headers=[("record", b"tick")] if entry.tick else [],
        )

    def _missing(self) -> list[int]:
        """Places of the entries that the topic does not hold; a piece that was cut off may be there in part."""
        with LogReader(self._broker) as reader:
            there = {tp.partition: end for tp, (_, end) in reader.spans(reader.partitions(self._topic)).items()}
        missing = []
        for number, entry in enumerate(self._entries):
            if there[entry.partition] > 0:
                there[entry.partition] -= 1
            else:
                missing.append(number)
        return missing
