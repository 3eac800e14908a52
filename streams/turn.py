"""Turn: what a hop may do while it handles the records of one transaction."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from fluvial.processors.dead_letter import dead_letter
from fluvial.processors.redact import KEYLESS, Redactor
from fluvial.schemas.call_part import EvaluationPart
from fluvial.schemas.codec import encode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import DEAD_LETTERS, Topic
from fluvial.schemas.types import EARLIEST, LATEST
from fluvial.streams.state import State, Table

T = TypeVar("T")
Counter = Literal["done", "dead", "duplicate", "late"]


def _event_id(record: Any, redactor: Redactor) -> str:
    if isinstance(record, EvaluationPart):
        return record.span_id
    try:
        return event_id_of(redactor.call(record)[0]) if isinstance(record, ToolCall) else ""
    except RecursionError:
        return ""


@dataclass(frozen=True, slots=True)
class Arrival(Generic[T]):
    """One record of the source topic and its place there; `timestamp` is the Kafka record's, microseconds UTC."""

    record: T
    key: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    value: bytes = b""
    problem: str | None = None
    """Why `value` is no record (`record` is then None)."""
    foreign: bool = True
    """Whether an agent or an operator sent it, and no hop."""


def micros_of(timestamp_ms: int) -> int:
    """The time of a Kafka record, microseconds UTC; one outside of the years 1 to 9999 is the nearest within."""
    return min(max(timestamp_ms * 1_000, EARLIEST), LATEST)


@dataclass(frozen=True, slots=True)
class Output:
    """One record on its way out. Its epoch is the slot of the last tick before it."""

    topic: Topic
    key: str
    value: bytes
    epoch: int


class Turn:
    """Reads and changes the keyed state of one partition, emits and counts; it is committed as one or not at all."""

    def __init__(
        self, hop: str, partition: int, state: State, progress: Progress, redactor: Redactor = KEYLESS
    ) -> None:
        self.hop = hop
        self.partition = partition
        self.progress = progress
        """What will be committed with this turn: a store that keeps its own offset keeps this."""
        self.outputs: list[Output | Tick] = []
        self.erased: list[str] = []
        """Event ids that this turn has forgotten at its tick; the tick takes them along."""
        self.muted = False
        """True while records are handled again only to rebuild a store: nothing is emitted."""
        self._state = state
        self._redactor = redactor
        self.began = progress.slot
        """Slot of the last tick whose effects were committed before this turn."""

    @property
    def now(self) -> int:
        """The time of the last tick in microseconds UTC; 0 before the first."""
        return self.progress.at

    def table(self, name: str, kind: type[T]) -> Table[T]:
        """One table of this partition's state."""
        return self._state.table(name, kind)

    def emit(self, topic: Topic, key: str, record: Struct) -> None:
        """Send a record with this turn's transaction."""
        if not self.muted:
            self.outputs.append(Output(topic, key, encode(record), self.progress.slot))
        sent = self.progress.sent
        self.progress = msgspec.structs.replace(self.progress, sent=sent | {topic.name: sent.get(topic.name, 0) + 1})
        self._add(emitted=1)

    def count(self, what: Counter, n: int = 1) -> None:
        """Say what became of a record of the source: each is counted once."""
        self._add(**{what: n})

    def dead_letter(self, arrival: Arrival[Any], reason: str, id: str | None = None) -> None:
        """Put a record aside with the reason, redacted; `id` by default that of its place in the log."""
        letter = dead_letter(
            hop=self.hop,
            topic=arrival.topic,
            partition=arrival.partition,
            offset=arrival.offset,
            reason=reason,
            value=arrival.value,
            key=arrival.key,
            at=arrival.timestamp,
            event_id=_event_id(arrival.record, self._redactor),
            redactor=self._redactor,
            id=id,
        )
        if not self.muted:
            self.outputs.append(Output(DEAD_LETTERS, letter.hop, encode(letter), self.progress.slot))
        self._add(dead=1)

    def pass_tick(self, tick: Tick) -> None:
        """Time has come to `tick`; it goes on to every partition of every output, with what was forgotten at it."""
        if not self.muted:
            erased = tuple(sorted({*tick.erased, *self.erased}))
            self.outputs.append(msgspec.structs.replace(tick, erased=erased))
        self.erased = []

    def reach(self, **progress: int) -> None:
        """Set fields of the progress."""
        self.progress = msgspec.structs.replace(self.progress, **progress)

    def _add(self, **counters: int) -> None:
        self.reach(**{name: getattr(self.progress, name) + n for name, n in counters.items()})
