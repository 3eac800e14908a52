"""The mapping file and the times in logs."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fluvial.mapping import MappingError, Unmappable, load_mapping, parse_mapping
from fluvial.moments import micros
from fluvial.prepare import prepare

EXAMPLE = Path(__file__).parents[2] / "examples" / "mapping.toml"
LEAST = 'source = "s"\nrun_id = "r"\ntool = "t"\n'
ROW = {"s": "shop", "r": 7, "t": "search"}


def mapped(lines: str, **row: Any) -> Any:
    return parse_mapping(LEAST + lines).call(ROW | row)


def test_the_example_maps_every_row_of_the_agents_but_those_with_an_empty_tool(shared: Path) -> None:
    mapping = load_mapping(EXAMPLE)
    ids, refused = set(), []
    for path in sorted((shared / "data" / "agents").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = msgspec.json.decode(line)
            try:
                ids.add(prepare(mapping.call(row))[0].event_id)
            except Unmappable as error:
                refused.append((row["tool"], str(error)))
    assert len(ids) == 11_484
    assert len(refused) == 29
    assert {tool for tool, _ in refused} == {""}
    assert all("tool" in reason for _, reason in refused)


def test_the_example_takes_every_field_of_a_row() -> None:
    call = load_mapping(EXAMPLE).call(
        {
            "source": "tau-bench/airline",
            "run_id": "tau-air-t0-3",
            "task_id": "airline-3",
            "seq": 4,
            "ts": "2025-10-01T11:00:00-04:00",
            "agent": "tau-airline-agent",
            "model": "gpt-4o",
            "tool": "book_reservation",
            "args": {"flights": [1]},
            "result_text": "Error: no",
            "is_error": True,
            "error_type": "no",
            "final_reward": 0.0,
            "call_id": "call_1",
            "trial": 2,
            "question": None,
        }
    )
    assert (call.source, call.run_id, call.task_id, call.seq) == ("tau-bench/airline", "tau-air-t0-3", "airline-3", 4)
    assert (call.agent_id, call.model, call.call_id) == ("tau-airline-agent", "gpt-4o", "call_1")
    assert (call.tool, call.args, call.result) == ("book_reservation", {"flights": [1]}, "Error: no")
    assert (call.status, call.error_type, call.reward) == ("error", "no", 0.0)
    assert call.started_at == 1_759_330_800_000_000
    assert call.labels == {"trial": "2"}


def test_numbers_become_text_where_the_field_is_text_and_text_becomes_a_number_where_it_is_one() -> None:
    call = mapped('task_id = "task"\n[metrics]\ngas_gwei = "gas"\nok = "ok"\n', task=12, gas="31.5", ok=True)
    assert (call.run_id, call.task_id, call.metrics) == ("7", "12", {"gas_gwei": 31.5, "ok": 1.0})


def test_a_constant_and_a_literal_stand_in_every_call() -> None:
    call = mapped('chain = { constant = "polygon" }\nmodel = "\'gpt-4o\'"\n[labels]\nteam = { constant = 3 }\n')
    assert (call.chain, call.model, call.labels) == ("polygon", "gpt-4o", {"team": "3"})


def test_what_an_expression_does_not_find_or_finds_empty_is_left_out() -> None:
    call = mapped('task_id = "nowhere"\nmodel = "m"\nstarted_at = "at"\n[labels]\nx = "y"\n', m="", at=None)
    assert (call.task_id, call.model, call.started_at, call.labels) == (None, None, None, {})


@pytest.mark.parametrize(("value", "status"), [(True, "error"), (1, "error"), ("x", "error"), (False, "ok"), (0, "ok")])
def test_a_condition_decides_the_status(value: object, status: str) -> None:
    other = {"ok": "error", "error": "ok"}[status]
    assert mapped('status = { error_if = "e" }\n', e=value).status == status
    assert mapped('status = { ok_if = "e" }\n', e=value).status == other
    assert mapped('status = { error_if = "e" }\n').status == "ok"


def test_a_boolean_as_status_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        Unmappable, match=r'status: true is neither "ok" nor "error" nor "unknown"; write status = \{ error_if'
    ):
        mapped('status = "e"\n', e=True)


@pytest.mark.parametrize(
    ("lines", "row", "reason"),
    [
        ('started_at = "ts"\n', {"ts": "yesterday"}, "started_at: 'yesterday' is no time"),
        ('reward = "x"\n', {"x": "much"}, 'reward: "much" is no number'),
        ('[metrics]\ngas = "x"\n', {"x": [1]}, r"metrics.gas: \[1\] is no number"),
        ('seq = "x"\n', {"x": 1.5}, "seq: 1.5 is no whole number"),
        ('model = "length(x)"\n', {"x": 1}, r"model: In function length\(\), invalid type"),
        ("", {"r": None}, "run_id: the mapping finds nothing in this row"),
        ("", {"t": ""}, "not a valid ToolCall: tool is empty"),
        ('chain = "x"\n', {"x": "c" * 129}, "length <= 128 - at `\\$.chain`"),
    ],
)
def test_a_row_that_does_not_map_is_refused_by_the_name_of_the_field(
    lines: str, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unmappable, match=reason):
        mapped(lines, **row)


@pytest.mark.parametrize("row", [[], 1, "text", None, {}])
def test_a_row_that_is_no_object_is_refused(row: object) -> None:
    with pytest.raises(Unmappable, match="source: the mapping finds nothing"):
        parse_mapping(LEAST).call(row)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sorce = 's'", r"m\.toml:1: sorce is no field of a tool call \(did you mean source\?\)\."),
        ("source = 's'", r"m\.toml: run_id is required and missing\."),
        (LEAST + "args = 5", r"m\.toml:4: args is an expression in quotes or \{ constant = \.\.\. \}, not 5\."),
        (LEAST + "status = { error = 'x' }", r"m\.toml:4: status is .* or \{ ok_if = \.\.\. \}, not"),
        (LEAST + "model = 'a.[b'", r"m\.toml:4: model has no JMESPath expression: .*a\.\[b"),
        (LEAST + "[labels]\nx = 'y'\n[metrics]\nx = '['", r"m\.toml:7: metrics\.x has no JMESPath expression"),
        (LEAST + "labels = 'x'", r"m\.toml:4: labels is a table"),
        ("source = \n", r"m\.toml: not TOML: .*line 1"),
    ],
)
def test_a_mistake_in_the_file_is_said_with_file_line_and_field(text: str, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        parse_mapping(text, "m.toml")


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(MappingError, match=r"m\.toml: not UTF-8 text"):
        load_mapping(path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00+05:30", 1_767_205_800_000_000),
        ("2099-12-31T23:59:59.999999999Z", 4_102_444_799_999_999),  # nanoseconds are cut
        ("2023-08-17 21:34", 1_692_308_040_000_000),  # without an offset: UTC
        ("2023-08-17", 1_692_230_400_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        (1_692_307_800, 1_692_307_800_000_000),
        (1_692_307_800.123456, 1_692_307_800_123_456),
        ("1692307800.5", 1_692_307_800_500_000),
        (1_692_307_800_123, 1_692_307_800_123_000),
        (1_692_307_800_123_456, 1_692_307_800_123_456),
        (1_692_307_800_123_456_789, 1_692_307_800_123_456),
        (-1, -1_000_000),
    ],
)
def test_a_time_is_read_in_the_ways_logs_write_it(value: object, expected: int) -> None:
    assert micros(value) == expected


@pytest.mark.parametrize(
    "value", ["", "soon", "2023-02-30", "NaN", "Infinity", True, [1], {}, 1e30, 10**400, "1e999999"]
)
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is no time"):
        micros(value)
