"""Operations in any number, vectors without a model, and a process that folds until it is killed.

`python -m support.lessons FOLDER SEED` with the folder tests/ on the path prints the offset after each commit.
"""

import hashlib
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluvial.processors.expel import step
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.drift_event import MetricKey
from fluvial.schemas.insight import Inapplicable, Insight, InsightOp, Operation
from fluvial.schemas.progress import Progress
from fluvial.sinks.insights import Insights, Vectors

DIMENSIONS = 384
TOOLS = ("swap", "bridge", "lend", "stake")


def embed(texts: Sequence[str]) -> Vectors:
    """A unit vector that depends on the text alone."""
    vectors = np.empty((len(texts), DIMENSIONS), np.float32)
    for row, text in enumerate(texts):
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        vectors[row] = np.random.default_rng(seed).standard_normal(DIMENSIONS)
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def add(insight_id: str, at: int = 1, **fields: Any) -> InsightOp:
    tool = fields.pop("tool", "swap")
    claim = Claim(
        source="desk", tool=tool, atoms=(Atom(feature="args.size", op="ge", value=at),), expected=0.8, reference=0.2
    )
    defaults: dict[str, Any] = {
        "content": f"Calls of {tool} like {insight_id} fail.",
        "claim": claim,
        "category": "slippage",
        "reason": "episode",
    }
    return op("ADD", insight_id, at, **(defaults | fields))


def op(kind: Operation, insight_id: str, at: int = 1, **fields: Any) -> InsightOp:
    defaults: dict[str, Any] = {"op_id": f"{kind}-{insight_id}-{at}", "reason": "prediction", "actor": "test"}
    return InsightOp(op=kind, insight_id=insight_id, at=at, **(defaults | fields))


def drift(tool: str, at: int = 1) -> InsightOp:
    about = MetricKey(tool=tool, metric="error_rate")
    return op("DOWNVOTE", "", at, op_id=f"drift-{tool}-{at}", reason="drift", about=about, cause=f"drift-{at}")


def history(n: int, seed: int = 0) -> list[InsightOp]:
    """A long life: lessons added, voted on, edited, put away and restored, drift, and some that cannot be applied."""
    chance = random.Random(seed)
    ops: list[InsightOp] = []
    for at in range(n):
        name = f"i{chance.randrange(1 + n // 20)}"
        kind = chance.choices(
            ["ADD", "UPVOTE", "DOWNVOTE", "EDIT", "ARCHIVE", "RESTORE", "SUPERSEDE", "drift"],
            [20, 40, 20, 8, 3, 3, 2, 4],
        )[0]
        if kind == "drift":
            ops.append(drift(chance.choice(TOOLS), at))
        elif kind == "ADD":
            ops.append(add(name, at, tool=chance.choice(TOOLS), evidence=(f"e{at}",)))
        else:
            ops.append(op(kind, name, at, content=f"Said at {at}.", evidence=(f"e{at}",)))  # type: ignore[arg-type]
    return ops


def folded(ops: Sequence[InsightOp]) -> dict[str, Insight]:
    """What the operations come to, by the pure fold alone."""
    insights: dict[str, Insight] = {}
    seen: set[str] = set()
    for one in ops:
        if one.op_id not in seen:
            insights.update(after(insights, one))
            seen.add(one.op_id)
    return insights


def after(insights: Mapping[str, Insight], one: InsightOp) -> dict[str, Insight]:
    try:
        return {insight.id: insight for insight in step(insights, one)}
    except Inapplicable:
        return {}


def opened(path: Path) -> Insights:
    """The store in a file, with the real fold and vectors without a model."""
    return Insights(path, step, embed)


def apply(store: Insights, ops: Sequence[InsightOp], first: int = 0) -> list[tuple[str, str]]:
    """Fold and commit; what became of each."""
    batch = store.fold(list(enumerate(ops, start=first)))
    store.commit(batch, Progress(resume=first + len(ops)))
    return [(outcome.kind, outcome.reason) for outcome in batch.outcomes]


def main(folder: Path, seed: int) -> None:
    """Go on where the store stands, in batches of changing size, with small transactions on the way."""
    ops = history(20_000, seed=1)
    store = opened(folder / "live.duckdb")
    store.cursor().execute("SET GLOBAL checkpoint_threshold = '256KB'")  # so that kills meet checkpoints too
    chance = random.Random(seed)
    at = store.progress().resume
    while at < len(ops):
        size = chance.choice([1, 7, 40])
        apply(store, ops[at : at + size], at)
        at += size
        print(at, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
