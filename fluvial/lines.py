"""Lines: the lines of a JSONL file, plain or gzip, or of stdin, with their numbers."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

LINE_BYTES = 16 * 1_048_576
"""What is kept of a line; no record is longer."""
BLOCK_BYTES = 1_048_576
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    number: int
    data: bytes
    """Without the line's end; at most LINE_BYTES."""
    whole: bool


class Damaged(ValueError):
    """The file cannot be read further; the message says after which line. All lines before it were given."""


class LineFile:
    """One file, or stdin under the name `-`. `position` of `size` bytes are read (0 of 0 for a stream)."""

    def __init__(self, name: str) -> None:
        """Opens it. Raises OSError."""
        self.name = "stdin" if name == "-" else Path(name).name
        stream = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 - close() closes it
        self._stream = cast(io.BufferedReader, stream)
        self.size = 0 if name == "-" else Path(name).stat().st_size

    @property
    def position(self) -> int:
        return self._stream.tell() if self.size else 0

    def close(self) -> None:
        if self._stream is not sys.stdin.buffer:
            self._stream.close()

    def __iter__(self) -> Iterator[Line]:
        """The lines that hold more than white space, counted from 1 with all. Raises Damaged, OSError."""
        packed = self._stream.peek(2)[:2] == _GZIP
        source = io.BufferedReader(_Unpacked(self._stream), BLOCK_BYTES) if packed else self._stream
        number = 0
        try:
            while data := source.readline(LINE_BYTES):
                number += 1
                whole = _skip_rest(source, data)
                data = data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
                if data.strip():
                    yield Line(number, data.rstrip(b"\r\n"), whole)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Damaged(f"{self.name} is damaged after line {number:,}: {_lower(str(error))}.") from error


class _Unpacked(io.RawIOBase):
    """Gzip as raw reads of what one step gives: a larger read would lose what stands before the damage."""

    def __init__(self, packed: io.BufferedReader) -> None:
        self._file = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _skip_rest(source: Any, data: bytes) -> bool:
    """True if `data` is a whole line; else read on to its end."""
    if data.endswith(b"\n") or len(data) < LINE_BYTES:
        return True
    while (more := source.readline(LINE_BYTES)) and not more.endswith(b"\n"):
        pass
    return False


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
