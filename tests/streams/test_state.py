"""A table remembers exactly what changed."""

from msgspec import Struct

from fluvial.schemas.codec import encode
from fluvial.streams.state import State


class Sum(Struct, frozen=True):
    total: int


def test_changes_are_what_was_assigned_or_deleted_since_they_were_settled() -> None:
    state = State()
    sums = state.table("sums", Sum)
    sums["a"], sums["b"] = Sum(1), Sum(2)
    assert list(state.changes()) == [(b"sums\x1fa", b'{"total":1}'), (b"sums\x1fb", b'{"total":2}')]
    state.settle()
    del sums["a"]
    sums["b"] = Sum(3)
    assert list(state.changes()) == [(b"sums\x1fa", None), (b"sums\x1fb", b'{"total":3}')]


def test_what_was_loaded_is_no_change_and_reads_as_records() -> None:
    state = State()
    state.load(b"sums\x1fa", encode(Sum(1)))
    state.load(b"sums\x1fb", encode(Sum(2)))
    state.load(b"sums\x1fa", None)
    sums = state.table("sums", Sum)
    assert dict(sums) == {"b": Sum(2)}
    state.load(b"sums\x1fc", encode(Sum(4)))
    assert sums["c"] == Sum(4)
    assert list(state.changes()) == []


def test_clearing_tombstones_every_row_but_those_written_again() -> None:
    state = State()
    state.load(b"sums\x1fa", encode(Sum(1)))
    state.load(b"other\x1fx", encode(Sum(9)))
    sums = state.table("sums", Sum)
    state.clear()
    assert dict(sums) == {}
    sums["a"] = Sum(5)
    assert list(state.changes()) == [(b"other\x1fx", None), (b"sums\x1fa", None), (b"sums\x1fa", b'{"total":5}')]


def test_a_key_may_hold_any_character() -> None:
    state = State()
    state.table("sums", Sum)["a\x1fb|c\x00"] = Sum(1)
    [(key, row)] = list(state.changes())
    restored = State()
    restored.load(key, row)
    assert dict(restored.table("sums", Sum)) == {"a\x1fb|c\x00": Sum(1)}
