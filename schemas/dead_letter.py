"""DeadLetter: a record that could not be used, with the reason, kept so that it can be replayed."""

from msgspec import Struct

from fluvial.schemas.ids import stable_id


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="dead_letter"):
    """`value` is the record as text, redacted; bytes that are no UTF-8 are replaced, at most 256 KiB are kept."""

    id: str
    hop: str
    topic: str
    partition: int
    offset: int
    reason: str
    value: str
    at: int
    key: str = ""
    event_id: str = ""
    size: int = 0
    """Length of the whole record in bytes."""


KEEP_BYTES = 262_144


def dead_letter_id(topic: str, partition: int, offset: int) -> str:
    """One id a place in a log, so that a dead letter written again is the same one."""
    return stable_id("dead-letter", topic, partition, offset)
