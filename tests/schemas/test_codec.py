"""Bytes <-> record, and what is said of bytes that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall

LEAST = b'{"source":"shop","run_id":"1","tool":"search"'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"not json", "not JSON"),
        (b'{"tool":', "not JSON"),
        (b'{"tool":"\xff\xfe"}', "not JSON"),
        (b"[1]", "not a valid ToolCall: Expected `object`, got `array`"),
        (b"null", "not a valid ToolCall: Expected `object`, got `null`"),
        (b'{"source":"shop","run_id":"1"}', "missing required field `tool`"),
        (b'{"source":"","run_id":"1","tool":"t"}', "source is empty"),
        (LEAST + b',"status":"maybe"}', "Invalid enum value 'maybe' - at `$.status`"),
        (LEAST + b',"started_at":1e30}', "at `$.started_at`"),
        (LEAST + b',"started_at":-62135596800000001}', "`int` >= -62135596800000000 - at `$.started_at`"),
        (LEAST + b',"metrics":{"gas_gwei":"many"}}', "Expected `float`, got `str` - at `$.metrics[...]`"),
        (LEAST + b',"source_trust":1.5}', "`float` <= 1.0 - at `$.source_trust`"),
        (LEAST + b',"type":"episode"}', "Invalid value 'episode' - at `$.type`"),
        (LEAST + b',"args":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(Undecodable) as wrong:
        decode(data, ToolCall)
    assert said in str(wrong.value)


def test_fields_at_their_default_are_not_written() -> None:
    assert encode(Tick(slot=1, at=2)) == b'{"type":"tick","slot":1,"at":2}'


def test_an_integer_in_a_float_field_is_read_as_a_float() -> None:
    call = decode(LEAST + b',"metrics":{"gas_gwei":30},"reward":1}', ToolCall)
    assert (call.metrics, call.reward) == ({"gas_gwei": 30.0}, 1.0)


def test_a_number_of_256_bits_in_the_arguments_is_said_or_kept_but_never_cut() -> None:
    call = decode(
        LEAST + b',"args":{"amount":"115792089237316195423570985008687907853269984665640564039457584007913129639935"}}',
        ToolCall,
    )
    assert call.args == {"amount": str(2**256 - 1)}


def test_what_is_said_of_a_long_value_is_short_and_has_its_place() -> None:
    with pytest.raises(Undecodable) as wrong:
        decode(LEAST + b',"status":"' + b"x" * 100_000 + b'"}', ToolCall)
    assert len(str(wrong.value)) < 500
    assert str(wrong.value).endswith("at `$.status`")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4),
    max_leaves=12,
)
identifiers = st.text(min_size=1, max_size=256)


@given(source=identifiers, run_id=identifiers, tool=identifiers, args=json_values, result=json_values)
def test_any_call_comes_back_as_it_went(source: str, run_id: str, tool: str, args: object, result: object) -> None:
    call = ToolCall(source=source, run_id=run_id, tool=tool, args=args, result=result)
    assert decode(encode(call), ToolCall) == call


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_said_to_be_none(data: bytes) -> None:
    try:
        decode(data, ToolCall)
    except Undecodable as error:
        assert str(error)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"source":"s","run_id":"r","tool":""}', "not a valid ToolCall: tool is empty"),
        (b" ", "not JSON: the record is empty"),
        (
            b'{"source":"s","run_id":"r","tool":"t","started_at":"2026-11-20T10:01:00Z"}',
            "not a valid ToolCall: Expected `int | null`, got `str` - at `$.started_at`: times are microseconds since "
            "1970 UTC (text in ISO form comes in through a mapping)",
        ),
    ],
)
def test_a_frequent_mistake_is_said_in_words(data: bytes, words: str) -> None:
    with pytest.raises(Undecodable) as error:
        decode(data, ToolCall)
    assert str(error.value) == words
