"""Claim: the testable half of an insight."""

from typing import Literal

from msgspec import Struct

from fluvial.schemas.ids import stable_id
from fluvial.schemas.types import Scalar


class Atom(Struct, frozen=True, kw_only=True, omit_defaults=True, order=True):
    """One condition on one feature of a call (features: processors/features.py)."""

    feature: str
    op: Literal["eq", "ge", "le", "present", "absent"]
    value: Scalar | None = None


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Calls in scope that meet every atom have another `metric` than the rest of the scope.

    `expected` and `reference` are the metric's means inside and outside the atoms when the claim was made.
    """

    source: str
    tool: str | None = None
    chain: str | None = None
    token_pair: str | None = None
    atoms: tuple[Atom, ...] = ()
    metric: str = "error_rate"
    expected: float = 0.0
    reference: float = 0.0

    def structured_key(self) -> str:
        """Equal for claims about the same calls, metric and direction, whatever the figures."""
        side = "high" if self.expected >= self.reference else "low"
        return stable_id(self.source, self.tool, self.chain, self.token_pair, sorted(self.atoms), self.metric, side)

    def metrics(self) -> frozenset[str]:
        """The metrics the claim rests on: the one it predicts and those its atoms read (`metrics.NAME`)."""
        read = {a.feature.removeprefix("metrics.") for a in self.atoms if a.feature.startswith("metrics.")}
        return frozenset(read | {self.metric})
