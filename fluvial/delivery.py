"""Delivery: one thread that brings what is published to Kafka, whatever the broker does meanwhile."""

import encodings.idna  # noqa: F401  # else the first connection imports it, and a fork meanwhile keeps its lock for ever
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from fluvial.backlog import Backlog, Held
from fluvial.frames import Record
from fluvial.knock import addresses, knock
from fluvial.producer import Producer
from fluvial.spool import Spool

log = logging.getLogger("fluvial.publish")

CONNECT_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
"""A broker that acknowledged nothing for so long is away."""
RETRY_SECONDS = 0.5
GATHER_SECONDS = 0.02
"""A record waits so long for others: a thread that wakes for each costs the agent's thread more than they do."""
IDLE_SECONDS = 1.0
POLL_SECONDS = 0.01
BATCH = 500
THE_RECORDS_OWN = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecordError, ValueError, TypeError)
"""What another try would meet again. Any other refusal is the broker's state, which is waited out."""

MakeSpool = Callable[[threading.RLock], Spool]


class Delivery:
    """Takes records without waiting and delivers each partition's in order (idempotent producer, acks from all).

    What waits is in the spool or, without one, in memory (`fluvial.backlog`). A broker that is away is logged once and
    waited for; what was taken is delivered when it is back. Safe between threads; a forked child starts empty.
    """

    def __init__(
        self, broker: str, *, topics: Sequence[str], count: int, size: int, make_spool: MakeSpool | None = None
    ) -> None:
        """`broker` is host:port, or several with commas. ValueError if it is not. Nothing is opened before its use."""
        self.broker = broker
        self._addresses = addresses(broker)
        self._topics = topics
        self._count = count
        self._size = size
        self._make_spool = make_spool
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        spool = self._make_spool(lock) if self._make_spool else None
        self.backlog = Backlog(lock, spool, count=self._count, size=self._size)
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._generation = 0
        """Of the producer: what an earlier one says of a record is out of date."""
        self._refused = False
        self._again: list[tuple[int, Held]] = []
        """What was given to an earlier producer and is not settled."""
        self._last_settled = time.monotonic()
        self._connected = False
        self._away = False
        self._closed = False
        self._stopping = False
        self.problem = ""
        self.outages = 0

    def after_fork(self) -> None:
        """The child's own start: the parent delivers what it took."""
        if self._producer is not None:
            self._producer.disown()
        if self.backlog.spool is not None:
            self.backlog.spool.disown()
        self._begin()

    def offer(self, record: Record, wait: float = 0.0) -> bool:
        """Take a record; False (and counted as dropped) if there is no room within `wait` seconds."""
        with self._changed:
            taken = self._changed.wait_for(lambda: self._closed or self.backlog.put(record), wait) and not self._closed
            if taken:
                self._start()
                self._changed.notify_all()
            else:
                self.backlog.dropped[record.topic] += 1
        return taken

    def ready(self, timeout: float) -> bool:
        """Wait until the broker answers. False after `timeout` seconds; `problem` then says why."""
        with self._changed:
            self._start()
            return self._changed.wait_for(lambda: self._connected, timeout)

    def flush(self, timeout: float) -> bool:
        """Wait until everything taken so far is settled; True if it is within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        backlog = self.backlog
        with self._changed:
            last = backlog.last_number()
        if not self._until(lambda: not backlog.waits_before(last), deadline):
            return False
        with self._changed:
            mark = backlog.mark()
        return self._until(lambda: backlog.settled_until(last, mark), deadline)

    def close(self, timeout: float) -> None:
        """Take no more, deliver for at most `timeout` seconds, leave the rest to the spool or count it as failed."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self.flush(timeout)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
        failed = self.backlog.failed.total()
        self.backlog.close(spool_too=thread is None or not thread.is_alive())
        lost = self.backlog.failed.total() - failed
        left = sum(self.backlog.account(topic).pending for topic in self._topics)
        if lost:
            log.warning("%d records were not delivered to %s. %s", lost, self.broker, self.problem)
        if left and self.backlog.spool is not None:
            place = self.backlog.spool.destination
            log.warning(
                "%d records wait in %s until an agent publishes again, or `fluvial publish --spooled`. %s",
                left,
                place,
                self.problem,
            )

    def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        while True:
            with self._changed:
                if condition():
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))

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
            self.backlog.tend()
            if not self._connected:
                self._connect()
                continue
            with self._changed:
                self._changed.wait_for(self._has_work, IDLE_SECONDS)
            time.sleep(GATHER_SECONDS)
            for number, held in self._next():
                while not (self._stopping or self._refused or self._send(number, held.record)):
                    self.backlog.tend()
            if self._refused:
                self._renew()
            self._notice_silence()
        with self._changed:
            self._generation += 1
        if self._producer is not None:
            self._producer.stop()

    def _has_work(self) -> bool:
        return bool(self._again or self._refused or self._stopping or self.backlog.has_work())

    def _next(self) -> list[tuple[int, Held]]:
        if self._again:
            again, self._again = self._again, []
            return again
        if not self.backlog.held:
            self._last_settled = time.monotonic()
        return self.backlog.take(BATCH)

    def _renew(self) -> None:
        """Part with a producer that the broker refused, or that gave up, and send what it had once more."""
        assert self._producer is not None
        self._is_away(f"The broker at {self.broker} refuses what is sent ({self.problem}).")
        self._producer.stop()
        self._producer, self._connected = None, False
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, RETRY_SECONDS)
            self._refused = False
            self._again = list(self.backlog.held.items())

    def _connect(self) -> None:
        try:
            knock(self._addresses, CONNECT_SECONDS)
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

    def _send(self, number: int, record: Record) -> bool:
        """Hand one record over; False if it has to be tried again, so that a run's order stays."""
        assert self._producer is not None
        generation = self._generation
        try:
            future = self._producer.send(record.topic, record.value, record.key, timestamp_ms=record.at_ms)
        except KafkaTimeoutError as error:
            self._is_away(f"The broker at {self.broker} is away ({error}).")
            return False
        except (KafkaError, ValueError, TypeError) as error:
            self._on_failure(number, generation, error)
            return True
        future.add_callback(self._on_delivery, number)
        future.add_errback(self._on_failure, number, generation)
        return True

    def _on_delivery(self, number: int, metadata: Any) -> None:
        with self._changed:
            self.backlog.settle(number, delivered=True)
            self._last_settled = time.monotonic()
            self._changed.notify_all()
            back, self._away = self._away, False
        if back:
            log.info("The broker %s answers again", self.broker)

    def _on_failure(self, number: int, generation: int, error: BaseException) -> None:
        with self._changed:
            if generation != self._generation:
                return
            self.problem = str(error)
            if not isinstance(error, THE_RECORDS_OWN):
                self._generation += 1
                self._refused = True
                self._changed.notify_all()
                return
            first = not self.backlog.failed
            self.backlog.settle(number, delivered=False)
            self._last_settled = time.monotonic()
            self._changed.notify_all()
        if first:
            log.warning("The broker %s refused a record: %s (said once; counted as failed)", self.broker, error)

    def _notice_silence(self) -> None:
        if self.backlog.held and time.monotonic() - self._last_settled > PATIENCE_SECONDS:
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
