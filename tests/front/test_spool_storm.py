"""A backlog in a storm of acknowledgements, crashes and full disks: nothing is lost, and first times keep the order."""

import errno
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from fluvial import backlog as backlog_module
from fluvial import spool as spool_module
from fluvial.backlog import Backlog
from fluvial.frames import Record
from fluvial.spool import Spool

TOPIC = "tool-calls"


class Storm:
    """One agent after the other over the same folder; each ends by a crash or by being closed."""

    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.disk_is_full = False
        self.accepted = 0
        self.read: dict[int, None] = {}
        self.delivered: set[int] = set()
        self.lives = 0
        self._write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._pwrite)
        monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 3_000)
        monkeypatch.setattr(backlog_module, "BEAT_SECONDS", 0.0)
        monkeypatch.setattr(backlog_module, "ADOPT_SECONDS", 0.0)
        self.begin()

    def _pwrite(self, file: int, data: bytes, at: int) -> int:
        if self.disk_is_full:
            self._write(file, data[: self.random.randrange(len(data))], at)
            raise OSError(errno.ENOSPC, "full")
        return self._write(file, data, at)

    def begin(self) -> None:
        lock = threading.RLock()
        spool = Spool(self.folder / "spool" / "b", [TOPIC], lock, most_bytes=10**8)
        self.backlog = Backlog(lock, spool, count=10**6, size=10**9)
        self.backlog.tend()
        self.lives += 1

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 30)):
            value = b"%d" % self.accepted + b" " * self.random.choice((0, 10, 200))
            if not self.backlog.put(Record(TOPIC, b"run", value, 0)):
                return
            self.accepted += 1

    def take(self) -> None:
        for _, held in self.backlog.take(self.random.randrange(1, 40)):
            self.read.setdefault(int(held.record.value))

    def acknowledge(self) -> None:
        numbers = list(self.backlog.held)
        for number in self.random.sample(numbers, self.random.randrange(len(numbers) + 1)):
            self.delivered.add(int(self.backlog.held[number].record.value))
            self.backlog.settle(number, delivered=True)

    def disk(self) -> None:
        self.disk_is_full = not self.disk_is_full

    def crash(self) -> None:
        in_memory = self.backlog._waiting or any(held.segment is None for held in self.backlog.held.values())
        if not in_memory and self.backlog.spool is not None:
            self.backlog.spool.disown()
            self.begin()

    def close(self) -> None:
        if not self.disk_is_full:
            self.backlog.close(spool_too=True)
            self.begin()

    def everything_is_acknowledged(self) -> None:
        self.disk_is_full = False
        self.backlog.tend()
        while self.backlog.has_work() or self.backlog.held:
            self.take()
            self.acknowledge()
            self.backlog.tend()


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_and_first_times_keep_the_order(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(tmp_path, seed, monkeypatch)
    deeds: list[Any] = [
        storm.publish,
        storm.take,
        storm.acknowledge,
        storm.backlog.tend,
        storm.crash,
        storm.close,
        storm.disk,
    ]
    for _ in range(300):
        deed = storm.random.choices(deeds, (10, 8, 8, 5, 1, 1, 1))[0]
        storm.backlog.tend() if deed is deeds[3] else deed()
    storm.everything_is_acknowledged()
    assert storm.lives > 3
    assert storm.delivered == set(range(storm.accepted))
    assert list(storm.read) == sorted(storm.read)
    account = storm.backlog.account(TOPIC)
    assert (account.pending, account.failed, account.displaced) == (0, 0, 0)
    storm.backlog.close(spool_too=True)
    assert list(tmp_path.iterdir()) == []
