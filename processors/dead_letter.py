"""The one form of a dead letter, whoever puts a record aside: without secrets, and bounded whatever the record was."""

import re
from typing import Any

from fluvial.processors.redact import KEYLESS, Redactor
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter, dead_letter_id

LINE_BYTES = 1_024
"""What is kept of a key, of a topic or file, and of a reason."""
ID_CHARACTERS = 128
OVERLAP_BYTES = 4_096
"""Read beyond what is kept, so that a secret across the end is seen whole."""
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NO_TEXT = "[redacted:binary]"
"""Stands for protobuf, UTF-16, and the like: what is a secret in it cannot be told from the rest."""


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
    redactor: Redactor = KEYLESS,
) -> DeadLetter:
    """Put `value` aside; `at` in microseconds UTC, `id` by default that of the place in the log."""
    return DeadLetter(
        id=id or dead_letter_id(topic, partition, offset),
        hop=hop,
        topic=_kept(topic, LINE_BYTES, redactor),
        partition=partition,
        offset=offset,
        reason=_kept(reason, LINE_BYTES, redactor),
        value=_value(value, redactor),
        at=at,
        key=_kept(key, LINE_BYTES, redactor),
        event_id=redactor.text(event_id[:LINE_BYTES])[0][:ID_CHARACTERS],
        size=len(value),
    )


def _value(value: bytes, redactor: Redactor) -> str:
    """The record as text without secrets; of binary data, which have control characters, nothing."""
    if _BINARY.search(value):
        return _NO_TEXT
    return _kept(_clean_json(value, redactor) or value, KEEP_BYTES, redactor)


def _kept(whole: bytes | str, most: int, redactor: Redactor) -> str:
    """The first `most` bytes at most of UTF-8 text, without secrets."""
    data = whole.encode("utf-8", "replace") if isinstance(whole, str) else whole
    text = data[: most + OVERLAP_BYTES].decode("utf-8", "replace")
    clean = redactor.text(text)[0]
    if "\0" in text and redactor.text(text.replace("\0", ""))[1]:
        return _NO_TEXT
    kept = clean.encode()
    if len(data) > most + OVERLAP_BYTES:
        kept = kept[:-OVERLAP_BYTES]  # a secret across the end of what was read was not seen whole
    return kept[:most].decode("utf-8", "ignore")


def _clean_json(value: bytes, redactor: Redactor) -> bytes | None:
    """The record without the secrets that its structure shows; None where there are none, or it is no JSON."""
    try:
        clean, found = redactor.value(decode(value, Any))
        return encode(clean) if found else None
    except (Undecodable, RecursionError):
        return None
