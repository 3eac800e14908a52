"""Calls that are well formed and still cannot be landed."""

from typing import Any

import pytest

from fluvial.processors.validate import problem_of
from fluvial.schemas.nesting import DEEPEST
from fluvial.schemas.tool_call import ToolCall


def nested(levels: int, kind: type = dict) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value} if kind is dict else [value]
    return value


def call(**fields: Any) -> ToolCall:
    return ToolCall(**({"source": "bot", "run_id": "r", "tool": "swap"} | fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tool": " \t"}, "tool is blank: give a name"),
        ({"run_id": "\u3000"}, "run_id is blank: give a name"),
        ({"tool": "sw\0ap"}, "tool has the control character U+0000: names must be readable"),
        ({"token_pair": "A\u202eB"}, "token_pair has the control character U+202E: names must be readable"),
        (
            {"started_at": 3_500_000, "ended_at": 1_000_000},
            "ended_at is 2.5 s before started_at: check both (microseconds UTC)",
        ),
        ({"metrics": {"gas": float("nan")}}, "gas is nan: leave out what was not measured"),
        ({"reward": float("-inf")}, "reward is -inf: leave out what was not measured"),
        (
            {"error_type": "Timeout"},
            "status is ok (or not given), but an error is named: give status as error, or leave the error out",
        ),
        ({"seq": 2**63}, "seq is beyond 64 bits: number the calls of a run from 0"),
        (
            {"labels": {str(n): "" for n in range(65)}},
            "too many labels: at most 64, of 65,536 characters together, are kept",
        ),
        ({"metrics": {str(n): 0.0 for n in range(1_000)}}, "1,000 metrics: at most 256 are kept"),
        (
            {"args": nested(DEEPEST + 1)},
            "args is nested more than 200 levels deep: flatten it, or give it as text",
        ),
        (
            {"result": nested(100_000, list)},
            "result is nested more than 200 levels deep: flatten it, or give it as text",
        ),
    ],
)
def test_a_reason_is_given_that_says_what_to_do(fields: dict[str, Any], reason: str) -> None:
    assert problem_of(call(**fields)) == reason


@pytest.mark.parametrize(
    "fields",
    [
        {"tool": "s\u200bwap"},
        {"tool": "👩\u200d🔧"},
        {"tool": "t" * 256},
        {"args": nested(DEEPEST)},
        {"args": 2**4_000, "seq": -1},
        {"started_at": 5, "ended_at": 5},
        {"ended_at": 5},
    ],
)
def test_what_is_only_unusual_can_land(fields: dict[str, Any]) -> None:
    assert problem_of(call(**fields)) is None
