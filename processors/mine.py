"""Find claims in evidence: which condition on a call goes with failure, or with success.

Contrast-set mining (Bay and Pazzani, 2001) over single conditions with Fisher's exact test. The unit is the run, not
the call: calls of a run are not independent, so a run gives its mean failure once to the calls that meet the condition
and once to the others. All conditions tried are corrected for (Bonferroni).
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fluvial.processors.claims import LONGEST_NAME, Figures, holds, quotable
from fluvial.processors.exact import Bools, Floats, Sides, Units, fisher, wilson
from fluvial.schemas.claim import Atom
from fluvial.schemas.cluster import Row
from fluvial.schemas.types import Scalar

ALPHA = 0.01
"""Chance of one false claim in one mining of one tool."""
TASK_P = 0.01
LEAST_OUTCOMES = 8
"""Failures, and successes, without which there is nothing to contrast."""
LEAST_CALLS = 12
LEAST_RUNS = 8
LEAST_TASKS = 5
MANY_TASKS = 10
"""Tasks are units of their own where there are so many; fewer are kinds of work, not samples of it."""
WIDEST = 0.6
"""Largest share of the calls that a condition may cover."""
EFFECT, EFFECT_BOUND, LEAST_RATE = 0.25, 0.08, 0.3
"""What matters: this difference of rates and this lower bound of it, at no less than this rate;"""
RARER = 4.0
"""or the opposite outcome so many times rarer."""
GAIN = 0.15
"""What a new finding must tell beyond those chosen, as a difference of rates."""
MOST_FINDINGS = 6
MOST_VALUES = 12
MOST_CUTS = 16
LEAST_WHOLE_RATE = 0.5
HARDLY_EVER = 0.1
HUGE = 1e300

_GRID = sorted({float(f"{m}e{e}") for e in range(-6, 13) for m in (1, 1.5, 2, 3, 4, 5, 6, 7, 8)} | {0.0})
_GRID = sorted({*_GRID, *(-g for g in _GRID)})
_FLAGS = re.compile(r"#(quote|digit|bracket|comma|nonascii|in_previous_result|quoted_in_previous_result)$")


@dataclass(frozen=True)
class Finding:
    """One condition that sets calls apart, and which of the rows meet it. `weight`: how many runs, how plain."""

    atom: Atom
    high: bool
    figures: Figures
    weight: float
    mask: Bools


def mine(rows: Sequence[Row], known: Iterable[tuple[Atom, bool]] = ()) -> list[Finding]:
    """The conditions that set calls of one tool apart: those `known` that still do, then new ones, strongest first.

    `known` are (atom, whether failures are more frequent with it): what they tell already is not found again, and half
    the effect is enough for them.
    """
    failed = np.fromiter((row.failed for row in rows), np.bool_, len(rows))
    if min(failed.sum(), (~failed).sum()) < LEAST_OUTCOMES:
        return []
    runs = Units.of([row.run_id for row in rows])
    if len(runs.starts) < LEAST_RUNS:
        return []
    atoms, masks = _conditions(rows, failed)
    if not atoms:
        return []
    tested = _test(atoms, masks, failed, runs, Units.of([row.task_id or row.run_id for row in rows]))
    again = [finding for atom, high in known if (finding := _again(atom, high, rows, failed, runs))]
    return _select(again, tested, failed)


# Conditions


def _conditions(rows: Sequence[Row], failed: Bools) -> tuple[list[Atom], Bools]:
    """Every condition with enough calls and its rows (A x N); of those with the same rows the simplest."""
    columns: dict[str, tuple[list[int], list[Scalar]]] = defaultdict(lambda: ([], []))
    for i, row in enumerate(rows):
        for name, value in row.features.items():
            places, values = columns[name]
            places.append(i)
            values.append(value)
    leaks = _leaks(rows, failed, columns)
    found: dict[bytes, tuple[float, Atom, Bools]] = {}
    for name in sorted(columns):
        if name.partition("#")[0] in leaks or not quotable(name, LONGEST_NAME):
            continue
        places, values = columns[name]
        at = np.array(places)
        for atom, chosen in _cuts(name, values, len(rows)):
            mask = np.zeros(len(rows), np.bool_)
            mask[at if chosen is None else at[chosen]] = True
            if atom.op == "absent":
                mask = ~mask
            if LEAST_CALLS <= mask.sum() <= WIDEST * len(rows):
                rank = (-_plainness(atom), atom)
                key = mask.tobytes()
                if key not in found or rank < (-found[key][0], found[key][1]):
                    found[key] = (_plainness(atom), atom, mask)
    kept = sorted(found.values(), key=lambda entry: entry[1])
    masks = np.array([mask for _, _, mask in kept], np.bool_).reshape(len(kept), len(rows))
    return [atom for _, atom, _ in kept], masks


def _cuts(name: str, values: Sequence[Scalar], n: int) -> Iterable[tuple[Atom, Bools | None]]:
    """The conditions on one feature, each with which of its values meet it (None: all)."""
    room = name.partition(".")[0]
    flag = bool(_FLAGS.search(name)) or name == "run.same_call_failed"
    argument = room in ("args", "labels") and "#" not in name
    if len(values) < n and (flag or argument):
        yield Atom(feature=name, op="present"), None
        yield Atom(feature=name, op="absent"), None
    kinds = {type(value) for value in values}
    if bool in kinds and kinds == {bool}:
        truths = np.array(values, np.bool_)
        if truths.any() and not truths.all():
            yield Atom(feature=name, op="eq", value=True), truths
            yield Atom(feature=name, op="eq", value=False), ~truths
    elif kinds <= {int, float}:
        numbers = np.array(values, np.float64)
        whole = kinds == {int}
        for cut in _grid(numbers):
            value = int(cut) if whole else cut
            yield Atom(feature=name, op="ge", value=value), numbers >= cut
            yield Atom(feature=name, op="le", value=value), numbers <= cut
    elif str in kinds:
        texts = np.array([value if isinstance(value, str) else "" for value in values], dtype=object)
        frequent = Counter(value for value in texts if value).most_common()
        frequent.sort(key=lambda entry: (-entry[1], entry[0]))
        for value, count in frequent[:MOST_VALUES]:
            if count >= LEAST_CALLS and quotable(value):
                yield Atom(feature=name, op="eq", value=value), texts == value


def _grid(numbers: Floats) -> list[float]:
    """The values themselves where they are few, else round numbers in their range, spread over the quantiles."""
    finite = np.clip(numbers[np.isfinite(numbers)], -HUGE, HUGE)
    distinct = np.unique(finite)
    if len(distinct) <= MOST_VALUES and len(finite) >= 4 * len(distinct):
        return [float(value) for value in distinct]
    grid = np.array([g for g in _GRID if len(distinct) and distinct[0] < g <= distinct[-1]])
    if len(grid) <= MOST_CUTS:
        return [float(g) for g in grid]
    wanted = np.quantile(finite, np.linspace(0.03, 0.97, MOST_CUTS))
    return sorted({float(g) for g in grid[np.abs(grid[None, :] - wanted[:, None]).argmin(axis=1)]})


def _leaks(rows: Sequence[Row], failed: Bools, columns: dict[str, tuple[list[int], list[Scalar]]]) -> set[str]:
    """Arguments whose presence or absence is the outcome, over all calls or those of one agent: the log knew it."""
    strata = [np.ones(len(rows), np.bool_)]
    agents = np.array([str(row.features.get("agent", "")) for row in rows], dtype=object)
    strata += [agents == agent for agent in sorted(set(agents))]
    strata = [s for s in strata if (failed & s).sum() >= LEAST_OUTCOMES and (~failed & s).sum() >= 20]
    leaks = set()
    for name, (places, _) in columns.items():
        if name.startswith("args") and "#" not in name and len(places) < len(rows):
            given = np.zeros(len(rows), np.bool_)
            given[places] = True
            same = given == failed
            if any(same[s].all() or not same[s].any() for s in strata):
                leaks.add(name)
    return leaks


def _plainness(atom: Atom) -> float:
    """How directly a reader can use it, 1 at most: of claims that say the same the plainest is kept."""
    if atom.op in ("ge", "le"):
        return 0.8 if atom.feature.endswith("#length") else 0.95
    return 0.9 if atom.op == "absent" or atom.feature.endswith("#mask") else 1.0


# Tests


def _test(atoms: Sequence[Atom], masks: Bools, failed: Bools, runs: Units, tasks: Units) -> list[Finding]:
    """Those that differ enough, surely enough, by run and by task, in the order of their atoms."""
    calls = masks.sum(axis=1)
    failures = (masks & failed).sum(axis=1)
    total, total_failures = len(failed), int(failed.sum())
    rate, other = failures / calls, (total_failures - failures) / (total - calls)
    far = (np.abs(rate - other) >= EFFECT) | (rate * RARER <= other) | ((1 - rate) * RARER <= 1 - other)
    worth = np.flatnonzero(far)
    found = []
    for block in np.array_split(worth, len(worth) // 128 + 1):
        by_run, by_task = runs.sides(masks[block], failed), tasks.sides(masks[block], failed)
        for i, run_sides, task_sides in zip(block.tolist(), by_run, by_task, strict=True):
            high = bool(rate[i] > other[i])
            if not _passes(run_sides if high else run_sides.complement(), ALPHA / len(atoms)):
                continue
            if len(tasks.starts) >= MANY_TASKS:
                oriented = task_sides if high else task_sides.complement()
                if oriented.inside < LEAST_TASKS or fisher(oriented) > TASK_P:
                    continue
            found.append(_finding(atoms[i], high, masks[i], failed, run_sides))
    return found


def _again(atom: Atom, high: bool, rows: Sequence[Row], failed: Bools, runs: Units) -> Finding | None:
    """A known condition on the evidence as it is now."""
    mask = np.fromiter((holds(atom, row.features) for row in rows), np.bool_, len(rows))
    if not mask.any() or mask.all():
        return None
    finding = _finding(atom, high, mask, failed, runs.sides(mask[None, :], failed)[0])
    difference = finding.figures.rate - finding.figures.outside_rate
    return finding if (difference if high else -difference) >= EFFECT / 2 else None


def _finding(atom: Atom, high: bool, mask: Bools, failed: Bools, sides: Sides) -> Finding:
    calls, failures = int(mask.sum()), int((mask & failed).sum())
    figures = Figures(
        calls=calls,
        failures=failures,
        runs=round(sides.inside),
        outside_calls=len(failed) - calls,
        outside_failures=int(failed.sum()) - failures,
    )
    return Finding(atom, high, figures, math.sqrt(sides.inside) * _plainness(atom), mask)


def _passes(sides: Sides, alpha: float) -> bool:
    """Whether the outcome is more frequent inside, by enough to matter and not by chance."""
    if min(sides.inside, sides.outside) < LEAST_RUNS:
        return False
    clear = sides.rate >= max(LEAST_RATE, sides.outside_rate + EFFECT) and sides.least_difference >= EFFECT_BOUND
    opposite, opposite_outside = 1 - sides.rate, 1 - sides.outside_rate
    bound = 1 - wilson(sides.inside_sum, sides.inside)[0]
    rarer = opposite * RARER <= opposite_outside and bound <= opposite_outside / 2
    return (clear or rarer) and fisher(sides) <= alpha


def failing(failed: Sequence[bool], runs: Sequence[str], others: tuple[float, float]) -> bool:
    """Whether a tool fails as a whole.

    `others`: runs of the source's other tools, and the sum of their mean failures. Where there are too few of them to
    compare with, a tool fails as a whole if it has hardly ever worked, or not at all.
    """
    column = np.array(failed, np.bool_)
    if column.sum() < LEAST_OUTCOMES or column.mean() < LEAST_WHOLE_RATE:
        return False
    own = Units.of(runs).sides(np.ones((1, len(column)), np.bool_), column)[0]
    if others[0] >= LEAST_RUNS:
        return _passes(Sides(own.inside, own.inside_sum, *others), ALPHA)
    hardly_ever = wilson(own.inside_sum, own.inside)[0] >= 1 - HARDLY_EVER
    return own.inside >= LEAST_RUNS and (hardly_ever or bool(column.all()))


# Selection


def _select(known: list[Finding], found: Sequence[Finding], failed: Bools) -> list[Finding]:
    """The known ones, then, one by one, what tells most beyond those chosen.

    What is chosen predicts: a call fails at the rate of the narrowest chosen condition that it meets, else at the rate
    of the calls that meet none. A finding tells what is left between its rate and that prediction.
    """
    chosen = list(known)
    found = sorted(found, key=lambda f: not f.high)  # of two that tell the same, the one that warns
    while len(chosen) < len(known) + MOST_FINDINGS:
        left = failed - _predicted(chosen, failed)
        best, most = None, 0.0
        for finding in found:
            gain = float(left[finding.mask].mean()) * (1 if finding.high else -1)
            score = gain * finding.weight
            if gain >= GAIN and score > most:
                best, most = finding, score
        if best is None:
            break
        chosen.append(best)
    return chosen


def _predicted(chosen: Sequence[Finding], failed: Bools) -> Floats:
    covered = np.zeros(len(failed), np.bool_)
    for finding in chosen:
        covered |= finding.mask
    rate = float(failed[~covered].mean()) if not covered.all() else 0.5
    predicted = np.full(len(failed), rate)
    for finding in sorted(chosen, key=lambda f: -f.figures.calls):
        predicted[finding.mask] = finding.figures.rate
    return predicted
