"""Spool home: the folder in which one publisher keeps its spool, its own while the process lives.

NAME/ holds the segments and `settled`, NAME.lock beside it is locked by the process. The system gives a lock up when
its process ends, however it ends: a home that is not locked is left behind, and whoever locks it next sends what it
holds. Names begin with the time, so homes sort by age.
"""

import os
import re
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from crc32c import crc32c

from fluvial.schemas.ids import stable_id

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]

TRIES = 10
NAME_CHARACTERS = 100
LOCK_NAMES = "[0-9]*-[0-9]*.lock"
SEGMENT_NAMES = "[0-9]" * 10 + ".spool"
_SETTLED = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")


class SpoolHome:
    """A folder that this process has locked."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock
        self._noted: tuple[int, int] | None = None

    def segment(self, number: int) -> Path:
        return self.folder / f"{number:010d}.spool"

    def segments(self) -> list[tuple[int, int]]:
        """Number and size of every segment, oldest first; other files are nobody's business. Raises OSError."""
        paths = (path for path in self.folder.glob(SEGMENT_NAMES) if path.is_file())
        return sorted((int(path.stem), path.stat().st_size) for path in paths)

    def settled(self) -> tuple[int, int]:
        """Segment and offset before which everything is settled; (0, 0) if that was never noted."""
        file = self.folder / "settled"
        data = file.read_bytes() if file.exists() else b""
        if len(data) != _SETTLED.size + _CHECKSUM.size or data[_SETTLED.size :] != _checksum(data[: _SETTLED.size]):
            return 0, 0
        segment, offset = _SETTLED.unpack_from(data)
        return segment, offset

    def note_settled(self, segment: int, offset: int) -> None:
        """Note how far everything is settled: whoever takes the home over does not send that again."""
        if self._noted == (segment, offset):
            return
        data = _SETTLED.pack(segment, offset)
        file = os.open(self.folder / "settled", os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.pwrite(file, data + _checksum(data), 0)
        finally:
            os.close(file)
        self._noted = segment, offset

    def remove(self) -> None:
        """Delete the home, which has no segments left, and the folders above it if they are empty.

        Raises OSError if something else is in it; it is unlocked then too.
        """
        try:
            (self.folder / "settled").unlink(missing_ok=True)
            if self.folder.exists():
                self.folder.rmdir()
            self.folder.with_suffix(".lock").unlink(missing_ok=True)
        finally:
            self.leave()
        for folder in (self.folder.parent, self.folder.parent.parent):
            try:
                folder.rmdir()
            except OSError:  # others have something in it
                break

    def leave(self) -> None:
        """Unlock the home with what it holds. In a forked child: forget it; the parent's lock stays."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def destination(root: Path, broker: str, topic_prefix: str) -> Path:
    """The folder under `root` of everything that is meant for these topics of this broker."""
    name = re.sub(r"[/:]", "_", f"{topic_prefix}{broker}")
    if len(name) > NAME_CHARACTERS:
        name = f"{name[:NAME_CHARACTERS]}-{stable_id(name)[:8]}"
    return root / name


def new_home(destination: Path) -> SpoolHome:
    """A home of this process's own in the folder `destination`, which is made. Raises OSError."""
    for _ in range(TRIES):
        destination.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = destination / f"{time.time_ns():020d}-{os.getpid()}"
        try:
            lock = os.open(folder.with_suffix(".lock"), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except (FileNotFoundError, FileExistsError):  # another process has just removed the empty folder
            continue
        try:
            if _locked(lock, wait=True) and os.fstat(lock).st_nlink:
                folder.mkdir(mode=0o700)
                return SpoolHome(folder, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # taken for a home left behind in the moment before it was locked
    raise OSError(f"no folder could be made in {destination}")


def homes_left(destination: Path) -> list[SpoolHome]:
    """The homes in `destination` that processes left when they ended, oldest first, locked for this one.

    Those of other users, and whatever else cannot be opened, are left alone. Raises OSError if nothing can be locked.
    """
    homes = []
    for path in sorted(destination.glob(LOCK_NAMES)):
        try:
            lock = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            is_ours = _locked(lock, wait=False) and os.fstat(lock).st_nlink > 0
        except OSError:
            os.close(lock)
            raise
        if not is_ours:
            os.close(lock)
            continue
        home = SpoolHome(path.with_suffix(""), lock)
        if home.folder.is_dir():
            homes.append(home)
        else:
            with suppress(OSError):  # a file of that name is no home
                home.remove()
    return homes


def _locked(file: int, *, wait: bool) -> bool:
    module: Any = fcntl
    if module is None:
        raise OSError("this system has no locks that end with their process")
    try:
        module.flock(file, module.LOCK_EX | (0 if wait else module.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _checksum(data: bytes) -> bytes:
    return _CHECKSUM.pack(crc32c(data))
