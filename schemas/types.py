"""Constrained types shared by the records. Each constraint is one a person can be told about."""

from typing import Annotated, Literal

from msgspec import Meta

Identifier = Annotated[str, Meta(min_length=1, max_length=256)]
"""A name given by the agent: source, run, task, agent, model, tool; 1 to 256 characters."""

EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
Micros = Annotated[int, Meta(ge=EARLIEST, le=LATEST)]
"""Microseconds since 1970-01-01T00:00:00Z, from year 1 to year 9999."""

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number of 64 bits."""

Name = Annotated[str, Meta(min_length=1, max_length=128)]
"""A short key: of a label or a metric, a chain, a pair; 1 to 128 characters."""

Text = Annotated[str, Meta(max_length=65_536)]
"""A sentence or a message; at most 65,536 characters."""

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]

Status = Literal["ok", "error", "unknown"]
"""How a call ended; `unknown` where its result never came: neither success nor failure."""

Scalar = bool | int | float | str
"""The value of one feature of a call."""
