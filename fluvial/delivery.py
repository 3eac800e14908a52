"""Delivery: a bounded buffer and one thread that brings records to Kafka, whatever the broker does meanwhile."""

import encodings.idna  # noqa: F401  # else the first connection imports it, and a fork meanwhile keeps its lock for ever
import logging
import os
import socket
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.errors import KafkaError, KafkaTimeoutError

from fluvial.producer import Producer

log = logging.getLogger("fluvial.publish")

CONNECT_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
"""A broker that acknowledged nothing for so long is away."""
RETRY_SECONDS = 0.5
GATHER_SECONDS = 0.02
"""A record waits so long for others: a thread that wakes for each costs the agent's thread more than they do."""


class Record(NamedTuple):
    topic: str
    key: bytes
    value: bytes


class Delivery:
    """Takes records without waiting and delivers each partition's in order (idempotent producer, acks from all).

    At most `count` records and `size` bytes are held, in flight included. A broker that is away is logged once and
    waited for; what was taken is delivered when it is back. Safe between threads; a forked child starts empty.
    """

    def __init__(self, broker: str, *, topics: Sequence[str], count: int, size: int) -> None:
        """`broker` is host:port, or several with commas. ValueError if it is not. Nothing is opened before its use."""
        self.broker = broker
        self._addresses = [_address(part) for part in broker.split(",")]
        self._topics = topics
        self._count = count
        self._size = size
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._waiting: deque[tuple[int, Record]] = deque()
        self._held: dict[int, tuple[str, int]] = {}  # number -> topic, bytes: what is not settled, oldest first
        self._held_bytes = 0
        self._last_number = 0
        self._last_settled = time.monotonic()
        self._connected = False
        self._away = False
        self._closed = False
        self._stopping = False
        self.problem = ""
        self.outages = 0
        self.taken, self.delivered, self.failed, self.dropped = (Counter[str]() for _ in range(4))  # by topic

    def after_fork(self) -> None:
        """The child's own start: the parent delivers what it took."""
        inherited = self._producer
        if inherited is not None:
            inherited.disown()
        self._begin()

    def offer(self, record: Record, wait: float = 0.0) -> bool:
        """Take a record; False (and counted as dropped) if there is no room within `wait` seconds."""
        size = len(record.key) + len(record.value)
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._has_room(size), wait) or self._closed:
                self.dropped[record.topic] += 1
                return False
            self._last_number += 1
            if not self._held:
                self._last_settled = time.monotonic()
            self._held[self._last_number] = record.topic, size
            self._held_bytes += size
            self._waiting.append((self._last_number, record))
            self.taken[record.topic] += 1
            self._start()
            self._changed.notify_all()
        return True

    def ready(self, timeout: float) -> bool:
        """Wait until the broker answers. False after `timeout` seconds; `problem` then says why."""
        with self._changed:
            self._start()
            return self._changed.wait_for(lambda: self._connected, timeout)

    def flush(self, timeout: float) -> bool:
        """Wait until everything taken so far is settled; True if it is within `timeout` seconds."""
        with self._changed:
            last = self._last_number
            return self._changed.wait_for(lambda: next(iter(self._held), last + 1) > last, timeout)

    def close(self, timeout: float) -> None:
        """Take no more, deliver for at most `timeout` seconds, count the rest as failed."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if not self.flush(timeout):
            log.warning("%d records were not delivered to %s. %s", len(self._held), self.broker, self.problem)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
        with self._changed:
            for number in list(self._held):
                self._settle(number, delivered=False)

    def _has_room(self, size: int) -> bool:
        return len(self._held) < self._count and (not self._held or self._held_bytes + size <= self._size)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name="fluvial-publish", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads: the next record tries again
                self.problem = f"{error}."
            else:
                self._thread = thread

    def _run(self) -> None:
        while not self._stopping:
            if not self._connected:
                self._connect()
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping, 1.0)
            time.sleep(GATHER_SECONDS)
            with self._changed:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), 1_000))]
            for number, record in batch:
                while not self._stopping and not self._send(number, record):
                    pass
            self._notice_silence()
        if self._producer is not None:
            self._producer.stop()

    def _connect(self) -> None:
        try:
            self._knock()
            if self._producer is None:
                self._producer = Producer(self.broker, CONNECT_SECONDS)
            for topic in self._topics:
                self._producer.partitions_for(topic)
        except (OSError, KafkaError) as error:
            if self._producer is None or isinstance(error, OSError):
                self._is_away(f"No Kafka broker answers at {self.broker} ({error}).")
            else:
                self._is_away(f"The broker at {self.broker} has no topic {topic}; `fluvial up` makes it.")
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, RETRY_SECONDS)
            return
        with self._changed:
            self._connected = True
            self._changed.notify_all()

    def _knock(self) -> None:
        """Raises OSError if no address of the broker listens: cheaper than a producer that cannot start."""
        for last, address in enumerate(self._addresses, 1):
            try:
                socket.create_connection(address, CONNECT_SECONDS).close()
                return
            except OSError:
                if last == len(self._addresses):
                    raise

    def _send(self, number: int, record: Record) -> bool:
        """Hand one record over; False if it has to be tried again, so that a run's order stays."""
        assert self._producer is not None
        try:
            future = self._producer.send(record.topic, record.value, record.key)
        except KafkaTimeoutError as error:
            self._is_away(f"The broker at {self.broker} is away ({error}).")
            return False
        except (KafkaError, ValueError, TypeError) as error:
            self._on_failure(number, error)
            return True
        future.add_callback(self._on_delivery, number)
        future.add_errback(self._on_failure, number)
        return True

    def _on_delivery(self, number: int, metadata: Any) -> None:
        with self._changed:
            self._settle(number, delivered=True)
            if self._away:
                self._away = False
                log.info("The broker %s answers again", self.broker)

    def _on_failure(self, number: int, error: BaseException) -> None:
        with self._changed:
            self.problem = str(error)
            first = not self.failed
            self._settle(number, delivered=False)
        if first and not self._stopping:
            log.warning("The broker %s refused a record: %s (said once; counted as failed)", self.broker, error)

    def _settle(self, number: int, *, delivered: bool) -> None:
        held = self._held.pop(number, None)
        if held is None:
            return
        topic, size = held
        self._held_bytes -= size
        self._last_settled = time.monotonic()
        if delivered:
            self.delivered[topic] += 1
        else:
            self.failed[topic] += 1
        self._changed.notify_all()

    def _notice_silence(self) -> None:
        if self._held and time.monotonic() - self._last_settled > PATIENCE_SECONDS:
            self._is_away(f"The broker at {self.broker} has acknowledged nothing for {PATIENCE_SECONDS:.0f} s.")

    def _is_away(self, problem: str) -> None:
        with self._changed:
            self.problem = problem
            if self._away:
                return
            self._away = True
            self.outages += 1
        log.warning("%s What is published waits for it (said once).", problem)


_living: "weakref.WeakSet[Delivery]" = weakref.WeakSet()


def _after_fork() -> None:
    for delivery in list(_living):
        delivery.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"The broker {text!r} is not host:port, such as 127.0.0.1:9092.")
    return host.strip("[]"), int(port)
