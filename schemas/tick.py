"""Tick: time as an event. It travels in every partition of a topic, between the records it separates."""

from typing import Annotated

from msgspec import Meta, Struct

from fluvial.schemas.erasure import Erasure
from fluvial.schemas.types import LATEST, Micros


class Tick(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tick"):
    """The clock said `at`; every record before this one in its partition came earlier.

    `slot` orders ticks and only ever grows within a partition (milliseconds, but at least one more than the last).
    `flush` asks every hop to finish what it holds open (`fluvial drain`). `erase` asks every hop to forget
    (`fluvial forget`); `erased` are the event ids of what land has forgotten for it, for the hops behind.
    """

    slot: Annotated[int, Meta(ge=0, le=LATEST // 1_000)]
    at: Micros
    flush: bool = False
    erase: Erasure | None = None
    erased: tuple[str, ...] = ()
