"""Frames: how records stand in the files of a spool, so that a byte that is torn or flipped is noticed.

A frame is: magic (4 bytes), CRC-32C of all that follows it (4), length of all that follows it (4), the topic's number
(1), the key's length (4), when it was published (8, milliseconds UTC), key, value; integers little-endian.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

MAGIC = b"\xff\xfeFl"
"""No text in UTF-8 has these bytes, so none inside a frame is taken for the beginning of one."""
_HEAD = struct.Struct("<4sII")
_ABOUT = struct.Struct("<BIQ")
_LENGTH = struct.Struct("<I")
_CHECKED = 8
"""Where the part of a frame begins that the checksum covers: its length and what follows."""


class Record(NamedTuple):
    """What is published: keys and values are UTF-8."""

    topic: str
    key: bytes
    value: bytes
    at_ms: int
    """When it was published, in milliseconds UTC."""


class Frame(NamedTuple):
    """A frame that is whole; `start` and `end` are its place among the bytes it was found in."""

    topic: int
    key: bytes
    value: bytes
    at_ms: int
    start: int
    end: int


def frame(topic: int, record: Record) -> bytes:
    """The record as the bytes of a frame."""
    _, key, value, at_ms = record
    about = _ABOUT.pack(topic, len(key), at_ms)
    length = _LENGTH.pack(len(about) + len(key) + len(value))
    checked = b"".join((length, about, key, value))
    return b"".join((MAGIC, _LENGTH.pack(crc32c(checked)), checked))


def frame_at(data: bytes, start: int) -> Frame | None:
    """The frame that begins at `start`; None if there is no whole one with the right checksum."""
    about = start + _HEAD.size
    if len(data) < about + _ABOUT.size:
        return None
    magic, checksum, length = _HEAD.unpack_from(data, start)
    end = about + length
    if magic != MAGIC or end > len(data) or crc32c(memoryview(data)[start + _CHECKED : end]) != checksum:
        return None
    topic, key_bytes, at_ms = _ABOUT.unpack_from(data, about)
    key = about + _ABOUT.size
    return Frame(topic, data[key : key + key_bytes], data[key + key_bytes : end], at_ms, start, end)


def next_frame(data: bytes, start: int) -> Frame | None:
    """The first whole frame that begins at `start` or later."""
    while (start := data.find(MAGIC, start)) >= 0:
        if found := frame_at(data, start):
            return found
        start += 1
    return None


def is_torn(data: bytes, start: int) -> bool:
    """Whether what begins at `start` is a frame whose end is missing (or zeros, as a power cut leaves them)."""
    head = data[start : start + _HEAD.size]
    if len(head) < _HEAD.size:
        return MAGIC.startswith(head[: len(MAGIC)]) or not any(head)
    magic, _, length = _HEAD.unpack(head)
    return (magic == MAGIC and start + len(head) + length > len(data)) or not any(data[start:])
