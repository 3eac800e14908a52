"""The detectors of many metrics: alive in memory, kept as records, the ones idle longest forgotten."""

import zlib
from collections.abc import MutableMapping
from itertools import accumulate, pairwise

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fluvial.drift.adwin import RIVER, Unreadable
from fluvial.drift.detector import RATE, VALUE, Alarm, Config, Detector, Memory
from fluvial.drift.transform import KNOTS
from fluvial.schemas.drift_event import MetricKey

ERROR_RATE = "error_rate"
"""1 for a call that failed, 0 for one that did not."""
LIMIT = 20_000
"""Keys of one partition."""
LIVE = 2_000
"""Detectors of one partition that stay alive in memory from one save to the next."""


class DetectorState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One detector at rest: 1 to 4.3 kB as JSON. `data` is what only the same river and configuration can read."""

    river: str
    config: str
    seen: int
    """Index of the next value: goes on even where `data` cannot be read, so that an id is never used twice."""
    last: int
    """When it was used last, in values of the partition."""
    data: bytes


class Counts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the values of one partition since its first."""

    values: int = 0
    refused: int = 0
    """Not a number, not finite, absurd, outside [0, 1] for a rate: never seen by a detector."""
    cold_starts: int = 0
    """Detectors that began anew because their record could not be read."""
    forgotten: int = 0
    """Keys that were idle longest when there were too many."""
    next_index: int = 0
    """No forgotten key has come as far as this: where a new one begins."""


class _Rest(Struct, array_like=True):
    memory: Memory
    """Its times as differences: a third smaller."""
    adwin: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Rest)


def config_of(metric: str) -> Config:
    """How a metric is watched."""
    return RATE if metric == ERROR_RATE else VALUE


def snapshot(detector: Detector, last: int = 0) -> DetectorState:
    """The detector as a record."""
    history = detector.memory.history
    steps = [then - before for before, then in pairwise([0, *history.times])]
    memory = replace(detector.memory, history=replace(history, times=steps))
    rest = _encoder.encode(_Rest(memory, bytes(detector.adwin)))
    return DetectorState(
        river=RIVER,
        config=detector.config.version(),
        seen=detector.memory.seen,
        last=last,
        data=zlib.compress(rest, 1),
    )


def restore(state: DetectorState, config: Config) -> Detector:
    """The detector of a record: it gives the alarms that the one before would have given.

    Raises Unreadable where the record is damaged, or of another river or configuration.
    """
    if (state.river, state.config) != (RIVER, config.version()):
        raise Unreadable(f"written by river {state.river} with configuration {state.config}")
    try:
        rest = _decoder.decode(zlib.decompress(state.data))  # zlib has a checksum
    except (zlib.error, msgspec.DecodeError) as error:
        raise Unreadable(str(error)) from error
    memory = rest.memory
    if len(memory.history.values) != len(memory.history.times) or (
        memory.reference and len(memory.reference.knots) != KNOTS
    ):
        raise Unreadable("parts are missing")
    memory.history.times = list(accumulate(memory.history.times))
    detector = Detector(config)
    detector.adwin.load(rest.adwin)
    detector.memory = memory
    return detector


class Bank:
    """The detectors of one partition over its table of records; `save` brings the table up to date.

    The same values in the same order give the same alarms, counts and records, wherever a save and a new Bank come
    between.
    """

    def __init__(
        self, states: MutableMapping[str, DetectorState], counts: Counts | None = None, *, limit: int = LIMIT
    ) -> None:
        self.states = states
        self.counts = counts or Counts()
        self._limit = limit
        # Every key, the one idle longest first, with its detector if that is alive.
        self._order: dict[str, Detector | None] = dict.fromkeys(sorted(states, key=lambda key: states[key].last))
        self._used: dict[str, int] = {}

    def push(self, key: MetricKey, value: object, at: int) -> Alarm | None:
        """Take the key's next value, event time in microseconds UTC."""
        name = msgspec.json.encode((key.tool, key.chain, key.token_pair, key.metric)).decode()
        detector = self._order.pop(name, None) or self._wake(name, config_of(key.metric))
        self._order[name] = detector
        refused = detector.memory.refused
        alarm = detector.push(value, at)
        counts = self.counts
        self.counts = replace(
            counts, values=counts.values + 1, refused=counts.refused + detector.memory.refused - refused
        )
        self._used[name] = counts.values
        return alarm

    def save(self) -> None:
        """Put every detector that was used since the last save into the table; those idle longest go to rest there."""
        for name, last in self._used.items():
            detector = self._order[name]
            if detector is not None:
                self.states[name] = snapshot(detector, last)
        self._used.clear()
        for name in list(self._order)[:-LIVE]:
            self._order[name] = None

    def _wake(self, name: str, config: Config) -> Detector:
        state = self.states.get(name)
        if state is None:
            if len(self._order) >= self._limit:
                self._forget(next(iter(self._order)))
            return Detector(config, first=self.counts.next_index)
        try:
            return restore(state, config)
        except Unreadable:
            self._count(cold_starts=self.counts.cold_starts + 1)
            return Detector(config, first=state.seen)

    def _forget(self, name: str) -> None:
        detector = self._order.pop(name)
        seen = detector.memory.seen if detector else self.states[name].seen
        self.states.pop(name, None)
        self._used.pop(name, None)
        self._count(forgotten=self.counts.forgotten + 1, next_index=max(self.counts.next_index, seen))

    def _count(self, **counts: int) -> None:
        self.counts = replace(self.counts, **counts)
