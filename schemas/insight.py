"""Insight and InsightOp: what is remembered, and the operations that change it (ExpeL, arXiv:2308.10144)."""

from typing import Literal

from msgspec import Struct

from fluvial.schemas.claim import Claim
from fluvial.schemas.drift_event import MetricKey

Category = Literal[
    "slippage",
    "gas_timing",
    "route_selection",
    "pool_behavior",
    "mev_pattern",
    "liquidity_depth",
    "volatility",
    "fee_optimization",
    "rebalance_timing",
    "vault_strategy",
    "emergency",
    "general",
    "operator_directive",
]
Kind = Literal["procedural", "strategic", "tool"]
State = Literal["candidate", "active", "archived", "superseded", "rejected", "expired"]
Operation = Literal["ADD", "UPVOTE", "DOWNVOTE", "EDIT", "SUPERSEDE", "ARCHIVE", "RESTORE", "REJECT", "DIRECTIVE"]
Reason = Literal["episode", "prediction", "drift", "judge", "operator", "decay"]


class InsightOp(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="insight_op"):
    """One operation on one insight, or (`about`) on every live insight whose claim rests on that key and metric."""

    op_id: str
    op: Operation
    reason: Reason
    actor: str
    at: int
    insight_id: str = ""
    about: MetricKey | None = None
    content: str | None = None
    category: Category | None = None
    kind: Kind | None = None
    claim: Claim | None = None
    weight: float = 1.0
    evidence: tuple[str, ...] = ()
    cause: str | None = None
    """Id of what caused it: a cluster, a drift event, an operator's request."""


class Inapplicable(ValueError):
    """The operation cannot be applied to what is known; the message says why."""


class Insight(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lesson as it stands. Times in microseconds UTC; `alpha`, `beta` of a Beta posterior that the claim holds."""

    id: str
    content: str
    category: Category
    kind: Kind
    state: State
    confidence: float
    helpful: int
    harmful: int
    alpha: float
    beta: float
    support: int
    claim: Claim | None
    tool: str | None
    chain: str | None
    token_pair: str | None
    regime: str | None
    stability: int
    """Base time to live in seconds (the owner's table)."""
    created_at: int
    last_accessed: int
    last_reinforced: int
    access_count: int
    superseded_by: str | None
    valid_from: int
    valid_to: int | None
    erased_evidence: int = 0
    """How many of the events behind it have been forgotten (`fluvial forget`); its sentence may count them still."""
