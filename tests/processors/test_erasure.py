"""What an erasure takes, and what it leaves."""

from typing import Any

import pytest
from support.episodes import episode

from fluvial.processors.distil import finish, learn
from fluvial.processors.erase_lessons import erase_evidence
from fluvial.processors.erase_windows import erase_rows
from fluvial.processors.erasure import concerns, concerns_letter, mentions, tells
from fluvial.processors.lessons import Known, Lessons, Tally, recall
from fluvial.processors.window import SECOND, WindowPlan, Windows, place, sweep
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.episode import RunContext
from fluvial.schemas.erasure import Erasure

ALICE = Erasure(what="subject", value="Alice Smith")
RUN = Erasure(what="run", value="r17")
AGENT = Erasure(what="agent", value="trader")
NOW = 1_764_547_200 * SECOND


def test_a_run_and_an_agent_are_known_by_their_whole_name() -> None:
    assert concerns(episode(1, "r17"), RUN)
    assert not concerns(episode(1, "r177"), RUN)
    assert concerns(episode(1, agent_id="trader"), AGENT)
    assert not concerns(episode(1, agent_id="trader-2"), AGENT)
    assert not concerns(episode(1), AGENT)


@pytest.mark.parametrize(
    "fields",
    [
        {"args_json": '{"to":"Alice Smith"}'},
        {"args_json": '{"deep":[{"note":"dear\\nalice smith, welcome"}]}'},
        {"args_json": '{"Alice Smith":1}'},
        {"outcome_json": '"Alice Smith\'s order"'},
        {"labels": {"customer": "Alice Smith"}},
        {"error_message": "no account for ALICE SMITH"},
        {"error_type": "Alice Smith"},
        {"task_id": "Alice Smith"},
        {"agent_id": "Alice Smith"},
        {"text": "pay: to Alice Smith -> ok"},
        {"context": RunContext(previous_error_type="Alice Smith")},
    ],
)
def test_a_subject_is_any_text_that_the_call_holds(fields: dict[str, Any]) -> None:
    assert concerns(episode(1, **fields), ALICE)


@pytest.mark.parametrize(
    "fields",
    [
        {"args_json": '{"to":"Malice Smithers"}'},
        {"tool": "Alice Smith"},
        {"features": {"tool": "Alice Smith", "model": "Alice Smith"}},
        {"model": "Alice Smith"},
    ],
)
def test_parts_of_words_and_names_of_whole_classes_are_no_subject(fields: dict[str, Any]) -> None:
    assert not concerns(episode(1, **fields), ALICE)


def letter(value: str, **fields: Any) -> DeadLetter:
    defaults = {"id": "l", "hop": "land", "topic": "tool-calls", "partition": 0, "offset": 1, "reason": "why", "at": 1}
    return DeadLetter(value=value, **(defaults | fields))


def test_a_dead_letter_is_taken_by_what_its_text_tells() -> None:
    whole = letter('{"source":"s","run_id":"r17","agent_id":"trader","args":{"n":"x\\nAlice Smith"}}')
    broken = letter('{"source":"s","run_id":"r17","agent_id":"trader","args":{"n":"Alice Smith')
    nested = letter('{"data":"{\\"run_id\\":\\"r17\\",\\"agent_id\\":\\"trader\\",\\"to\\":\\"Alice Smith\\"}"}')
    for one in (whole, broken, nested):
        assert all(concerns_letter(one, erasure) for erasure in (RUN, AGENT, ALICE)), one.value
    other = letter('{"source":"s","run_id":"r170","agent_id":"traders","args":"Malice Smith"}')
    assert not any(concerns_letter(other, erasure) for erasure in (RUN, AGENT, ALICE))
    assert concerns_letter(letter("\x00", key="s|r17"), RUN)


def test_a_lesson_tells_of_a_subject_in_words_or_in_its_claim_and_of_an_agent_in_its_claim_only() -> None:
    named = Claim(source="s", atoms=(Atom(feature="args.to", op="eq", value="Alice Smith"),))
    agent = Claim(source="s", atoms=(Atom(feature="agent", op="eq", value="trader"),))
    assert tells("pay fails.", named, ALICE) and tells("Ask Alice Smith.", None, ALICE)
    assert not tells("pay fails.", agent, ALICE)
    assert tells(None, agent, AGENT)
    assert not tells("trader fails.", named, AGENT)
    assert not tells("r17", agent, RUN)


def test_records_mention_a_run_where_it_is_a_run_and_an_event_anywhere() -> None:
    assert mentions({"rows": [{"run_id": "r17"}]}, RUN, frozenset())
    assert mentions({"matched": {"r17": [1, 0]}}, RUN, frozenset())
    assert mentions({"evidence": ["e1"]}, RUN, frozenset({"e1"}))
    assert not mentions({"args": {"slot": "r17"}}, RUN, frozenset({"e1"}))
    assert mentions({"atoms": [{"feature": "agent", "op": "eq", "value": "trader"}]}, AGENT, frozenset())
    assert mentions({"tool": "pay", "to": "alice smith"}, ALICE, frozenset())


# Windows

PLAN = WindowPlan()


def windows(*names: str) -> Windows:
    opened = Windows({}, {}, {}, {})
    for name in names:
        place(opened, PLAN, episode(NOW, id=name, started_at=NOW), NOW)
    return opened


