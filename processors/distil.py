"""From clusters to ExpeL operations, without a language model: score what is known, remember, mine, say.

Every new cluster is first a test of the claims known of its source (prequential: predict, then score, then learn), and
only then evidence for new ones. All state is given in; the same clusters in the same order give the same operations.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain as chained

import msgspec

from fluvial.processors.claims import Figures, category, kind, sentence, side
from fluvial.processors.confidence import FLOOR, downvoted, upvoted
from fluvial.processors.lessons import (
    Known,
    Lessons,
    Source,
    Tally,
    Tool,
    claims_of,
    forget_claims,
    means,
    recall,
    remember,
)
from fluvial.processors.mine import EFFECT, failing, mine
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import InsightOp, Operation, Reason

GROWTH, LEAST_GROWTH = 0.2, 20
"""A tool is mined again once its evidence has grown by this part, and by so many calls."""
MOST_EVIDENCE = 50
MOST_CLAIMS = 12
"""Claims of one tool of a source that stand at the same time."""
MOST_FALLEN = 24
"""Fallen ones that are still tested, since they may rise again; of more the least credible go."""
LEAST_MATCHES = 3
LEAST_RUNS = 2
PRIOR_RUNS = 8.0
"""What the reference rate of a new claim weighs against the calls that follow, in runs."""
LEAST_EFFECT = EFFECT / 2
"""What a claim has to predict beyond the present rest, as a difference of rates."""


def learn(lessons: Lessons, cluster: Cluster) -> list[InsightOp]:
    """One cluster: the votes it casts on what was known before it, then what is newly learnt."""
    if not cluster.rows:
        return []
    votes = _score(lessons, cluster)
    key = remember(lessons, cluster)
    tool = lessons.tools[key]
    return votes + (_mine(lessons, key) if tool.unmined >= max(LEAST_GROWTH, GROWTH * tool.rows) else [])


def finish(lessons: Lessons) -> list[InsightOp]:
    """Everything so far has been seen: mine what was waiting for more, and bring the sentences' counts up to date."""
    waiting = [key for key in sorted(lessons.tools) if lessons.tools[key].untold]
    return list(chained.from_iterable(_mine(lessons, key, exact=True) for key in waiting))


# Score


def _score(lessons: Lessons, cluster: Cluster) -> list[InsightOp]:
    ops = []
    for name in lessons.sources.get(cluster.source, Source()).claims:
        known = lessons.claims[name]
        sides = [side(known.claim, cluster.tool, cluster.chain, cluster.token_pair, r.features) for r in cluster.rows]
        inside = [row for row, within in zip(cluster.rows, sides, strict=True) if within]
        outside = [row for row, within in zip(cluster.rows, sides, strict=True) if within is False]
        if inside:
            known, vote = _vote(known, inside, cluster)
            ops += vote
        if outside:
            known = msgspec.structs.replace(known, outside=known.outside.add(means(outside)))
        if inside or outside:
            lessons.claims[name] = known
    return ops


def _vote(known: Known, rows: Sequence[Row], cluster: Cluster) -> tuple[Known, list[InsightOp]]:
    """At most one vote: do the matching calls of some runs speak for the claim, or for the rate of the rest?

    The rest is the present one: a claim has to predict better than it, in the claim's own direction.
    """
    matched = dict(known.matched)
    for row in rows:
        calls, failures = matched.get(row.run_id, (0, 0))
        matched[row.run_id] = (calls + 1, failures + row.failed)
    evidence = (*known.evidence, *(row.event_id for row in rows))[-MOST_EVIDENCE:]
    if len(matched) < LEAST_RUNS or sum(calls for calls, _ in matched.values()) < LEAST_MATCHES:
        return msgspec.structs.replace(known, matched=matched, evidence=evidence), []
    rest = known.outside.failures / known.outside.runs if known.outside.runs else known.claim.reference
    claimed = known.claim.expected
    claimed = max(claimed, rest + LEAST_EFFECT) if _fails(known.claim) else min(claimed, rest - LEAST_EFFECT)
    claimed, rest = _inner(claimed), _inner(rest)
    likelier = math.fsum(
        mean * math.log(claimed / rest) + (1 - mean) * math.log((1 - claimed) / (1 - rest))
        for mean in (failures / calls for calls, failures in matched.values())
    )
    op: Operation = "UPVOTE" if likelier > 0 else "DOWNVOTE"
    confidence = upvoted(known.confidence) if op == "UPVOTE" else downvoted(known.confidence)
    known = msgspec.structs.replace(known, confidence=confidence, matched={}, evidence=())
    at = max(row.at for row in cluster.rows)
    return known, [_op(op, "prediction", known.id, cluster.id, at, evidence)]


def _fails(claim: Claim) -> bool:
    """Whether the claim expects more failures than elsewhere, or fewer."""
    return claim.expected >= claim.reference


def _inner(rate: float) -> float:
    """A rate that leaves room for surprise."""
    return min(0.98, max(0.02, rate))


# Mine and say


