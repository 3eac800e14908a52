"""The one form of a dead letter, whoever puts a record aside: without secrets, and bounded whatever the record was."""

from fluvial.processors.redact import redact_text
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter, dead_letter_id

LINE_BYTES = 1_024
"""What is kept of a key, and of a reason."""
ID_CHARACTERS = 128
OVERLAP_BYTES = 4_096
"""Read beyond what is kept, so that a secret across the end is seen whole."""


def dead_letter(
    *,
    hop: str,
    topic: str,
    partition: int,
    offset: int,
    reason: str,
    value: bytes,
    key: bytes | str,
    at: int,
    event_id: str = "",
    id: str | None = None,
) -> DeadLetter:
    """Put `value` aside; `at` in microseconds UTC, `id` by default that of the place in the log."""
    return DeadLetter(
        id=id or dead_letter_id(topic, partition, offset),
        hop=hop,
        topic=topic,
        partition=partition,
        offset=offset,
        reason=_kept(reason, LINE_BYTES),
        value=_kept(value, KEEP_BYTES),
        at=at,
        key=_kept(key, LINE_BYTES),
        event_id=event_id[:ID_CHARACTERS],
        size=len(value),
    )


def _kept(whole: bytes | str, most: int) -> str:
    """The first `most` bytes at most of UTF-8 text, without secrets."""
    data = whole.encode("utf-8", "replace") if isinstance(whole, str) else whole
    clean = redact_text(data[: most + OVERLAP_BYTES].decode("utf-8", "replace"))[0].encode()
    if len(data) > most + OVERLAP_BYTES:
        clean = clean[:-OVERLAP_BYTES]  # a secret across the end of what was read was not seen whole
    return clean[:most].decode("utf-8", "ignore")
