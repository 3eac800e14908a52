"""The spool: what is appended comes back in order, once, whatever happened to the process and to the bytes."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from fluvial.frames import MAGIC, Record, frame, frame_at, next_frame
from fluvial.spool import Spool
from fluvial.spool_home import destination, homes_left, new_home
from fluvial.spool_segment import Segment, Spooled

TOPICS = ("tool-calls", "dead-letters")


def record(number: int, size: int = 0) -> Record:
    return Record(TOPICS[0], b"s|r", f"value {number} ".encode() + b"x" * size, 1_700_000_000_000 + number)


def opened(folder: Path, most_bytes: int = 1_000_000, **options: object) -> Spool:
    return Spool(folder / "spool" / "here", TOPICS, threading.RLock(), most_bytes=most_bytes, **options)  # type: ignore[arg-type]


def filled(folder: Path, records: Iterable[Record], most_bytes: int = 1_000_000) -> list[Path]:
    """The segments of a spool that its process has left full."""
    spool = opened(folder, most_bytes)
    for item in records:
        assert spool.append(item)
    spool.close({})
    return sorted(folder.glob("**/*.spool"))


def everything(spool: Spool) -> list[Spooled]:
    items: list[Spooled] = []
    while spool.has_unread():
        spool.read(7, items.extend)
    return items


def left_in(folder: Path) -> list[Record]:
    """What the next publisher reads."""
    spool = opened(folder)
    spool.adopt()
    return [item.record for item in everything(spool)]


def settle(spool: Spool, items: Iterable[Spooled]) -> None:
    for item in items:
        spool.settle(item.segment)


# The bytes


def test_a_frame_gives_back_its_record() -> None:
    data = frame(1, record(5))
    found = frame_at(data, 0)
    assert found == (1, b"s|r", record(5).value, record(5).at_ms, 0, len(data))


def test_the_next_frame_is_found_behind_any_bytes() -> None:
    junk = b"junk" + MAGIC + b"\0" * 30 + MAGIC[:3]
    found = next_frame(junk + frame(0, record(1)), 0)
    assert found is not None
    assert (found.start, found.value) == (len(junk), record(1).value)
    assert next_frame(junk, 0) is None


def test_a_tail_torn_at_any_byte_is_cut_and_counted_and_what_stood_before_is_read(tmp_path: Path) -> None:
    size = len(frame(0, record(2)))
    for kept in range(1, size):
        folder = tmp_path / str(kept)
        (path,) = filled(folder, map(record, range(3)))
        os.truncate(path, path.stat().st_size - size + kept)
        spool = opened(folder)
        spool.adopt()
        items = everything(spool)
        assert [item.record for item in items] == [record(0), record(1)]
        assert (spool.torn, spool.damaged) == (1, 0)
        settle(spool, items)
        spool.close({})
        assert list(folder.iterdir()) == []


def test_zeros_that_a_power_cut_left_are_a_torn_tail(tmp_path: Path) -> None:
    (path,) = filled(tmp_path, map(record, range(2)))
    os.truncate(path, path.stat().st_size + 5_000)
    spool = opened(tmp_path)
    spool.adopt()
    assert [item.record for item in everything(spool)] == [record(0), record(1)]
    assert (spool.torn, spool.damaged) == (1, 0)


def test_no_flipped_bit_is_ever_sent_and_the_records_around_it_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = filled(tmp_path, map(record, range(3)))
    whole = path.read_bytes()
    length = len(frame(0, record(1)))
    for place in range(length, 2 * length):
        for bit in range(8):
            wrong = bytearray(whole)
            wrong[place] ^= 1 << bit
            path.write_bytes(wrong)
            spool = opened(tmp_path)
            spool.adopt()
            assert [item.record for item in everything(spool)] == [record(0), record(2)]
            assert (spool.damaged, spool.torn) == (1, 0)
            spool.disown()
    assert "is damaged: 1 places were skipped" in caplog.text


def test_a_lost_segment_in_the_middle_is_damage_and_the_next_ones_are_read(tmp_path: Path) -> None:
    paths = filled(tmp_path, map(record, range(40)), most_bytes=10_000)
    assert len(paths) == 3
    inside = {number for number in range(40) if record(number).value in paths[1].read_bytes()}
    os.truncate(paths[1], 10)
    assert left_in(tmp_path) == [record(number) for number in range(40) if number not in inside]


def test_bytes_that_rot_under_a_running_publisher_are_lost_and_counted(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(3):
        spool.append(record(number))
    (path,) = tmp_path.glob("**/*.spool")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert [item.record for item in everything(spool)] == [record(0), record(2)]
    assert (spool.damaged, spool.lost) == (1, {TOPICS[0]: 1})


def test_segments_that_somebody_deletes_are_lost_and_counted(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(3):
        spool.append(record(number))
    next(tmp_path.glob("**/*.spool")).unlink()
    assert everything(spool) == []
    assert (spool.damaged, spool.lost) == (1, {TOPICS[0]: 3})


# The queue


def test_records_come_back_in_order_and_nothing_stays_on_disk_when_they_are_settled(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=20_000)
    for number in range(200):
        assert spool.append(record(number))
    assert len(list(tmp_path.glob("**/*.spool"))) == 6
    items = everything(spool)
    assert [item.record for item in items] == [record(number) for number in range(200)]
    settle(spool, items[:-1])
    spool.sweep()
    assert len(list(tmp_path.glob("**/*.spool"))) == 1
    settle(spool, items[-1:])
    spool.close({})
    assert list(tmp_path.iterdir()) == []


def test_reading_follows_writing(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=4_000)
    read = []
    for number in range(500):
        assert spool.append(record(number))
        if number % 3 == 0:
            items = everything(spool)
            settle(spool, items)
            spool.sweep()
            read += [item.record for item in items]
    read += [item.record for item in everything(spool)]
    assert read == [record(number) for number in range(500)]


def test_what_is_written_while_a_part_is_read_is_read_next(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    items: list[Spooled] = []
    for number in range(0, 100, 10):
        for more in range(10):
            spool.append(record(number + more))
        spool.read(7, items.extend)
    items += everything(spool)
    assert [item.record for item in items] == [record(number) for number in range(100)]
    assert (spool.damaged, spool.lost) == (0, {})


def test_what_is_settled_is_not_read_again_by_the_next_publisher(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(10):
        spool.append(record(number))
    items: list[Spooled] = []
    spool.read(6, items.extend)
    settle(spool, [*items[:2], items[3]])  # acknowledged out of order: 2 is still under way
    spool.save({items[2].segment: items[2].start})
    spool.disown()  # the process died
    assert left_in(tmp_path) == [record(number) for number in range(2, 10)]


def test_a_note_of_what_is_settled_that_is_broken_sends_everything_again(tmp_path: Path) -> None:
    filled(tmp_path, map(record, range(3)))
    (note,) = tmp_path.glob("**/settled")
    note.write_bytes(note.read_bytes()[:-1])
    assert len(left_in(tmp_path)) == 3


@pytest.mark.parametrize(
    ("sync", "while_appending", "each_second"), [("second", 0, 2), ("record", 4, 0), ("never", 0, 0)]
)
def test_what_is_not_settled_is_brought_to_the_disk_as_often_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str, while_appending: int, each_second: int
) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)
    spool = opened(tmp_path, sync=sync)
    for number in range(3):
        spool.append(record(number))
    assert len(synced) == while_appending  # three records, and the folder of a new file
    spool.save({})
    assert len(synced) == while_appending + each_second  # the file and its folder
    spool.save({})
    assert len(synced) == while_appending + each_second
    settle(spool, everything(spool))
    spool.append(record(3))
    settle(spool, everything(spool))
    spool.save({})
    assert len(synced) == while_appending + each_second + (sync == "record"), "nothing is left that the disk must hold"


def test_a_full_spool_keeps_the_oldest(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=10_000)
    taken = [number for number in range(300) if spool.append(record(number))]
    assert 250 < len(taken) < 300
    assert taken == list(range(len(taken)))
    assert [item.record for item in everything(spool)] == [record(number) for number in taken]
    assert spool.overfull


def test_a_full_spool_keeps_the_newest_and_counts_what_it_gave_up(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=10_000, full="keep_newest")
    for number in range(300):
        assert spool.append(record(number))
    assert sum(path.stat().st_size for path in tmp_path.glob("**/*.spool")) <= 10_000
    kept = [item.record for item in everything(spool)]
    assert kept == [record(number) for number in range(300 - len(kept), 300)]
    assert spool.displaced == {TOPICS[0]: 300 - len(kept)}
    assert len(kept) > 100


def test_records_under_way_are_not_counted_as_given_up(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=10_000, full="keep_newest")
    for number in range(100):
        spool.append(record(number))
    items: list[Spooled] = []
    spool.read(5, items.extend)
    for number in range(100, 400):
        spool.append(record(number))
    assert items[0].segment.gone
    rest = everything(spool)
    assert len(items) + len(rest) + spool.displaced[TOPICS[0]] == 400


def test_what_others_left_counts_against_the_room_and_is_given_up_first(tmp_path: Path) -> None:
    filled(tmp_path, map(record, range(100)), most_bytes=10_000)
    spool = opened(tmp_path, most_bytes=10_000, full="keep_newest")
    spool.adopt()
    for number in range(100, 250):
        spool.append(record(number))
    kept = [item.record for item in everything(spool)]
    assert kept == [record(number) for number in range(250 - len(kept), 250)]
    assert spool.displaced[TOPICS[0]] == 250 - len(kept)
    assert spool.adopted[TOPICS[0]] == 100


def test_a_record_larger_than_the_spool_is_not_taken(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=10_000, full="keep_newest")
    assert spool.append(record(1))
    assert not spool.append(record(2, size=10_000))
    assert [item.record for item in everything(spool)] == [record(1)]


def test_a_mark_is_passed_when_all_before_it_is_settled(tmp_path: Path) -> None:
    spool = opened(tmp_path, most_bytes=4_000)
    for number in range(20):
        spool.append(record(number))
    mark = spool.mark()
    for number in range(20, 30):
        spool.append(record(number))
    items = everything(spool)
    for done in range(30):
        earliest: dict[Segment, int] = {}
        for item in reversed(items[done:]):
            earliest[item.segment] = item.start
        assert spool.passed(mark, earliest) == (done >= 20)
        settle(spool, items[done : done + 1])


# Homes


def test_spools_of_ended_processes_are_sent_first_and_in_their_order(tmp_path: Path) -> None:
    filled(tmp_path, map(record, range(5)))
    filled(tmp_path, map(record, range(5, 9)))
    spool = opened(tmp_path)
    spool.append(record(9))
    assert spool.adopt() == 2
    items = everything(spool)
    assert [item.record for item in items] == [record(number) for number in range(10)]
    assert spool.adopted == {TOPICS[0]: 9}
    settle(spool, items)
    spool.close({})
    assert list(tmp_path.iterdir()) == []


def test_the_spool_of_a_living_publisher_is_nobody_elses(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.append(record(1))
    second.append(record(2))
    assert (first.adopt(), second.adopt()) == (0, 0)
    first.close({})
    assert second.adopt() == 1
    assert [item.record for item in everything(second)] == [record(1), record(2)]


def test_what_stays_is_the_next_ones_again(tmp_path: Path) -> None:
    filled(tmp_path, map(record, range(5)))
    second = opened(tmp_path)
    second.adopt()
    items: list[Spooled] = []
    second.read(3, items.extend)
    settle(second, items)
    second.close({})
    assert left_in(tmp_path) == [record(3), record(4)]


def test_a_lock_without_a_folder_and_an_empty_folder_are_swept(tmp_path: Path) -> None:
    new_home(tmp_path / "spool" / "here").leave()
    (tmp_path / "spool" / "here" / "00000000000000000001-7.lock").touch()
    (home,) = homes_left(tmp_path / "spool" / "here")
    home.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_else_put_beside_segments_is_neither_sent_nor_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (segment,) = filled(tmp_path, [record(1)])
    home = segment.parent
    strangers = [home / name for name in ("notes.spool", "7.spool", "²².spool", f"{'9' * 30}.spool")]
    strangers.append(home.parent / "poetry.lock")
    for path in strangers:
        path.write_text("mine")
    (home / "0000000009.spool").mkdir()
    (home.parent / "1-1.lock").mkdir()
    (home.parent / "2-2.lock").touch()
    (home.parent / "2-2").touch()
    spool = opened(tmp_path)
    assert spool.adopt() == 1
    items = everything(spool)
    assert [item.record for item in items] == [record(1)]
    settle(spool, items)
    for _ in range(2):
        spool.sweep()
        spool.save({})
        assert spool.adopt() == 0
    spool.close({})
    assert [path.read_text() for path in strangers] == ["mine"] * 5
    assert not segment.exists()
    assert caplog.text.count("is left alone") == 1
    assert (spool.damaged, spool.torn) == (0, 0)


def test_a_home_that_cannot_be_read_is_left_alone_and_the_others_are_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (first,) = filled(tmp_path, [record(1)])
    filled(tmp_path, [record(2)])
    (first.parent / "settled").unlink()
    (first.parent / "settled").mkdir()
    spool = opened(tmp_path)
    assert (spool.adopt(), spool.adopt()) == (1, 0)
    assert [item.record for item in everything(spool)] == [record(2)]
    assert caplog.text.count(f"{first.parent} is left alone") == 1
    (first.parent / "settled").rmdir()
    assert spool.adopt() == 1
    assert [item.record for item in everything(spool)] == [record(1)]


def test_only_this_user_can_read_a_spool(tmp_path: Path) -> None:
    (path,) = filled(tmp_path, [record(1)])
    modes = {part.stat().st_mode & 0o077 for part in (path, path.parent, path.parent.parent)}
    assert modes == {0}


def test_every_broker_and_prefix_has_a_folder_of_its_own() -> None:
    root = Path("/spool")
    assert destination(root, "127.0.0.1:9092", "") == root / "127.0.0.1_9092"
    assert destination(root, "a:1", "x-") != destination(root, "a:1", "")
    long = ",".join(f"kafka-{number}.example:9092" for number in range(40))
    assert destination(root, long, "") != destination(root, long + ",z:1", "")
    assert len(destination(root, long, "").name) < 150


def test_a_spool_in_a_place_that_cannot_be_written_raises(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    with pytest.raises(OSError, match="spool"):
        opened(tmp_path).append(record(1))