def _mine(lessons: Lessons, key: str, exact: bool = False) -> list[InsightOp]:
    """New claims of one tool, and sentences whose figures have changed: much, or (`exact`) at all."""
    tool = lessons.tools[key]
    lessons.tools[key] = msgspec.structs.replace(tool, unmined=0, untold=0 if exact else tool.untold)
    rows = list(recall(lessons, key))
    source = lessons.sources[tool.source]
    # A claim that has fallen below the floor keeps no other from being found.
    standing = {name: k for name, k in claims_of(lessons, tool).items() if k.confidence >= FLOOR}
    atoms = [(atom, _fails(k.claim)) for k in standing.values() if (atom := _atom(k.claim))]
    ops = []
    for claim, figures, matching in _found(lessons, tool, rows, atoms, len(atoms) < len(standing)):
        name = stable_id(claim.structured_key())
        told = (figures.calls, figures.failures, figures.runs)
        cause = _only_error(matching) if not claim.atoms else None
        text = sentence(claim, figures, cause)
        evidence = tuple(row.event_id for row in matching[-MOST_EVIDENCE:])
        if name not in lessons.claims:
            if len(standing) >= MOST_CLAIMS:
                continue
            outside = Tally(runs=PRIOR_RUNS, failures=PRIOR_RUNS * claim.reference)
            known = standing[name] = Known(id=name, claim=claim, outside=outside, told=told)
            source = msgspec.structs.replace(source, claims=(*source.claims, name))
            op = _op("ADD", "episode", name, tool.cause, tool.at, evidence, claim, text)
            named = category(claim, _only_error(matching))
            ops.append(msgspec.structs.replace(op, category=named, kind=kind(claim)))
        elif _moved(known := lessons.claims[name], told, exact):
            known = msgspec.structs.replace(known, claim=claim, told=told)
            ops.append(_op("EDIT", "episode", name, tool.cause, tool.at, evidence, claim, text))
        else:
            continue
        lessons.claims[name] = known
    lessons.sources[tool.source] = source
    fallen = {name: k.confidence for name, k in claims_of(lessons, tool).items() if k.confidence < FLOOR}
    beyond = sorted(fallen, key=lambda name: fallen[name])[: max(0, len(fallen) - MOST_FALLEN)]
    forget_claims(lessons, tool.source, beyond)
    return ops


def _found(
    lessons: Lessons, tool: Tool, rows: Sequence[Row], known: Sequence[tuple[Atom, bool]], whole: bool
) -> Iterator[tuple[Claim, Figures, list[Row]]]:
    """The claims that the evidence bears out, each with its figures and the rows that it matches.

    `known`: conditions of claims that stand; `whole`: whether one about the whole tool stands.
    """
    others = [o for key in lessons.sources[tool.source].tools if (o := lessons.tools[key]).tool != tool.tool]
    rest = (math.fsum(o.tally.runs for o in others), math.fsum(o.tally.failures for o in others))
    figures = Figures(
        calls=len(rows),
        failures=sum(row.failed for row in rows),
        runs=len({row.run_id for row in rows}),
        outside_calls=sum(o.calls for o in others),
        outside_failures=sum(o.failures for o in others),
    )
    claim = Claim(source=tool.source, tool=tool.tool, expected=figures.rate, reference=figures.outside_rate)
    still = whole and figures.rate - figures.outside_rate >= LEAST_EFFECT
    if still or failing([row.failed for row in rows], [row.run_id for row in rows], rest):
        yield claim, figures, list(rows)
    for found in mine(rows, known):
        claim = Claim(
            source=tool.source, tool=tool.tool, expected=found.figures.rate, reference=found.figures.outside_rate
        )
        if found.atom.op == "eq" and found.atom.feature in ("chain", "token_pair"):
            claim = msgspec.structs.replace(claim, **{found.atom.feature: found.atom.value})
        else:
            claim = msgspec.structs.replace(claim, atoms=(found.atom,))
        yield claim, found.figures, [row for row, met in zip(rows, found.mask, strict=True) if met]


def _atom(claim: Claim) -> Atom | None:
    """The condition that `_found` made the claim of; None for a claim about a whole tool."""
    if claim.atoms:
        return claim.atoms[0]
    if claim.chain is not None:
        return Atom(feature="chain", op="eq", value=claim.chain)
    return Atom(feature="token_pair", op="eq", value=claim.token_pair) if claim.token_pair is not None else None


def _moved(known: Known, told: tuple[int, int, int], exact: bool) -> bool:
    """Whether the sentence should be written anew: the calls have doubled or the rate has moved by a tenth."""
    if exact or told == known.told:
        return told != known.told
    calls, failures, _ = told
    return calls >= 2 * known.told[0] or abs(failures / calls - known.told[1] / known.told[0]) >= 0.1


def _only_error(rows: Sequence[Row]) -> str | None:
    """The error type of at least nine in ten of the failures that have one."""
    types = Counter(row.error_type for row in rows if row.failed)
    if not types:
        return None
    name, count = min(types.items(), key=lambda entry: (-entry[1], entry[0] or ""))
    return name if count >= 0.9 * types.total() else None


def _op(
    op: Operation,
    reason: Reason,
    insight: str,
    cause: str,
    at: int,
    evidence: tuple[str, ...],
    claim: Claim | None = None,
    content: str | None = None,
) -> InsightOp:
    return InsightOp(
        op_id=stable_id(cause, insight, op),
        op=op,
        reason=reason,
        actor="distil",
        at=at,
        insight_id=insight,
        content=content,
        claim=claim,
        evidence=evidence,
        cause=cause,
    )
