"""What is kept of a record that is put aside."""

from typing import Any

import pytest

from fluvial.processors.dead_letter import ID_CHARACTERS, LINE_BYTES, OVERLAP_BYTES, dead_letter
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter, dead_letter_id

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJlLW5vdC1yZWFs"
MARK = "[redacted:jwt]"


def letter(**fields: Any) -> DeadLetter:
    whole: dict[str, Any] = {"reason": "not JSON", "value": b"{", "key": "s|r", "at": 7} | fields
    return dead_letter(hop="land", topic="tool-calls", partition=1, offset=77, **whole)


def test_it_says_what_was_put_aside_and_why() -> None:
    assert letter(event_id="e1") == DeadLetter(
        id=dead_letter_id("tool-calls", 1, 77),
        hop="land",
        topic="tool-calls",
        partition=1,
        offset=77,
        reason="not JSON",
        value="{",
        at=7,
        key="s|r",
        event_id="e1",
        size=1,
    )
    assert letter(id="another").id == "another"


@pytest.mark.parametrize("field", ["value", "key", "reason"])
def test_a_secret_is_taken_out_wherever_it_stands(field: str) -> None:
    text = f"found {JWT} there"
    clean = getattr(letter(**{field: text.encode() if field == "value" else text}), field)
    assert clean == f"found {MARK} there"


@pytest.mark.parametrize("before", [KEEP_BYTES - 20, KEEP_BYTES - 2, KEEP_BYTES + OVERLAP_BYTES - 20])
def test_of_a_secret_across_the_end_nothing_is_kept(before: int) -> None:
    value = b" " * before + JWT.encode() + b" " * 10_000
    assert "eyJ" not in letter(value=value).value


def test_secrets_that_shorten_the_text_do_not_draw_in_half_of_one() -> None:
    value = (JWT + " ").encode() * 10_000
    kept = letter(value=value).value
    assert "eyJ" not in kept
    assert kept.startswith(f"{MARK} {MARK}")


@pytest.mark.parametrize("value", ["\u20ac".encode() * KEEP_BYTES, b"\xff" * KEEP_BYTES, b"a" * KEEP_BYTES * 2])
def test_what_is_kept_is_bounded_in_bytes_of_text(value: bytes) -> None:
    kept = letter(value=value)
    assert KEEP_BYTES - 3 < len(kept.value.encode()) <= KEEP_BYTES
    assert kept.size == len(value)


@pytest.mark.parametrize("key", ["k" * 2_000_000, b"k" * 2_000_000, "\ud800" * 2_000_000])
def test_a_key_a_reason_and_an_id_of_two_megabytes_give_a_small_letter(key: bytes | str) -> None:
    long = letter(key=key, reason="r" * 2_000_000, event_id="e" * 2_000_000)
    assert (len(long.key), len(long.reason), len(long.event_id)) == (LINE_BYTES, LINE_BYTES, ID_CHARACTERS)
    assert len(encode(long)) < 3_000
