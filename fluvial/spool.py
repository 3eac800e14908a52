"""Spool: what is published, on disk until the broker has acknowledged it.

Records are appended as frames (`fluvial.frames`) to segments of about a MiB in a home of this publisher's own
(`fluvial.spool_home`), and read back from there in order; a segment whose records are all settled is deleted. An append
is in the page cache when it returns: kill -9 of the process cannot take it. What is on disk for good follows `sync`:
"second" (a power cut takes the last second at most), "record" (nothing; each append waits for the disk), "never".
"""

import errno
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from fluvial.frames import Frame, Record, frame, frame_at, is_torn, next_frame
from fluvial.spool_home import SpoolHome, homes_left, new_home
from fluvial.spool_segment import Segment, Spooled, segments_of, to_disk, write

log = logging.getLogger("fluvial.publish")

Full = Literal["keep_oldest", "keep_newest"]
Sync = Literal["second", "record", "never"]

SEGMENT_BYTES = 1_048_576
SEGMENTS_AT_LEAST = 16
"""A small spool has smaller segments: "keep_newest" gives up a whole one at a time."""
UNREADABLE = (errno.ENOENT, errno.EIO)
"""A file that was deleted, or that the disk has lost: no other try will read it."""


class Spool:
    """The homes of one publisher in the folder `destination`: its own, and those of ended processes that it adopted.

    At most `most_bytes` are on disk, adopted ones included. `append`, `settle`, `has_unread`, `mark` and `passed` are
    for any thread that holds `lock`; the rest is for the one that delivers. Nothing is opened before its use.
    """

    def __init__(
        self,
        destination: Path,
        topics: Sequence[str],
        lock: threading.RLock,
        *,
        most_bytes: int,
        full: Full = "keep_oldest",
        sync: Sync = "second",
    ) -> None:
        self.destination = destination
        self.adopted, self.displaced, self.lost = Counter[str](), Counter[str](), Counter[str]()
        """By topic: records of ended processes read; given up for newer ones; not found again among damaged bytes."""
        self.overfull = False
        """Whether something found no room, or only by giving up something older; `Backlog` resets it."""
        self.damaged = self.torn = 0
        """Places that could not be read; appends that a crash had cut."""
        self._topics = list(topics)
        self._lock = lock
        self._most_bytes = most_bytes
        self._segment_bytes = min(SEGMENT_BYTES, most_bytes // SEGMENTS_AT_LEAST)
        self.full = full
        self._sync = sync
        self._bytes = 0
        self._queue = deque[Segment]()
        self._home: SpoolHome | None = None
        self._adopted: list[SpoolHome] = []
        self._left_alone = set[Path]()
        self._writing: Segment | None = None
        self._file = -1
        self._last_number = 0
        self._unsynced = set[Segment]()
        self._loaded: tuple[Segment | None, int, int, bytes] = None, 0, 0, b""

    def append(self, record: Record) -> bool:
        """Put a record at the end; False if the spool is full. Raises OSError if the disk does not take it."""
        data = frame(self._topics.index(record.topic), record)
        while self._bytes + len(data) > self._most_bytes:
            self.overfull = True
            if self.full == "keep_oldest" or len(data) > self._most_bytes:
                return False
            self._displace()
        segment = self._writing
        if segment is None or segment.size >= self._segment_bytes:
            segment = self._roll()
        try:
            write(self._file, data, segment.size)
            if self._sync == "record":
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, segment.size)
            raise
        segment.size += len(data)
        segment.unread[record.topic] += 1
        self._bytes += len(data)
        self._unsynced.add(segment)
        return True

    def adopt(self) -> int:
        """Put the homes that ended processes left before everything else; gives the number of those with segments.

        A home that cannot be read is left alone until the next look. Raises OSError.
        """
        homes, segments, count = list[SpoolHome](), list[Segment](), 0
        for home in homes_left(self.destination):
            try:
                found = segments_of(home)
            except (OSError, ValueError) as error:
                home.leave()
                self._leave_alone(home, error)
                continue
            homes.append(home)
            segments += found
            count += bool(found)
        with self._lock:
            self._adopted += homes
            self._queue.extendleft(reversed(segments))
            self._bytes += sum(segment.size for segment in segments)
        return count

    def has_unread(self) -> bool:
        return any(segment.read_to < segment.size for segment in self._queue)

    def read(self, most: int, take: Callable[[Sequence[Spooled]], None]) -> None:
        """Give the next records, at most so many, to `take`, which runs under the lock."""
        with self._lock:
            segment = next((segment for segment in self._queue if segment.read_to < segment.size), None)
            if segment is None:
                return
            at, end, is_last = segment.read_to, segment.size, self._is_last(segment)
        try:
            base, end, data = self._load(segment, at, end)
        except OSError as error:
            if segment.gone:  # displaced in this moment
                return
            if error.errno not in UNREADABLE:
                raise
            base, data = at, b""
        frames, damaged, torn = list[Frame](), 0, 0
        while at < end and len(frames) < most:
            found = frame_at(data, at - base)
            if found is None:
                found = next_frame(data, at - base)
                is_tail = found is None and is_last and is_torn(data, at - base)
                torn, damaged = torn + is_tail, damaged + (not is_tail)
            elif found.topic >= len(self._topics):
                damaged += 1
            at = end if found is None else base + found.end
            if found is not None and found.topic < len(self._topics):
                frames.append(found)
        with self._lock:
            if not segment.gone:
                take(self._taken(segment, frames, base, at))
                self.damaged += damaged
                self.torn += torn
        if damaged:
            log.warning("The spool %s is damaged: %d places were skipped and counted.", segment.path, damaged)

    def settle(self, segment: Segment) -> None:
        """One record of the segment needs no disk any more."""
        segment.flight -= 1

    def sweep(self) -> None:
        """Delete what is settled. Raises OSError."""
        with self._lock:
            done = []
            while self._queue and self._queue[0] is not self._writing and self._queue[0].is_done:
                done.append(self._queue.popleft())
                self._bytes -= done[-1].size
                self._unsynced.discard(done[-1])
            ended = [home for home in self._adopted if all(segment.home is not home for segment in self._queue)]
            self._adopted = [home for home in self._adopted if home not in ended]
        for segment in done:
            segment.path.unlink(missing_ok=True)
        for home in ended:
            self._remove(home)

    def save(self, earliest: Mapping[Segment, int]) -> None:
        """Note how far everything is settled and bring what is not to the disk, as `sync` says. Raises OSError."""
        with self._lock:
            firsts = {segment.home: segment for segment in reversed(self._queue)}
            notes = [(home, first.number, first.position(earliest)) for home, first in firsts.items()]
            unsynced = [segment for segment in self._unsynced if segment.position(earliest) < segment.size]
            self._unsynced.clear()
        try:
            for home, number, position in notes:
                home.note_settled(number, position)
            if unsynced and self._sync == "second":
                for path in (*(segment.path for segment in unsynced), unsynced[0].home.folder):
                    to_disk(path)
        except OSError:
            with self._lock:
                self._unsynced.update(segment for segment in unsynced if not segment.gone)
            raise

    def mark(self) -> tuple[Segment | None, int]:
        """The end of what was appended so far."""
        return (self._queue[-1], self._queue[-1].size) if self._queue else (None, 0)

    def passed(self, mark: tuple[Segment | None, int], earliest: Mapping[Segment, int]) -> bool:
        """Whether everything before a mark is settled."""
        last, end = mark
        if any(segment.gone for segment in earliest):
            return False
        if last not in self._queue:
            return True
        for segment in self._queue:
            if segment.position(earliest) < (end if segment is last else segment.size):
                return False
            if segment is last:
                break
        return True

    def close(self, earliest: Mapping[Segment, int]) -> None:
        """Leave what is not settled to the next publisher; nothing stays on disk of what is. Raises OSError."""
        with self._lock:
            self._close_file()
        self.sweep()
        self.save(earliest)
        for home in self._homes():
            if any(segment.home is home for segment in self._queue):
                home.leave()
            else:
                self._remove(home)

    def disown(self) -> None:
        """In a forked child: the files and the locks are the parent's."""
        if self._file >= 0:
            os.close(self._file)
        for home in self._homes():
            home.leave()

    def _homes(self) -> list[SpoolHome]:
        return [*self._adopted, *([self._home] if self._home else [])]

    def _remove(self, home: SpoolHome) -> None:
        try:
            home.remove()
        except OSError as error:
            self._leave_alone(home, error)

    def _leave_alone(self, home: SpoolHome, error: Exception) -> None:
        if home.folder not in self._left_alone:
            log.warning("%s is left alone (%s): look what is in it, or delete it (said once).", home.folder, error)
        self._left_alone.add(home.folder)

    def _roll(self) -> Segment:
        """A new segment to write to."""
        if self._home is None:
            self._home = new_home(self.destination)
        segment = Segment(self._home, self._last_number + 1)
        file = os.open(segment.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        self._close_file()
        self._file, self._writing, self._last_number = file, segment, segment.number
        self._queue.append(segment)
        if self._sync == "record":
            to_disk(self._home.folder)
        return segment

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._writing = -1, None

    def _displace(self) -> None:
        """Give the oldest segment up. What was read of it is in memory and still goes out."""
        segment = self._queue.popleft()
        if segment is self._writing:
            self._close_file()
        if segment.home is not self._home:
            segment.unread = self._count(segment)
            self.adopted += segment.unread
        self.displaced += segment.unread
        segment.gone = True
        self._bytes -= segment.size
        self._unsynced.discard(segment)
        segment.path.unlink(missing_ok=True)

    def _count(self, segment: Segment) -> Counter[str]:
        """The records of a segment that were not read, by topic."""
        count, at = Counter[str](), 0
        try:
            data = segment.bytes_between(segment.read_to, segment.size)
        except OSError as error:
            log.warning("The spool %s could not be read: %s. What it held is lost.", segment.path, error)
            self.damaged += 1
            return count
        while found := next_frame(data, at):
            if found.topic < len(self._topics):
                count[self._topics[found.topic]] += 1
            at = found.end
        return count

    def _load(self, segment: Segment, start: int, end: int) -> tuple[int, int, bytes]:
        """The part at hand that has `start`, read up to `end` if none is: first and last offset, and what is left."""
        loaded, first, last, data = self._loaded
        if loaded is not segment or not first <= start < last:
            first, last, data = start, end, segment.bytes_between(start, end)
            self._loaded = segment, first, last, data
        return first, last, data

    def _taken(self, segment: Segment, frames: Sequence[Frame], base: int, read_to: int) -> list[Spooled]:
        """Account for frames that were read; what is not found in a segment of our own is lost."""
        items = [
            Spooled(Record(self._topics[found.topic], found.key, found.value, found.at_ms), segment, base + found.start)
            for found in frames
        ]
        segment.read_to = read_to
        segment.flight += len(items)
        read = Counter(item.record.topic for item in items)
        if segment.home is not self._home:
            self.adopted += read
            return items
        segment.unread -= read
        if read_to == segment.size:
            self.lost += segment.unread
            segment.unread.clear()
        return items

    def _is_last(self, segment: Segment) -> bool:
        """Whether the segment is the one that an ended process wrote to last."""
        later = (other for other in self._queue if other.home is segment.home and other.number > segment.number)
        return segment.home is not self._home and next(later, None) is None
