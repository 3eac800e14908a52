"""Cluster: the episodes of one key in one window, as distil learns from them."""

from msgspec import Struct

from fluvial.schemas.types import Scalar


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call as evidence: its outcome, and the features known before it."""

    event_id: str
    run_id: str
    failed: bool
    at: int
    task_id: str | None = None
    error_type: str | None = None
    reward: float | None = None
    features: dict[str, Scalar] = {}


class Cluster(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cluster"):
    """`id` is a function of key, window and members. Window bounds in microseconds UTC, end exclusive."""

    id: str
    source: str
    tool: str
    window_start: int
    window_end: int
    chain: str | None = None
    token_pair: str | None = None
    rows: tuple[Row, ...] = ()
    late: int = 0
    """How many of the rows came after their window had closed once."""
