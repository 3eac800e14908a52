"""Erasure: what has to be forgotten. It travels with a tick, so that every hop forgets at the same place in the log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

ERASED = "[erased]"
"""Stands where the content of a lesson was that spoke of what is forgotten."""


class Erasure(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="erasure"):
    """Forget every call of a run or of an agent, or every call that names a subject."""

    what: Literal["run", "agent", "subject"]
    value: Annotated[str, Meta(min_length=1, max_length=256)]
