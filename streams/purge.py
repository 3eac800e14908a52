"""What an erasure takes out of the topics, in keep: when its tick has come there, every hop before has handled it.

Matching dead letters go: those that stay are written again, and then everything up to the last that matches is deleted
(a crash in between leaves some twice, under the same id). The derived topics behind land, and the parts of calls before
it, are deleted up to where their readers are. The order stands in the state until a later turn has carried it out, so
that the letters of the tick's own turn are seen too, and nothing is skipped by a crash.
"""

import structlog
from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from fluvial.processors.erasure import concerns_letter
from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import DEAD_LETTERS, DISTIL, GATHER, JOIN, MAX_RECORD_BYTES, WATCH
from fluvial.streams.admin import BrokerAway, delete_before
from fluvial.streams.life import Life
from fluvial.streams.log_reader import LogReader, LogRecord, TopicMissing
from fluvial.streams.progress import marks
from fluvial.streams.state import Table
from fluvial.streams.turn import Turn

log = structlog.get_logger(__name__)

READERS = (JOIN, WATCH, GATHER, DISTIL)
"""Hops whose sources are cut: what those topics hold, `tool-calls` has too or is made from."""


def purge_later(turn: Turn, tick: Tick) -> None:
    """Keep the order of this tick in the state."""
    if tick.erase is not None:
        _orders(turn)[str(tick.slot)] = tick.erase


def purge_what_is_due(turn: Turn, broker: str, prefix: str, life: Life) -> None:
    """Carry out the orders of earlier turns. Raises BrokerAway, TopicMissing, KafkaError."""
    orders = _orders(turn)
    due = [slot for slot in orders if int(slot) <= turn.began]
    if not due:
        return
    with life.patient(), LogReader(broker) as reader:
        for slot in due:
            letters = purge_letters(reader, orders[slot], prefix)
            log.info("erasure carried out in the topics", slot=int(slot), dead_letters=letters)
            del orders[slot]
        cut(reader, prefix)


def purge_letters(reader: LogReader, erasure: Erasure, prefix: str = "") -> int:
    """Take the matching letters out of the topic `dead-letters`; how many they were."""
    gone = 0
    for tp, span in reader.spans(reader.partitions(DEAD_LETTERS.named(prefix))).items():
        kept: list[LogRecord] = []
        matching: list[int] = []
        for record in reader.read({tp: span}):
            if _concerns(record, erasure):
                matching.append(record.offset)
            else:
                kept.append(record)
        if matching:
            _write_again(reader, [record for record in kept if record.offset < matching[-1]])
            delete_before(reader.broker, {tp: matching[-1] + 1})
            gone += len(matching)
    return gone


def cut(reader: LogReader, prefix: str = "") -> None:
    """Delete from the derived topics what every reader has handled."""
    before: dict[TopicPartition, int] = {}
    for plan in READERS:
        try:
            known = marks(reader, [plan], prefix)
        except TopicMissing:  # a replay has no topics of formats
            continue
        for tp, (first, _) in reader.spans(reader.partitions(plan.source.named(prefix))).items():
            reached = max(first, known[plan.name, tp.partition].progress.resume)
            before[tp] = min(reached, before.get(tp, reached))
    delete_before(reader.broker, before)


def _concerns(record: LogRecord, erasure: Erasure) -> bool:
    try:
        return concerns_letter(decode(record.value or b"", DeadLetter), erasure)
    except Undecodable:
        return False


def _write_again(reader: LogReader, records: list[LogRecord]) -> None:
    if not records:
        return
    try:
        producer = KafkaProducer(
            bootstrap_servers=reader.broker, acks="all", max_request_size=MAX_RECORD_BYTES, metrics_enabled=False
        )
        try:
            sent = [
                producer.send(
                    record.partition.topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition.partition,
                    timestamp_ms=record.time // 1_000,
                )
                for record in records
            ]
            for delivered in sent:
                delivered.get(timeout=reader.timeout)
        finally:
            producer.close()
    except KafkaError as error:
        raise BrokerAway(f"Kafka at {reader.broker} did not take the letters that are kept ({error}).") from error


def _orders(turn: Turn) -> Table[Erasure]:
    """Slot -> what the tick told to forget."""
    return turn.table("to-purge", Erasure)
