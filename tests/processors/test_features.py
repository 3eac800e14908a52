"""What was known of a call before its outcome."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.recorded import episodes, recorded_calls

from fluvial.processors.features import MOST, features
from fluvial.processors.run_context import NEW_RUN, RunState, step
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import RunContext
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.types import Scalar

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def call(**fields: Any) -> ToolCall:
    return ToolCall(source="bot", run_id="r", tool="swap", **fields)


def of(args: Any = None, before: RunState = NEW_RUN, **fields: Any) -> dict[str, Scalar]:
    """The features that are not of the run."""
    found = features(call(args=args, **fields), RunContext(), before)
    return {name: value for name, value in found.items() if not name.startswith("run.")}


def test_circumstances_are_taken_as_given() -> None:
    assert of(
        agent_id="a-1",
        model="m",
        chain="base",
        token_pair="WETH/USDC",
        labels={"origin": "log", "question": "long " * 20},
        started_at=1_692_308_040_000_000,
        metrics={"gas_gwei": 30, "volatility": 0.5},
    ) == {
        "agent": "a-1",
        "model": "m",
        "chain": "base",
        "token_pair": "WETH/USDC",
        "labels.origin": "log",
        "hour": 21,
        "metrics.gas_gwei": 30.0,
        "metrics.volatility": 0.5,
    }


def test_what_the_call_itself_measured_is_an_outcome() -> None:
    assert of(metrics={"slippage_bps": 3.0, "latency_ms": 9.0, "cost_usd": 1.0, "pnl_bps": -4.0}) == {}


@given(JSON, st.text(), st.sampled_from(["ok", "error"]))
def test_outcomes_never_change_a_feature(args: Any, words: str, status: Any) -> None:
    plain = call(args=args)
    ended = replace(plain, result={"x": words}, status=status, error_type="t", error_message=words, reward=1.0)
    assert features(ended, RunContext()) == features(plain, RunContext())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"x": None}, {}),
        ({"x": True}, {"args.x": True}),
        ({"x": 3, "y": {"z": 0.5}}, {"args.x": 3, "args.y.z": 0.5}),
        ({"x": 2**256, "y": -(10**4_000)}, {"args.x": float(2**256), "args.y": -1e300}),
        ({"x": ""}, {"args.x": "", "args.x#form": "empty", "args.x#length": 0}),
        ({"d": "2025-10-24"}, {"args.d": "2025-10-24", "args.d#form": "date", "args.d#length": 10}),
        (
            {"d": "2025-10-24 11:30:00"},
            {"args.d": "2025-10-24 11:30:00", "args.d#form": "datetime", "args.d#length": 19},
        ),
        (
            {"n": "1000000000000000000"},
            {"args.n": "1000000000000000000", "args.n#form": "number", "args.n#number": 1e18, "args.n#length": 19},
        ),
        (
            {"p": "gift_card_7480005"},
            {
                "args.p": "gift_card_7480005",
                "args.p#mask": "gift_card_#",
                "args.p#words": 1,
                "args.p#length": 17,
                "args.p#digit": True,
                "args.p#case": "lower",
            },
        ),
        (
            {"q": '"Revenge", (XXXTentacion)'},
            {
                "args.q": '"Revenge", (XXXTentacion)',
                "args.q#words": 2,
                "args.q#length": 25,
                "args.q#quote": True,
                "args.q#bracket": True,
                "args.q#comma": True,
            },
        ),
        (
            {"code": "x = 1\n" * 20},
            {
                "args.code": True,
                "args.code#words": 60,
                "args.code#length": 120,
                "args.code#lines": 21,
                "args.code#digit": True,
                "args.code#case": "lower",
            },
        ),
        (
            {"pay": [{"by": "card_1", "amount": 100}, {"by": "card_2", "amount": 33}]},
            {
                "args.pay[].by": True,
                "args.pay[].amount": True,
                "args.pay#count": 2,
                "args.pay[].amount#max": 100.0,
                "args.pay[].amount#sum": 133.0,
                "args.pay[].by#mask": "card_#",
            },
        ),
        ([], {"args#count": 0}),
        ([1, 2, 3], {"args[]": True, "args#count": 3, "args[]#max": 3.0, "args[]#sum": 6.0}),
        ({}, {"args#count": 0}),
        (7, {"args": 7}),
    ],
)
def test_arguments_are_flattened_and_described(args: Any, expected: dict[str, Scalar]) -> None:
    assert of(args) == expected


def test_text_from_the_previous_result_is_recognised() -> None:
    _, before = step(NEW_RUN, call(result="Could not find [X]. Similar: ['Bisquick', 'Baking mix']"), 0)
    assert of("Baking mix", before)["args#quoted_in_previous_result"] is True
    assert of("Similar", before)["args#in_previous_result"] is True
    assert "args#quoted_in_previous_result" not in of("Similar", before)
    assert "args#in_previous_result" not in of("Waffle", before)


def test_the_run_is_described_by_what_came_before() -> None:
    _, before = step(NEW_RUN, call(args=1, status="error", error_type="stf"), 0)
    context, _ = step(before, call(args=1), 0)
    assert features(call(args=1), context, before) == {
        "run.calls_before": 1,
        "run.errors_before": 1,
        "run.errors_in_a_row": 1,
        "run.same_call_before": 1,
        "run.tool_errors_before": 1,
        "run.same_call_failed": True,
        "run.previous_tool": "swap",
        "run.previous_status": "error",
        "run.previous_error_type": "stf",
        "args": 1,
    }


@given(JSON)
def test_any_arguments_make_few_short_features_that_json_can_hold(args: Any) -> None:
    found = features(call(args=args), RunContext())
    assert len(found) <= MOST
    assert all(len(value) <= 48 for value in found.values() if isinstance(value, str))
    assert json.loads(encode(found)) == pytest.approx(found)


def test_wide_and_deep_arguments_stay_bounded() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = {"x" * 100: [deep]}
    found = features(
        call(args={"deep": deep, "wide": list(range(100_000)), **{f"a{n}": n for n in range(500)}}), RunContext()
    )
    assert 30 < len(found) <= MOST
    assert len(encode(found)) < 2_000


def test_known_findings_in_the_real_calls_can_be_told_from_features(shared: Path) -> None:
    files = sorted((shared / "data/agents").glob("*.jsonl.gz"))
    landed = episodes(recorded_calls(*files))

    def failed(tool: str, **wanted: Any) -> tuple[int, int]:
        of_tool = [one for one in landed if one.tool == tool and one.source.startswith(wanted["source"])]
        rows = [one for one in of_tool if one.features.get(wanted["name"]) == wanted["value"]]
        return sum(one.status == "error" for one in rows), len(rows)

    quotes = failed("search", source="reflexion", name="args.entity#quote", value=True)
    times = failed("get_price_local", source="ai-trader/sse50-hourly", name="args.date#form", value="datetime")
    assert quotes == (137, 138)
    assert times == (110, 110)
