"""What a publisher does with its spool while no broker answers."""

import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fluvial import Publisher, ToolCall
from fluvial.frames import Record
from fluvial.schemas.codec import decode
from fluvial.spool import Spool
from fluvial.spool_home import SpoolHome, destination, homes_left
from fluvial.spool_segment import Spooled

NOBODY = "127.0.0.1:1"
TOPICS = ("tool-calls", "dead-letters")


@pytest.fixture(autouse=True)
def own_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUVIAL_DATA", str(tmp_path / "data"))


def call(seq: int, run: str = "r", **fields: Any) -> ToolCall:
    return ToolCall(source="s", run_id=run, tool="t", seq=seq, **fields)


def left_in(folder: Path) -> list[Record]:
    """What ended publishers have left in a spool's folder, in the order in which it will be sent."""
    spool = Spool(destination(folder, NOBODY, ""), TOPICS, threading.RLock(), most_bytes=10**9)
    spool.adopt()
    items: list[Spooled] = []
    while spool.has_unread():
        spool.read(1_000, items.extend)
    spool.disown()
    return [item.record for item in items]


def numbers_in(folder: Path) -> list[int | None]:
    return [decode(record.value, ToolCall).seq for record in left_in(folder)]


def test_what_no_broker_takes_is_in_the_spool_when_the_publisher_is_closed_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(NOBODY, spool=tmp_path / "spool")
    for seq in range(50):
        assert publisher.publish(call(seq))
    assert publisher.counts().pending == 50
    assert not publisher.close(timeout=0.1)
    counts = publisher.counts()
    assert (counts.accepted, counts.pending, counts.failed, counts.unspooled) == (50, 50, 0, 0)
    assert f"50 records wait in {tmp_path / 'spool'}" in caplog.text
    assert numbers_in(tmp_path / "spool") == list(range(50))


def test_the_settings_say_where_the_spool_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(NOBODY)
    publisher.publish(call(1))
    publisher.close(timeout=0)
    assert numbers_in(tmp_path / "data" / "spool") == [1]
    monkeypatch.setenv("FLUVIAL_SPOOL", str(tmp_path / "elsewhere"))
    publisher = Publisher(NOBODY)
    publisher.publish(call(2))
    publisher.close(timeout=0)
    assert numbers_in(tmp_path / "elsewhere") == [2]
    monkeypatch.setenv("FLUVIAL_SPOOL_BYTES", "0")
    publisher = Publisher(NOBODY)
    publisher.publish(call(3))
    publisher.close(timeout=0)
    assert numbers_in(tmp_path / "elsewhere") == [2]
    assert publisher.counts().failed == 1


def test_nothing_is_made_before_the_first_call(tmp_path: Path) -> None:
    Publisher(NOBODY, spool=tmp_path / "spool").close()
    assert not (tmp_path / "spool").exists()


def test_a_call_is_in_the_spool_when_publish_returns_whenever_the_agent_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys
from fluvial import Publisher, ToolCall
publisher = Publisher({NOBODY!r}, spool={str(tmp_path / "spool")!r})
seq = 0
while True:
    publisher.publish(ToolCall(source="s", run_id="r", tool="t", seq=seq))
    sys.stdout.write(f"{{seq}}\\n")
    sys.stdout.flush()
    seq += 1
"""
    for kill_after in (1, 77, 1_500):
        agent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert agent.stdout is not None
        for _ in range(kill_after):
            agent.stdout.readline()
        agent.kill()
        said = kill_after + len(agent.communicate()[0].splitlines())
        kept = numbers_in(tmp_path / "spool")
        assert kept == list(range(len(kept)))
        assert len(kept) in (said, said + 1)  # the last may have been taken and not yet said
        for home in homes_left(destination(tmp_path / "spool", NOBODY, "")):
            for number, _ in home.segments():
                home.segment(number).unlink()
            home.remove()


def test_no_secret_is_in_the_bytes_of_a_spool(tmp_path: Path) -> None:
    key, password = "0x" + "ab" * 32, "correct-horse-battery"
    publisher = Publisher(NOBODY, spool=tmp_path / "spool")
    publisher.publish(call(0, args={"private_key": key}, result={"url": f"https://me:{password}@example.org/x"}))
    wrong: Any = f"private_key={key}"
    publisher.publish(call(1, status=wrong, args={"password": password}))
    publisher.close(timeout=0)
    files = [path for path in (tmp_path / "spool").rglob("*") if path.is_file()]
    data = b"".join(path.read_bytes() for path in files)
    assert b'"seq":0' in data
    assert b"Invalid enum value" in data
    assert key[2:].encode() not in data
    assert password.encode() not in data


def test_threads_share_a_spool_and_each_keeps_its_order(tmp_path: Path) -> None:
    publisher = Publisher(NOBODY, spool=tmp_path / "spool")

    def work(number: int) -> None:
        for seq in range(300):
            publisher.publish(call(seq, f"run-{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    publisher.close(timeout=0)
    runs = defaultdict(list)
    for record in left_in(tmp_path / "spool"):
        runs[record.key].append(decode(record.value, ToolCall).seq)
    assert runs == {f"s|run-{number}".encode(): list(range(300)) for number in range(6)}


def test_two_publishers_of_a_process_have_a_spool_each(tmp_path: Path) -> None:
    first, second = (Publisher(NOBODY, spool=tmp_path / "spool") for _ in range(2))
    first.publish(call(1))
    second.publish(call(2))
    assert len(list((tmp_path / "spool").rglob("*.lock"))) == 2
    first.close(timeout=0)
    second.close(timeout=0)
    assert numbers_in(tmp_path / "spool") == [1, 2]


def test_a_forked_child_has_a_spool_of_its_own_and_its_death_leaves_the_parents_alone(tmp_path: Path) -> None:
    code = f"""
