"""Witness: what the stores can say of a call (streams/trace.py asks)."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fluvial.schemas.claim import Claim
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import Operation

Station = dict[str, Any]
"""`station` says which; the other fields are those of what stands there, times in microseconds UTC."""


class Touch(NamedTuple):
    """An operation on an insight; `names` are the events asked for that are its evidence."""

    op_id: str
    op: Operation
    reason: str
    insight_id: str
    cause: str | None
    names: frozenset[str]


class Held(NamedTuple):
    """An insight with a claim, and the latest time among the calls it was found in."""

    insight_id: str
    claim: Claim
    found_at: int


class Stores(Protocol):
    """What the stores know. Any of them may not be there yet: then they know nothing."""

    def episode(self, event_id: str) -> Episode | None: ...
    def calls(self, name: str, limit: int) -> list[Episode]:
        """Those of a run id or call id."""

    def touches(self, event_ids: Sequence[str], causes: Sequence[str]) -> list[Touch] | None:
        """Operations that name one of the events, or have one of the causes; None where there is no store."""

    def claims(self, source: str) -> list[Held]: ...
    def insights(self, ids: Sequence[str]) -> dict[str, Station]:
        """Content, category, state and confidence of those that are known, by id."""
