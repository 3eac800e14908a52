"""Spool segment: one file of a spool, and how far it was read."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fluvial.frames import Record
from fluvial.spool_home import SpoolHome


class Segment:
    """`size` bytes of whole frames in a home; a segment that was displaced is `gone`."""

    def __init__(self, home: SpoolHome, number: int, size: int = 0, read_to: int = 0) -> None:
        self.home = home
        self.number = number
        self.path = home.segment(number)
        self.size = size
        self.read_to = read_to
        self.flight = 0
        """Records read and not settled."""
        self.unread = Counter[str]()
        """Records not yet read, by topic; unknown of what others left."""
        self.gone = False

    @property
    def is_done(self) -> bool:
        return self.read_to >= self.size and not self.flight

    def position(self, earliest: Mapping["Segment", int]) -> int:
        """Offset before which everything is settled; `earliest`: where the first record under way begins."""
        return earliest.get(self, 0 if self.flight else self.read_to)

    def bytes_between(self, start: int, end: int) -> bytes:
        """What the file has there; it may end before. Raises OSError."""
        file = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(file, end - start, start)
        finally:
            os.close(file)


class Spooled(NamedTuple):
    """A record as it was read, and where it stands."""

    record: Record
    segment: Segment
    start: int


def segments_of(home: SpoolHome) -> list[Segment]:
    """The segments that an ended process left, each read as far as it is settled. Raises OSError if one cannot be."""
    settled, offset = home.settled()
    segments = []
    for number, size in home.segments():
        read_to = size if number < settled else min(offset, size) if number == settled else 0
        segments.append(Segment(home, number, size, read_to))
        segments[-1].bytes_between(0, 0)
    return segments


def write(file: int, data: bytes, at: int) -> None:
    """Write all of the data. Raises OSError; some of it may be written then."""
    done = os.pwrite(file, data, at)
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)


def to_disk(path: Path) -> None:
    """Bring what a file or a folder holds to the disk; one that is gone meanwhile needs none. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
