"""The text that is embedded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.recorded import recorded_calls

from fluvial.processors.reflect import reflect, template
from fluvial.schemas.tool_call import ToolCall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def call(tool: str = "swap", **fields: Any) -> ToolCall:
    return ToolCall(source="bot", run_id="r", tool=tool, **fields)


def test_the_agents_own_reflection_is_taken_as_it_is() -> None:
    assert reflect(call(reflection=" I set the tolerance too low. ")) == ("I set the tolerance too low.", "agent")
    assert reflect(call(reflection=" \n"))[1] == "template"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (call(), "swap -> ok"),
        (
            call(
                chain="ethereum",
                token_pair="WETH/USDC",
                args={"amount_in": 1.23456, "tolerance_bps": 30, "route": {"pool": "0.05%"}},
                status="error",
                error_type="slippage_exceeded",
                error_message="Too little received: 1842.119 of 1850",
                metrics={"gas_gwei": 31.4159, "volatility": 0.000123456},
            ),
            "swap on ethereum WETH/USDC: amount_in 1.23, tolerance_bps 30, pool 0.05% -> error slippage exceeded: "
            "Too little received: 1840 of 1850; gas_gwei 31.4, volatility 0.000123",
        ),
        (
            call("get_price", args={"symbol": "600036.SH", "date": "2025-10-24 11:30:00"}, status="error"),
            "get_price: symbol 600036.SH, date <date and time> -> error",
        ),
        (
            call("get", args={"user_id": "sofia_7287", "tx": "0x" + "a" * 64, "nonce": 5, "day": "2025-10-24"}),
            "get: tx <id>, day <date> -> ok",
        ),
        (call(args=[{"a": 1}, {"a": 2}], result="fine"), "swap: x2, a 1 -> ok"),
        (call(args={"x": "", "y": None, "z": True}), "swap: x empty, z true -> ok"),
        (call(status="error", result={"reason": "STF"}), 'swap -> error: {"reason":"STF"}'),
        (call(args={"amount": 2**256 - 1, "tiny": "1000000000000000000"}), "swap: amount 1.16e+77, tiny 1e+18 -> ok"),
    ],
)
def test_the_template_says_what_was_tried_and_how_it_ended(given: ToolCall, text: str) -> None:
    assert template(given) == text


def test_a_call_whose_result_never_came_is_told_neither_as_success_nor_as_failure() -> None:
    assert template(call(status="unknown")).endswith("-> no result")


def test_equal_situations_give_equal_texts() -> None:
    one = call(agent_id="a", seq=1, started_at=1, args={"amount": 1.2341, "deadline": 1_700_000_000}, metrics={"m": 2})
    two = replace(
        one, run_id="q", agent_id="b", seq=2, started_at=9, args={"amount": 1.2339, "deadline": 1_800_000_000}
    )
    assert reflect(one) == reflect(two)


@given(JSON, st.text(), st.sampled_from(["ok", "error"]))
def test_the_text_is_short_whatever_the_arguments(args: Any, message: str, status: Any) -> None:
    text = template(call(args=args, result=message, status=status, error_message=message[:60_000]))
    assert 0 < len(text) <= 400


def test_a_megabyte_and_deep_nesting_make_short_texts() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"x": [deep]}
    assert len(template(call(args={"blob": "x" * 1_048_576, "deep": deep}))) < 200


def test_two_thirds_of_the_texts_of_11513_real_calls_repeat(shared: Any) -> None:
    texts = [reflect(call)[0] for call in recorded_calls(*sorted((shared / "data/agents").glob("*.jsonl.gz")))]
    assert len(set(texts)) < len(texts) / 3
    assert sum(map(len, texts)) / len(texts) < 100
