"""The fold: one operation changes one insight (ExpeL, arXiv:2308.10144, with the owner's arithmetic, section 6).

Confidence starts at .6; an UPVOTE adds .1 and a DOWNVOTE takes .15, times the vote's weight, within [0, 1].

    candidate -- confidence >= .75 --> active -- confidence < .5 --> candidate
    candidate, active -- confidence < .3 (three contradictions from the start) --> archived
    archived by votes -- votes lift it to .3 again --> candidate
    archived on purpose (ARCHIVE): votes no longer count; ADD or RESTORE brings it back
    rejected, superseded: only RESTORE brings it back

Nothing is ever deleted. A directive is an operator's word: only an operator's operations change it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from fluvial.processors.confidence import ACTIVE_FROM, ACTIVE_UNTIL, FLOOR, START, downvoted, upvoted
from fluvial.processors.decay import base_ttl
from fluvial.schemas.claim import Claim
from fluvial.schemas.drift_event import MetricKey
from fluvial.schemas.erasure import ERASED
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import Category, Inapplicable, Insight, InsightOp, Kind, State

LIVE: Final[frozenset[State]] = frozenset({"candidate", "active"})
DIRECTIVE: Final[Category] = "operator_directive"


def step(insights: Mapping[str, Insight], op: InsightOp) -> list[Insight]:
    """The insights that the operation changes, as they are after it, out of all that are known by id.

    One, unless the operation votes `about` a key and metric, or supersedes. Raises Inapplicable.
    """
    if op.about is None:
        old = insights.get(op.insight_id)
        new = fold(old, op)
        heirs = [fold(None, successor(old, op))] if op.op == "SUPERSEDE" and old is not None else []
        return [] if new is old else [new, *heirs]
    if op.op not in ("UPVOTE", "DOWNVOTE"):
        raise Inapplicable(f"{op.op} about a key and metric: only votes can be")
    before = [insights[name] for name in targets(insights.values(), op.about)]
    return [after for old in before if (after := fold(old, op)) is not old]


def fold(insight: Insight | None, op: InsightOp) -> Insight:
    """The insight after the operation; the same object where the operation changes nothing.

    Raises Inapplicable where the insight is unknown, or the operation lacks what it needs.
    """
    if not (math.isfinite(op.weight) and op.weight > 0):
        raise Inapplicable(f"weight is {op.weight}: it has to be a positive number")
    if op.op == "DIRECTIVE" and op.reason != "operator":
        raise Inapplicable(f"DIRECTIVE with the reason {op.reason!r}: only an operator gives directives")
    if op.op == "ADD" or op.op == "DIRECTIVE":
        return _add(insight, op)
    if insight is None:
        raise Inapplicable(f"{op.op} of the insight {op.insight_id!r}, which is unknown")
    if insight.category == DIRECTIVE and op.reason not in ("operator", "decay"):
        return insight
    match op.op:
        case "UPVOTE" | "DOWNVOTE":
            return _vote(insight, op)
        case "EDIT":
            return _edit(insight, op)
        case "RESTORE":
            return insight if insight.state in LIVE else _restored(insight, op)
        case "ARCHIVE":
            return _end(insight, op, "archived") if insight.state in LIVE else insight
        case "REJECT":
            return _end(insight, op, "rejected")
        case "SUPERSEDE":
            return _supersede(insight, op)


def targets(insights: Iterable[Insight], about: MetricKey) -> list[str]:
    """Ids of the live insights whose claim rests on this key and metric, sorted."""
    return sorted(i.id for i in insights if i.state in LIVE and i.claim is not None and rests_on(i.claim, about))


def rests_on(claim: Claim, about: MetricKey) -> bool:
    """Whether the claim speaks of this metric of this key; what a claim leaves open holds for every value."""
    return (
        claim.tool in (None, about.tool)
        and claim.chain in (None, about.chain)
        and claim.token_pair in (None, about.token_pair)
        and about.metric in claim.metrics()
    )


def successor(retired: Insight, op: InsightOp) -> InsightOp:
    """The ADD of the insight that takes the place of the one a SUPERSEDE retires."""
    return replace(
        op,
        op="ADD",
        insight_id=successor_id(op),
        category=op.category or retired.category,
        kind=op.kind or retired.kind,
        claim=op.claim or retired.claim,
    )


def successor_id(op: InsightOp) -> str:
    """A function of the SUPERSEDE and of the insight it retires."""
    return stable_id("successor", op.insight_id, op.op_id)


def _add(insight: Insight | None, op: InsightOp) -> Insight:
    """A new insight. ADD of a live, rejected or superseded one changes nothing: learning again is no vote."""
    directive = op.op == "DIRECTIVE"
    if insight is None:
        return _new(op, directive)
    if directive != (insight.category == DIRECTIVE):
        kind = "a lesson, no directive" if directive else "a directive"
        raise Inapplicable(f"{op.op} of the insight {op.insight_id!r}, which is {kind}")
    if directive:
        return _restored(_edit(insight, op), op)
    if insight.state not in ("archived", "expired"):
        return insight
    return _restored(_edit(insight, op) if insight.content == ERASED else insight, op)


def _new(op: InsightOp, directive: bool) -> Insight:
    if not op.insight_id:
        raise Inapplicable(f"{op.op} without an insight_id")
    if not op.content:
        raise Inapplicable(f"{op.op} of the insight {op.insight_id!r} without content")
    claim = op.claim
    category: Category = DIRECTIVE if directive else op.category or "general"
    kind: Kind = "strategic" if directive else "tool" if claim is not None and claim.tool else "procedural"
    return Insight(
        id=op.insight_id,
        content=op.content,
        category=category,
        kind=op.kind or kind,
        state="active" if directive else "candidate",
        confidence=1.0 if directive else START,
        helpful=0,
        harmful=0,
        alpha=1.0,
        beta=1.0,
        support=len(op.evidence),
        claim=claim,
        tool=claim.tool if claim else None,
        chain=claim.chain if claim else None,
        token_pair=claim.token_pair if claim else None,
        regime=None,
        stability=base_ttl(category, _impact_bps(claim)),
        created_at=op.at,
        last_accessed=op.at,
        last_reinforced=op.at,
        access_count=0,
        superseded_by=None,
        valid_from=op.at,
        valid_to=None,
    )


def _impact_bps(claim: Claim | None) -> float:
    """What following the claim is worth, where it predicts profit and loss."""
    return claim.expected - claim.reference if claim is not None and claim.metric == "pnl_bps" else 0.0


def _vote(insight: Insight, op: InsightOp) -> Insight:
    fallen = insight.state == "archived" and insight.confidence < FLOOR
    if insight.state not in LIVE and not fallen:
        return insight
    if op.op == "UPVOTE":
        voted = replace(
            insight,
            confidence=upvoted(insight.confidence, op.weight),
            helpful=insight.helpful + 1,
            alpha=insight.alpha + op.weight,
            support=insight.support + len(op.evidence),
            access_count=insight.access_count + 1,
            last_accessed=max(insight.last_accessed, op.at),
            last_reinforced=max(insight.last_reinforced, op.at),
        )
    else:
        voted = replace(
            insight,
            confidence=downvoted(insight.confidence, op.weight),
            harmful=insight.harmful + 1,
            beta=insight.beta + op.weight,
            last_accessed=max(insight.last_accessed, op.at),
        )
    state = _state(voted)
    return replace(voted, state=state, valid_to=None if state in LIVE else insight.valid_to or op.at)


def _state(insight: Insight) -> State:
    if insight.confidence < FLOOR:
        return "archived"
    if insight.confidence >= ACTIVE_FROM:
        return "active"
    return "active" if insight.state == "active" and insight.confidence >= ACTIVE_UNTIL else "candidate"


def _edit(insight: Insight, op: InsightOp) -> Insight:
    """Another wording, or another claim; confidence and votes stay."""
    if not op.content:
        raise Inapplicable(f"{op.op} of the insight {op.insight_id!r} without content")
    claim = op.claim or insight.claim
    category = insight.category if insight.category == DIRECTIVE else op.category or insight.category
    return replace(
        insight,
        content=op.content,
        category=category,
        kind=op.kind or insight.kind,
        claim=claim,
        tool=claim.tool if claim else insight.tool,
        chain=claim.chain if claim else insight.chain,
        token_pair=claim.token_pair if claim else insight.token_pair,
        last_accessed=max(insight.last_accessed, op.at),
    )


def _restored(insight: Insight, op: InsightOp) -> Insight:
    """Live again, with at least the confidence of a new one; the votes it had are kept."""
    confidence = 1.0 if insight.category == DIRECTIVE else max(START, insight.confidence)
    return replace(
        insight,
        confidence=confidence,
        state="active" if confidence >= ACTIVE_FROM else "candidate",
        superseded_by=None,
        valid_to=None,
        last_reinforced=max(insight.last_reinforced, op.at),
    )


def _end(insight: Insight, op: InsightOp, state: State) -> Insight:
    return replace(insight, state=state, valid_to=op.at)


def _supersede(insight: Insight, op: InsightOp) -> Insight:
    """Retired for a successor about the same calls, metric and direction; figures may differ."""
    if insight.state not in LIVE or insight.category == DIRECTIVE:
        what = "a directive" if insight.category == DIRECTIVE else insight.state
        raise Inapplicable(f"SUPERSEDE of the insight {op.insight_id!r}, which is {what}")
    if insight.claim and op.claim and insight.claim.structured_key() != op.claim.structured_key():
        raise Inapplicable(f"SUPERSEDE of the insight {op.insight_id!r} by a claim about something else")
    if not op.content:
        raise Inapplicable(f"SUPERSEDE of the insight {op.insight_id!r} without content")
    return replace(_end(insight, op, "superseded"), superseded_by=successor_id(op))
