"""What is kept of a record that is put aside."""

from typing import Any

import pytest
from support.wire import protobuf

from fluvial.processors.dead_letter import ID_CHARACTERS, LINE_BYTES, OVERLAP_BYTES, dead_letter
from fluvial.processors.redact import Redactor
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import KEEP_BYTES, DeadLetter, dead_letter_id

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJlLW5vdC1yZWFs"
MARK = "[redacted:jwt]"


def letter(**fields: Any) -> DeadLetter:
    whole: dict[str, Any] = {"topic": "tool-calls", "reason": "not JSON", "value": b"{", "key": "s|r", "at": 7} | fields
    return dead_letter(hop="land", partition=1, offset=77, **whole)


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


def test_a_record_that_is_json_is_read_as_such() -> None:
    whole = b'{"args": {"wallet": {"signer": "' + b"ab" * 32 + b'"}, "n": 1}, "env": ["--password", "hunter2"]}'
    assert letter(value=whole).value == (
        '{"args":{"wallet":{"signer":"[redacted:private_key]"},"n":1},"env":["--password","[redacted:password]"]}'
    )
    clean = b'{"args" : 1,\n "args": 2.0}'
    assert letter(value=clean).value == clean.decode()


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-32"])
def test_of_a_text_in_another_coding_nothing_is_kept(coding: str) -> None:
    whole = f"password=hunter2 {JWT}".encode(coding)
    assert (letter(value=whole).value, letter(key=whole).key) == ("[redacted:binary]", "[redacted:binary]")
    assert letter(value="nothing here".encode(coding)).value == "[redacted:binary]"
    assert letter(key="nothing here".encode(coding)).key != "[redacted:binary]"


def test_of_a_record_that_is_binary_only_the_size_is_kept() -> None:
    secret = {"key": "db.password", "value": {"stringValue": "hunter2-correct-horse"}}
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "t" * 300, "attributes": [secret]}
    whole = protobuf({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    assert b"hunter2" in whole
    kept = letter(value=whole)
    assert (kept.value, kept.size) == ("[redacted:binary]", len(whole))
    assert letter(value=b" " * KEEP_BYTES * 2 + b"\x12").value == "[redacted:binary]"


@pytest.mark.parametrize("text", ["a\tb\r\nc", '{"a":"\\u0000\\u0012"', "caf\u00e9 \u4e16"])
def test_text_is_no_binary_data(text: str) -> None:
    assert letter(value=text.encode()).value == text


def test_the_file_and_the_event_id_are_read_too_and_marks_carry_the_hash_of_the_redactor() -> None:
    redactor = Redactor(b"k" * 32)
    mark = redactor.text(JWT)[0]
    one = letter(value=JWT.encode(), event_id=JWT, topic=f"{JWT}.jsonl", redactor=redactor)
    assert (one.value, one.event_id, one.topic) == (mark, mark, f"{mark}.jsonl")
    assert len(mark) > len(MARK)
