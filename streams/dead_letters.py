"""Dead letters: what could not be used, read and sent on its way once more."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import DEAD_LETTERS, FOREIGN_TOPICS, INSIGHT_OPS, MAX_RECORD_BYTES, TOOL_CALLS
from fluvial.streams.admin import BrokerAway
from fluvial.streams.log_reader import LogReader, LogRecord, decoded

PUBLISHED = tuple(topic.name for topic in (*FOREIGN_TOPICS, TOOL_CALLS, INSIGHT_OPS))
"""The topics that agents, Collectors and operators publish to: what comes again is known by the ids of its calls."""


class Sent(NamedTuple):
    """What became of one dead letter in a replay; `why` says it for a person."""

    letter: DeadLetter
    outcome: Literal["replayed", "same", "impossible"]
    why: str


class _Parcel(NamedTuple):
    """A record to publish. `same` is equal for records that the hop takes for one."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    same: object


def dead_letters(reader: LogReader, prefix: str = "") -> Iterator[DeadLetter]:
    """All dead letters, each once, as they came. Raises BrokerAway, TopicMissing.

    An erasure that was cut short (streams/purge.py) leaves copies behind.
    """
    spans = reader.spans(reader.partitions(DEAD_LETTERS.named(prefix)))
    seen: set[DeadLetter] = set()
    for letter in decoded(reader.read(spans), DeadLetter):
        if letter not in seen:
            seen.add(letter)
            yield letter


def replay(reader: LogReader, letters: Sequence[DeadLetter], prefix: str = "") -> list[Sent]:
    """Publish the original records of dead letters again; the answer has one entry a letter, in their order.

    The same event is published once, however often it died. Returns when the broker has acknowledged them all.
    """
    originals = _originals(reader, letters, prefix)
    sent: list[Sent] = []
    seen: set[object] = set()
    try:
        producer = KafkaProducer(
            bootstrap_servers=reader.broker, acks="all", max_request_size=MAX_RECORD_BYTES, metrics_enabled=False
        )
        try:
            pending = []
            for letter in letters:
                parcel = _parcel(letter, originals.get(_place(letter, prefix)), prefix)
                if isinstance(parcel, str):
                    sent.append(Sent(letter, "impossible", parcel))
                elif parcel.same in seen:
                    sent.append(Sent(letter, "same", "the same record is replayed already"))
                else:
                    seen.add(parcel.same)
                    sent.append(Sent(letter, "replayed", f"published to {parcel.topic}"))
                    pending.append(
                        producer.send(
                            parcel.topic,
                            parcel.value,
                            key=parcel.key,
                            headers=list(parcel.headers),
                            partition=parcel.partition,
                        )
                    )
            for delivered in pending:
                delivered.get(timeout=reader.timeout)
        finally:
            producer.close()
    except KafkaError as error:
        raise BrokerAway(f"Kafka at {reader.broker} did not take what was replayed ({error}).") from error
    return sent


def _was_published(letter: DeadLetter, prefix: str) -> bool:
    return letter.hop != "publish" and letter.topic.removeprefix(prefix) in PUBLISHED


def _place(letter: DeadLetter, prefix: str) -> tuple[TopicPartition, int]:
    return TopicPartition(prefix + letter.topic.removeprefix(prefix), letter.partition), letter.offset


def _originals(
    reader: LogReader, letters: Sequence[DeadLetter], prefix: str
) -> dict[tuple[TopicPartition, int], LogRecord]:
    places = [_place(letter, prefix) for letter in letters if _was_published(letter, prefix)]
    return {(record.partition, record.offset): record for record in reader.at(places)}


def _parcel(letter: DeadLetter, original: LogRecord | None, prefix: str) -> _Parcel | str:
    """What to publish for a letter, or why nothing can be."""
    if letter.hop == "publish":
        return _refused_at_publish(letter, prefix)
    if not _was_published(letter, prefix):
        return f"{letter.topic} is what the river makes of what was published; only that is published again"
    if original is None or original.value is None:
        return f"{letter.topic}[{letter.partition}] holds no record at offset {letter.offset} any more"
    where, headers = original.partition, _headers(original)
    same = letter.event_id or (where.topic, original.value, headers)
    return _Parcel(where.topic, where.partition, original.key, original.value, headers, same)


def _headers(original: LogRecord) -> tuple[tuple[str, bytes], ...]:
    """Those that say what the record is (a CloudEvent's attributes, a session); a hop's mark of its order stays out."""
    return tuple(header for header in original.headers if header[0] not in ("origin", "epoch"))


def _refused_at_publish(letter: DeadLetter, prefix: str) -> _Parcel | str:
    if letter.size > KEEP_BYTES:
        return f"only {KEEP_BYTES // 1024} KiB of its {letter.size:,} bytes were kept; publish it again from its source"
    value = letter.value.encode()
    try:
        call = decode(value, ToolCall)
    except Undecodable as error:
        return f"what was kept of it is {error}"
    return _Parcel(
        TOOL_CALLS.named(prefix), None, f"{call.source}|{call.run_id}".encode(), value, (), letter.event_id or value
    )