import os
from fluvial import Publisher, ToolCall
publisher = Publisher({NOBODY!r}, spool={str(tmp_path / "spool")!r}, close_timeout=0)
publisher.publish(ToolCall(source="s", run_id="r", tool="t", seq=1))
child = os.fork()
if child == 0:
    publisher.publish(ToolCall(source="s", run_id="r", tool="t", seq=2))
    os._exit(0)
os.waitpid(child, 0)
publisher.publish(ToolCall(source="s", run_id="r", tool="t", seq=3))
os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60, check=True, stderr=subprocess.DEVNULL)
    assert len(list((tmp_path / "spool").rglob("*.lock"))) == 2
    assert numbers_in(tmp_path / "spool") == [1, 3, 2]


@pytest.mark.parametrize(("full", "kept_seq"), [("keep_oldest", 0), ("keep_newest", 399)])
def test_a_full_spool_keeps_what_the_setting_says_counts_the_rest_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full: Any, kept_seq: int
) -> None:
    caplog.set_level(logging.WARNING, "fluvial.publish")
    publisher = Publisher(NOBODY, spool=tmp_path / "spool", spool_bytes=20_000, spool_full=full)
    for seq in range(400):
        publisher.publish(call(seq))
    time.sleep(2.2)  # what befalls a spool is said once a second
    publisher.publish(call(400))
    publisher.close(timeout=0)
    counts = publisher.counts()
    kept = numbers_in(tmp_path / "spool")
    assert kept_seq in kept
    assert len(kept) == counts.pending
    assert counts.accepted == counts.displaced + counts.pending
    assert counts.dropped == (401 - len(kept) if full == "keep_oldest" else 0)
    assert counts.displaced == (401 - len(kept) if full == "keep_newest" else 0)
    assert sum("is full" in record.getMessage() for record in caplog.records) == 1


def test_a_program_that_would_rather_be_slow_waits_for_room_in_the_spool(tmp_path: Path) -> None:
    publisher = Publisher(NOBODY, spool=tmp_path / "spool", spool_bytes=1_000)
    while publisher.publish(call(1)):
        pass
    begun = time.monotonic()
    assert publisher.publish(call(2), wait=0.3) is None
    assert time.monotonic() - begun >= 0.3
    publisher.close(timeout=0)


def test_a_folder_that_cannot_be_used_leaves_calls_in_memory_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spool").touch()
    publisher = Publisher(NOBODY, spool=tmp_path / "spool", buffer_calls=30)
    taken = [seq for seq in range(50) if publisher.publish(call(seq))]
    time.sleep(2.2)
    publisher.close(timeout=0)
    counts = publisher.counts()
    assert taken == list(range(30))
    assert (counts.accepted, counts.dropped, counts.unspooled, counts.failed) == (30, 20, 30, 30)
    assert sum("cannot be written" in record.getMessage() for record in caplog.records) == 1


def test_no_trouble_with_what_ended_agents_left_ends_the_thread_that_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(home: SpoolHome) -> list[tuple[int, int]]:
        raise ValueError(f"{home.folder.name} is no home")

    left = Publisher(NOBODY, spool=tmp_path / "spool")
    left.publish(call(1))
    left.close(timeout=0)
    publisher = Publisher(NOBODY, spool=tmp_path / "spool")
    with monkeypatch.context() as patch:
        patch.setattr(SpoolHome, "segments", broken)
        publisher.publish(call(2))
        deadline = time.monotonic() + 5
        while "is left alone" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
        thread = publisher._delivery._thread
        assert thread is not None
        assert thread.is_alive()
        publisher.close(timeout=0)
    assert caplog.text.count("is left alone") == 1
    assert numbers_in(tmp_path / "spool") == [1, 2]


def test_a_full_disk_never_raises_into_the_agent_and_memory_takes_over_until_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, full = os.pwrite, False

    def pwrite(file: int, data: bytes, at: int) -> int:
        if full:
            write(file, data[: len(data) // 2], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    publisher = Publisher(NOBODY, spool=tmp_path / "spool")
    for seq in range(300):
        full = 100 <= seq < 200
        assert publisher.publish(call(seq))
    assert publisher.counts().unspooled >= 100
    deadline = time.monotonic() + 5
    while publisher._delivery.backlog._waiting and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not publisher._delivery.backlog._waiting, "memory is brought back to the spool"
    publisher.close(timeout=0)
    assert numbers_in(tmp_path / "spool") == list(range(300))
    assert sum("No space left on device" in record.getMessage() for record in caplog.records) <= 1


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    code = f"""
import resource
from fluvial import Publisher, ToolCall
publisher = Publisher({NOBODY!r}, spool={str(tmp_path / "spool")!r}, close_timeout=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_001, 10_001))
for seq in range(300):
    assert publisher.publish(ToolCall(source="s", run_id="r", tool="t", seq=seq))
counts = publisher.counts()
assert counts.accepted == 300 and counts.unspooled > 100, counts
resource.setrlimit(resource.RLIMIT_FSIZE, (10_001, 10_001))
publisher.close()
assert publisher.counts().pending > 50, publisher.counts()
print(publisher.counts().pending)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    kept = numbers_in(tmp_path / "spool")
    assert kept == list(range(int(ended.stdout)))
    assert "cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
