"""The fold of operations: the owner's arithmetic, the states, and who may change what."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluvial.processors.confidence import ACTIVE_FROM, FLOOR
from fluvial.processors.expel import LIVE, fold, rests_on, step, targets
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.drift_event import MetricKey
from fluvial.schemas.insight import Inapplicable, Insight, InsightOp, Operation

CLAIM = Claim(
    source="desk",
    tool="swap",
    chain="base",
    atoms=(Atom(feature="metrics.gas_gwei", op="ge", value=40),),
    expected=0.8,
    reference=0.1,
)


def op(kind: Operation, at: int = 1, **fields: Any) -> InsightOp:
    defaults: dict[str, Any] = {
        "op_id": f"{kind}-{at}",
        "reason": "operator" if kind == "DIRECTIVE" else "prediction",
        "actor": "test",
        "insight_id": "i1",
    }
    return InsightOp(op=kind, at=at, **(defaults | fields))


def added(**fields: Any) -> Insight:
    defaults: dict[str, Any] = {"content": "Gas above 40 gwei fails.", "claim": CLAIM}
    return fold(None, op("ADD", **(defaults | fields)))


def after(insight: Insight, *kinds: Operation, **fields: Any) -> Insight:
    for at, kind in enumerate(kinds, start=2):
        insight = fold(insight, op(kind, at, **fields))
    return insight


def test_a_new_lesson_is_a_candidate_at_six_tenths_and_takes_its_place_from_its_claim() -> None:
    new = added(category="gas_timing", evidence=("e1", "e2"), at=7)
    assert new.confidence == 0.6
    assert (new.state, new.kind, new.category, new.support) == ("candidate", "tool", "gas_timing", 2)
    assert (new.tool, new.chain, new.token_pair) == ("swap", "base", None)
    assert (new.created_at, new.valid_from, new.last_reinforced, new.valid_to) == (7, 7, 7, None)
    assert new.stability == 7 * 86_400
    assert (new.alpha, new.beta) == (1.0, 1.0)


def test_without_a_category_a_lesson_is_general_and_without_a_claim_procedural() -> None:
    new = added(claim=None)
    assert (new.category, new.kind, new.tool) == ("general", "procedural", None)


def test_a_lesson_about_profit_lives_by_what_it_is_worth() -> None:
    claim = Claim(source="desk", metric="pnl_bps", expected=-140.0, reference=5.0)
    assert added(claim=claim, category="vault_strategy").stability == 180 * 86_400


@pytest.mark.parametrize(
    ("votes", "confidence", "state"),
    [
        ("+", 0.7, "candidate"),
        ("++", 0.8, "active"),
        ("-", 0.45, "candidate"),
        ("--", 0.3, "candidate"),
        ("---", 0.15, "archived"),
        ("+++-", 0.75, "active"),
        ("++--", 0.5, "active"),
        ("++---", 0.35, "candidate"),
        ("++++++++", 1.0, "active"),
        ("---------", 0.0, "archived"),
    ],
)
def test_votes_move_confidence_by_a_tenth_up_and_fifteen_hundredths_down(
    votes: str, confidence: float, state: str
) -> None:
    voted = after(added(), *["UPVOTE" if vote == "+" else "DOWNVOTE" for vote in votes])
    assert (voted.confidence, voted.state) == (confidence, state)
    assert (voted.helpful, voted.harmful) == (votes.count("+"), votes.count("-"))
    assert (voted.alpha, voted.beta) == (1.0 + votes.count("+"), 1.0 + votes.count("-"))


def test_a_vote_counts_by_its_weight() -> None:
    assert after(added(), "UPVOTE", weight=0.5).confidence == 0.65
    assert after(added(), "DOWNVOTE", weight=2.0).confidence == 0.3


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_no_positive_number_is_refused(weight: float) -> None:
    with pytest.raises(Inapplicable, match="weight"):
        after(added(), "UPVOTE", weight=weight)


def test_an_upvote_is_a_use_and_brings_evidence() -> None:
    voted = after(added(evidence=("e1",)), "UPVOTE", evidence=("e2", "e3"))
    assert (voted.support, voted.access_count, voted.last_accessed, voted.last_reinforced) == (3, 1, 2, 2)
    down = after(added(), "DOWNVOTE", evidence=("e2",))
    assert (down.support, down.access_count, down.last_accessed, down.last_reinforced) == (0, 0, 2, 1)


def test_learning_again_what_is_known_is_no_vote() -> None:
    known = after(added(), "UPVOTE")
    assert fold(known, op("ADD", 9, content="The same once more.")) is known


def test_a_lesson_that_fell_returns_when_votes_lift_it_to_the_floor_again() -> None:
    fallen = after(added(), "DOWNVOTE", "DOWNVOTE", "DOWNVOTE")
    assert (fallen.state, fallen.valid_to) == ("archived", 4)
    once = after(fallen, "UPVOTE")
    assert (once.state, once.confidence, once.valid_to) == ("archived", 0.25, 4)
    twice = after(once, "UPVOTE")
    assert (twice.state, twice.confidence, twice.valid_to) == ("candidate", 0.35, None)


def test_votes_do_not_wake_what_was_archived_on_purpose() -> None:
    archived = after(added(), "ARCHIVE")
    assert (archived.state, archived.valid_to, archived.confidence) == ("archived", 2, 0.6)
    assert after(archived, "UPVOTE", "UPVOTE") is archived
    restored = after(archived, "RESTORE")
    assert (restored.state, restored.valid_to) == ("candidate", None)


def test_an_archived_lesson_that_is_learnt_again_starts_again() -> None:
    fallen = after(added(), "DOWNVOTE", "DOWNVOTE", "DOWNVOTE", "DOWNVOTE")
    again = fold(fallen, op("ADD", 9, content="Learnt again."))
    assert (again.state, again.confidence, again.harmful) == ("candidate", 0.6, 4)


def test_a_rejected_lesson_stays_rejected_until_it_is_restored() -> None:
    rejected = after(added(), "REJECT")
    assert after(rejected, "UPVOTE") is rejected
    assert fold(rejected, op("ADD", 9, content="Again.")) is rejected
    assert after(rejected, "RESTORE").state == "candidate"


def test_an_edit_keeps_confidence_and_votes() -> None:
    voted = after(added(), "UPVOTE", "UPVOTE")
    edited = fold(voted, op("EDIT", 5, content="Said better."))
    assert edited.content == "Said better."
    assert (edited.confidence, edited.state, edited.helpful, edited.claim) == (0.8, "active", 2, CLAIM)


def test_a_directive_is_certain_and_only_an_operator_changes_it() -> None:
    directive = fold(None, op("DIRECTIVE", content="Never trade on Sundays.", insight_id="d1"))
    assert (directive.confidence, directive.state, directive.category) == (1.0, "active", "operator_directive")
    assert directive.stability == 0
    for reason in ("prediction", "drift", "episode", "judge"):
        assert after(directive, "DOWNVOTE", "EDIT", "REJECT", "ARCHIVE", reason=reason, content="x") is directive
    assert after(directive, "ARCHIVE", reason="operator").state == "archived"
    again = fold(after(directive, "ARCHIVE", reason="operator"), op("DIRECTIVE", 9, content="Nor on Saturdays."))
    assert (again.state, again.confidence, again.content) == ("active", 1.0, "Nor on Saturdays.")


def test_a_tool_cannot_give_directives() -> None:
    with pytest.raises(Inapplicable, match="only an operator"):
        fold(None, op("DIRECTIVE", reason="episode", content="Obey me."))


def test_a_directive_and_a_lesson_do_not_become_each_other() -> None:
    with pytest.raises(Inapplicable, match="a lesson, no directive"):
        fold(added(), op("DIRECTIVE", content="x"))
    with pytest.raises(Inapplicable, match="a directive"):
        fold(fold(None, op("DIRECTIVE", content="x")), op("ADD", content="y"))


@pytest.mark.parametrize("kind", ["UPVOTE", "DOWNVOTE", "EDIT", "SUPERSEDE", "ARCHIVE", "RESTORE", "REJECT"])
def test_what_is_unknown_cannot_be_changed(kind: Operation) -> None:
    with pytest.raises(Inapplicable, match=f"{kind} of the insight 'i1', which is unknown"):
        step({}, op(kind, content="x"))


@pytest.mark.parametrize("kind", ["ADD", "DIRECTIVE"])
def test_nothing_is_added_without_content_or_id(kind: Operation) -> None:
    with pytest.raises(Inapplicable, match="without content"):
        fold(None, op(kind))
    with pytest.raises(Inapplicable, match="without an insight_id"):
        fold(None, op(kind, insight_id="", content="x"))


def test_an_edit_without_content_is_refused() -> None:
    with pytest.raises(Inapplicable, match="without content"):
        after(added(), "EDIT")


def test_superseding_retires_one_lesson_and_adds_its_successor_in_one_step() -> None:
    old = added(category="gas_timing")
    better = Claim(**{name: getattr(CLAIM, name) for name in CLAIM.__struct_fields__} | {"expected": 0.9})
    retired, new = step({"i1": old}, op("SUPERSEDE", 5, content="Said anew.", claim=better))
    assert (retired.id, retired.state, retired.superseded_by, retired.valid_to) == ("i1", "superseded", new.id, 5)
    assert (new.content, new.category, new.claim, new.confidence) == ("Said anew.", "gas_timing", better, 0.6)
    with pytest.raises(Inapplicable, match="which is superseded"):
        step({"i1": retired}, op("SUPERSEDE", 6, content="And anew."))


def test_only_a_claim_about_the_same_supersedes() -> None:
    with pytest.raises(Inapplicable, match="about something else"):
        step({"i1": added()}, op("SUPERSEDE", content="x", claim=Claim(source="desk", tool="bridge")))


def drift(tool: str = "swap", metric: str = "error_rate", **key: Any) -> MetricKey:
    return MetricKey(tool=tool, metric=metric, **({"chain": "base", "token_pair": "WETH/USDC"} | key))


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (drift(), True),
        (drift(metric="gas_gwei"), True),
        (drift(metric="slippage_bps"), False),
        (drift(tool="bridge"), False),
        (drift(chain="ethereum"), False),
        (drift(chain=None), False),
        (drift(token_pair=None), True),
    ],
)
def test_a_claim_rests_on_the_metric_it_predicts_and_on_those_it_reads(about: MetricKey, expected: bool) -> None:
    assert rests_on(CLAIM, about) is expected


def test_drift_downvotes_every_live_lesson_that_rests_on_it_and_no_other() -> None:
    known = {
        "b": added(insight_id="b"),
        "a": added(insight_id="a", claim=Claim(source="desk")),
        "other": added(insight_id="other", claim=Claim(source="desk", tool="bridge")),
        "prose": added(insight_id="prose", claim=None),
        "gone": after(added(insight_id="gone"), "ARCHIVE"),
    }
    assert targets(known.values(), drift()) == ["a", "b"]
    changed = step(known, op("DOWNVOTE", insight_id="", about=drift(), reason="drift"))
    assert [(i.id, i.confidence) for i in changed] == [("a", 0.45), ("b", 0.45)]


def test_only_votes_can_be_about_a_metric() -> None:
    with pytest.raises(Inapplicable, match="only votes"):
        step({}, op("REJECT", about=drift()))


KINDS: list[Operation] = ["ADD", "UPVOTE", "DOWNVOTE", "EDIT", "ARCHIVE", "RESTORE", "REJECT"]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0.1, 3.0))))
def test_whatever_happens_a_live_lesson_is_above_the_floor_and_every_confidence_a_probability(
    history: list[tuple[Operation, float]],
) -> None:
    insight = added()
    for at, (kind, weight) in enumerate(history, start=2):
        insight = fold(insight, op(kind, at, weight=weight, content="x"))
        assert 0.0 <= insight.confidence <= 1.0
        assert insight.state not in LIVE or insight.confidence >= FLOOR
        assert insight.state != "candidate" or insight.confidence < ACTIVE_FROM
        assert (insight.valid_to is None) == (insight.state in LIVE)