def ids(clusters: list[Cluster]) -> list[list[str]]:
    return [[row.event_id for row in cluster.rows] for cluster in clusters]


def test_forgotten_rows_leave_an_open_window_and_the_rest_becomes_its_cluster() -> None:
    opened = windows("a", "b", "c", "d")
    erase_rows(opened, {"b", "elsewhere"})
    (pane,) = opened.panes.values()
    assert (pane.n, sorted(key.rpartition(":")[2] for key in opened.rows)) == (3, ["0", "1", "2"])
    assert ids(sweep(opened, PLAN, NOW, flush=True)) == [["a", "c", "d"]]


def test_a_window_of_forgotten_rows_only_is_gone() -> None:
    opened = windows("a", "b")
    erase_rows(opened, {"a", "b"})
    assert (opened.panes, opened.rows) == ({}, {})
    assert [lane.open for lane in opened.lanes.values()] == [()]
    place(opened, PLAN, episode(NOW, id="c", started_at=NOW), NOW)
    assert [pane.n for pane in opened.panes.values()] == [1]


def test_forgotten_rows_leave_what_a_lane_carries() -> None:
    opened = windows("a", "b")
    assert sweep(opened, PLAN, NOW, flush=True) == []
    erase_rows(opened, {"a"})
    assert [[row.event_id for row in carried.rows] for carried in opened.carried.values()] == [["b"]]
    erase_rows(opened, {"b"})
    assert opened.carried == {}


# Lessons


def rows(run: int, failed: bool, named: str = "") -> tuple[Row, ...]:
    features = {"args.size": "big" if failed else "small"} | ({"args.to": named} if named else {})
    return tuple(
        Row(
            event_id=f"e{run}-{n}",
            run_id=f"run{run}",
            task_id=f"t{run}",
            failed=failed,
            at=NOW + run,
            features=features,
        )
        for n in range(3)
    )


def learnt() -> Lessons:
    lessons = Lessons({}, {}, {}, {})
    for run in range(60):
        cluster = Cluster(
            id=f"c{run}", source="desk", tool="pay", window_start=NOW, window_end=NOW + 1, rows=rows(run, run % 2 == 0)
        )
        learn(lessons, cluster)
    finish(lessons)
    return lessons


def test_forgotten_calls_leave_the_evidence_and_the_counts() -> None:
    lessons = learnt()
    (key,) = lessons.tools
    before = lessons.tools[key]
    erase_evidence(lessons, RUN, {"e0-0", "e0-1", "e0-2", "e1-0"}, "order")
    after = lessons.tools[key]
    assert (before.rows - after.rows, before.calls - after.calls, before.failures - after.failures) == (4, 4, 3)
    assert {"e0-0", "e1-0"}.isdisjoint(row.event_id for row in recall(lessons, key))
    assert len(list(recall(lessons, key))) == after.rows


def test_sentences_are_told_anew_with_counts_that_leave_out_what_is_forgotten() -> None:
    lessons = learnt()
    assert finish(lessons) == []
    erase_evidence(lessons, RUN, {"e1-0", "e1-1", "e1-2"}, "order")
    edits = finish(lessons)
    assert edits and {op.op for op in edits} == {"EDIT"}
    assert {op.cause for op in edits} == {"order"}
    assert all("of 87 calls (100 %) in 29 runs" in (op.content or "") for op in edits)
    assert all(event not in op.evidence for op in edits for event in ("e1-0", "e1-1", "e1-2"))


def test_a_tool_whose_calls_are_all_forgotten_says_nothing_more() -> None:
    lessons = learnt()
    (key,) = lessons.tools
    erase_evidence(lessons, RUN, {f"e{run}-{n}" for run in range(60) for n in range(3)}, "order")
    assert (lessons.tools[key].rows, lessons.tools[key].calls, lessons.tools[key].failures) == (0, 0, 0)
    assert finish(lessons) == []
    cluster = Cluster(id="new", source="desk", tool="pay", window_start=NOW, window_end=NOW + 1, rows=rows(99, True))
    learn(lessons, cluster)
    assert lessons.tools[key].rows == 3


def test_claims_that_tell_of_the_subject_are_tested_no_longer_and_others_lose_the_run() -> None:
    lessons = learnt()
    known = Known(
        id="k1",
        claim=Claim(source="desk", tool="pay", atoms=(Atom(feature="args.to", op="eq", value="Alice Smith"),)),
    )
    other = Known(
        id="k2",
        claim=Claim(source="desk", tool="pay"),
        outside=Tally(),
        matched={"r17": (3, 1), "run2": (1, 1)},
        evidence=("e0-0", "e2-0"),
    )
    source = lessons.sources["desk"]
    lessons.sources["desk"] = type(source)(tools=source.tools, claims=(*source.claims, "k1", "k2"))
    lessons.claims.update(k1=known, k2=other)
    erase_evidence(lessons, ALICE, set(), "order")
    assert "k1" not in lessons.claims and "k1" not in lessons.sources["desk"].claims
    erase_evidence(lessons, RUN, {"e0-0"}, "order")
    assert (lessons.claims["k2"].matched, lessons.claims["k2"].evidence) == ({"run2": (1, 1)}, ("e2-0",))
