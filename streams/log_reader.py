"""LogReader: bounded reads of topics, as they were committed, by a client without a group."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from fluvial.schemas.codec import Undecodable, decode
from fluvial.streams.admin import BrokerAway

T = TypeVar("T")

POLL_MS = 200
PAUSE_SECONDS = 0.1
CONNECT_SECONDS = 5.0
FIRST_WINDOW = 16
"""Offsets looked at before the end of a partition at first; the marker is mostly the last but one."""
STRIDE = 500
"""Offsets that are read through in one go where several records of a partition are wanted."""
QUIET_SECONDS = 10.0
"""How long a follower hears nothing before it asks whether the broker is still there."""

Span = tuple[int, int]
"""Offsets from the first (inclusive) to the last (exclusive)."""


class TopicMissing(RuntimeError):
    """The broker has no such topic."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One committed record; `time` is the Kafka record's, microseconds UTC."""

    partition: TopicPartition
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def is_tick(self) -> bool:
        return ("record", b"tick") in self.headers


class LogReader:
    """One connection, read_committed. A broker that gives no answer for `timeout` seconds is BrokerAway."""

    def __init__(self, broker: str, timeout: float = 10.0) -> None:
        self.broker = broker
        self.timeout = timeout
        with self._answering():
            _knock(broker, min(timeout, CONNECT_SECONDS))
            self._consumer: Any = KafkaConsumer(
                bootstrap_servers=broker,
                client_id="fluvial-reader",
                isolation_level="read_committed",
                enable_incremental_fetch_sessions=False,  # 3.0.12 forgets a partition it sought back in
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                bootstrap_timeout_ms=min(self._ms, round(CONNECT_SECONDS * 1000)),
                request_timeout_ms=max(self._ms, 2 * POLL_MS),
                fetch_max_wait_ms=POLL_MS,
                max_poll_records=2_000,
                reconnect_backoff_max_ms=1_000,
                metrics_enabled=False,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions. Raises TopicMissing."""
        with self._answering():
            numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            raise TopicMissing(f"Kafka at {self.broker} has no topic {topic}. `fluvial up` creates the topics.")
        return [TopicPartition(topic, number) for number in sorted(numbers)]

    def spans(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Span]:
        """What each partition holds: from its first offset to behind its last committed record."""
        wanted, deadline = list(partitions), time.monotonic() + self.timeout
        while True:
            try:
                with self._answering():
                    first = self._consumer.beginning_offsets(wanted, timeout_ms=self._ms)
                    end = self._consumer.end_offsets(wanted, timeout_ms=self._ms)
                break
            except KeyError as error:  # kafka-python 3.0.12: a broker or a topic that has just begun has no ends yet
                if time.monotonic() > deadline:
                    raise BrokerAway(f"Kafka at {self.broker} is still reading its log.") from error
            time.sleep(PAUSE_SECONDS)
        return {tp: (first[tp], end[tp]) for tp in wanted}

    def since(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, Span]:
        """What each partition holds from its first record of that Kafka time (microseconds UTC) on."""
        whole = self.spans(partitions)
        with self._answering():
            found = self._consumer.offsets_for_times(dict.fromkeys(whole, time // 1_000), timeout_ms=self._ms)
        return {tp: (found[tp].offset if found.get(tp) else end, end) for tp, (_, end) in whole.items()}

    def read(self, spans: Mapping[TopicPartition, Span], timeout: float | None = None) -> Iterator[LogRecord]:
        """The records within each span, in order within a partition.

        Raises BrokerAway if nothing comes for `timeout` seconds (default: the reader's) before the spans' ends; the
        caller's own time between two records does not count.
        """
        ends = {tp: end for tp, (start, end) in spans.items() if start < end}
        if not ends:
            return
        self._go_to({tp: spans[tp][0] for tp in ends})
        patience = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        while ends:
            if time.monotonic() > deadline:
                raise BrokerAway(f"Kafka at {self.broker} took too long to hand out {next(iter(ends)).topic}.")
            polled = self._poll()
            for record in polled:
                if record.offset < ends.get(record.partition, 0):
                    yield record
            if polled:
                deadline = time.monotonic() + patience
            # the position, unlike the last record's offset, moves past commit markers and what compaction took out
            done = [tp for tp, end in ends.items() if self._position(tp) >= end]
            self._consumer.pause(*done)
            for tp in done:
                del ends[tp]

    def last(
        self, partitions: Iterable[TopicPartition], wanted: Callable[[LogRecord], bool]
    ) -> dict[TopicPartition, LogRecord]:
        """The last wanted record of each partition that has one, looked for from the end backwards."""
        whole = self.spans(partitions)
        found: dict[TopicPartition, LogRecord] = {}
        length = FIRST_WINDOW
        windows = {tp: (max(first, end - length), end) for tp, (first, end) in whole.items()}
        while windows:
            found |= {record.partition: record for record in self.read(windows) if wanted(record)}
            length *= 2
            windows = {
                tp: (max(whole[tp][0], start - length), start)
                for tp, (start, _) in windows.items()
                if tp not in found and start > whole[tp][0]
            }
        return found

    def at(self, places: Iterable[tuple[TopicPartition, int]]) -> Iterator[LogRecord]:
        """The records at these places, in no order; a place that holds none (any more) gives none."""
        wanted: dict[TopicPartition, list[int]] = {}
        for tp, offset in sorted(set(places)):
            wanted.setdefault(tp, []).append(offset)
        whole = self.spans(wanted)
        waiting = {tp: [o for o in offsets if whole[tp][0] <= o < whole[tp][1]] for tp, offsets in wanted.items()}
        while waiting := {tp: offsets for tp, offsets in waiting.items() if offsets}:
            near = {tp: [o for o in offsets if o < offsets[0] + STRIDE] for tp, offsets in waiting.items()}
            for record in self.read({tp: (offsets[0], offsets[-1] + 1) for tp, offsets in near.items()}):
                if record.offset in near[record.partition]:
                    yield record
            waiting = {tp: offsets[len(near[tp]) :] for tp, offsets in waiting.items()}

    def follow(self, starts: Mapping[TopicPartition, int]) -> Iterator[LogRecord]:
        """Records from these offsets on, for ever. Raises BrokerAway when the broker is gone."""
        self._go_to(starts)
        heard = time.monotonic()
        while True:
            for record in self._poll():
                heard = time.monotonic()
                yield record
            if time.monotonic() - heard > QUIET_SECONDS:
                self.spans(starts)
                heard = time.monotonic()

    @property
    def _ms(self) -> int:
        return max(1, round(self.timeout * 1000))

    def _go_to(self, starts: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(starts))
        for tp, start in starts.items():
            self._consumer.seek(tp, start)
        self._consumer.resume(*starts)

    def _poll(self) -> list[LogRecord]:
        with self._answering():
            polled = self._consumer.poll(timeout_ms=POLL_MS)
        return [
            LogRecord(tp, r.offset, r.timestamp * 1000, r.key, r.value, tuple(r.headers))
            for tp, records in polled.items()
            for r in records
        ]

    def _position(self, partition: TopicPartition) -> int:
        with self._answering():
            position: int = self._consumer.position(partition, timeout_ms=self._ms)
        return position

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (KafkaError, OSError) as error:
            raise BrokerAway(
                f"Kafka at {self.broker} does not answer ({error}). Is it up? `fluvial up` starts a local one, "
                "--broker names another."
            ) from error


def decoded(records: Iterable[LogRecord], kind: type[T]) -> Iterator[T]:
    """What the records say. Ticks are passed over, and what cannot be read: the hop behind made a dead letter of it."""
    for record in records:
        if not record.is_tick:
            try:
                yield decode(record.value or b"", kind)
            except Undecodable:
                continue


def _knock(broker: str, timeout: float) -> None:
    """Raises OSError at once if nobody listens at any address: Kafka's client would go on trying, and leave sockets."""
    addresses = [_address(text) for text in broker.split(",")]
    for number, address in enumerate(addresses, 1):
        try:
            socket.create_connection(address, timeout).close()
            return
        except OSError:
            if number == len(addresses):
                raise


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise BrokerAway(f"The broker {text!r} is not host:port, such as 127.0.0.1:9092.")
    return host.strip("[]"), int(port)
