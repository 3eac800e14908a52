"""The detector of one metric: ADWIN proposes a change, the history of values confirms it.

ADWIN's bound is for independent values; minutes of a market are not. So an alarm of ADWIN is a candidate only. It
becomes an Alarm as soon as the best cut of the history shows a large enough effect that is significant for as many
independent values as the metric's autocorrelation leaves, and is dropped if it does not within `patience` values.
After an Alarm the level after it is the new level: reference, window and history begin anew with it.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import pvariance
from typing import Literal

from msgspec import Struct

from fluvial.drift.adwin import Adwin
from fluvial.drift.cut import Cut, Gain, bernoulli_gain, best_cut, normal_gain
from fluvial.drift.history import History, Stretch, coordinate_of, count, mean_of, median_of
from fluvial.drift.transform import Reference, dependence_of, freeze
from fluvial.schemas.drift_event import ChangeTime, Direction, Level
from fluvial.schemas.ids import stable_id

VERSION = 1
"""Goes up when the same values would give other alarms."""
ABSURD = 1e78
"""Nothing on a chain is larger than a uint256 (1.2e77): a value beyond is a fault of who measured."""

Kind = Literal["value", "rate", "plain"]


class Config(Struct, frozen=True, kw_only=True):
    """How to watch a metric. Counts are in values of the metric.

    `kind`: a `value` goes through the transform; a `rate` is 0 or 1 (Bernoulli) and does not; `plain` is river's ADWIN
    on the values as they are, every one of its alarms an Alarm (for comparison).
    """

    kind: Kind = "value"
    delta: float = 0.02
    """ADWIN's: the probability of a false candidate at one test of independent values, bounded."""
    clock: int = 8
    """ADWIN tests, and a candidate is looked at again, every so many values."""
    warmup: int = 256
    """The first reference is frozen from so many values."""
    rewarm: int = 64
    """And after an alarm from so many."""
    patience: int = 512
    minimum_effect: float = 0.6
    """In sigma; of a rate Cohen's h (2 asin sqrt p), of which 0.5 is called medium and 0.8 large."""
    minimum_z: float = 4.5
    aftershock: float = 1 / 3
    """After a change of size s, a change smaller than s times this is no news ..."""
    aftershock_half_life: float = 1_024.0
    """... which fades by half in so many values."""

    def version(self) -> str:
        """Changes whenever the same values might give other alarms."""
        return stable_id(VERSION, self)[:12]


VALUE = Config()
RATE = Config(kind="rate", minimum_effect=0.3)


class Alarm(Struct, frozen=True, kw_only=True):
    """A change. `index` is the value that gave it away, `change_index` the first value of the new level."""

    index: int
    change_index: int
    direction: Direction
    before: Level
    after: Level
    effect: float
    """Always positive; in sigma of the normal scores, of a rate Cohen's h."""
    change_time: ChangeTime
    detected_at: int


class Memory(Struct, array_like=True):
    """Everything a detector knows but ADWIN's window."""

    history: History
    seen: int = 0
    """Values taken."""
    refused: int = 0
    """Values that were none: not a number, not finite, absurd, outside [0, 1] for a rate."""
    needed: int = 0
    """Values until the reference is frozen."""
    reference: Reference | None = None
    patience: int = 0
    """Values left to confirm a candidate."""
    shock: float = 0.0
    """Size of the last change, faded, and when it was."""
    shock_at: int = 0


class Detector:
    """Finds the changes of one metric: `push` its values in order.

    >>> import random
    >>> dice = random.Random(1)
    >>> detector = Detector(VALUE)
    >>> alarms = [detector.push(dice.gauss(50 if i < 1000 else 53, 2), at=i * 1_000_000) for i in range(2000)]
    >>> [(alarm.index, alarm.change_index, alarm.direction) for alarm in alarms if alarm]
    [(1039, 999, 'up')]
    """

    def __init__(self, config: Config, first: int = 0) -> None:
        """`first` is the index of the first value that will come."""
        self.config = config
        self.memory = Memory(history=History(first=first), seen=first, needed=config.warmup)
        self.adwin = Adwin(config.delta, config.clock)

    def push(self, value: object, at: int) -> Alarm | None:
        """Take a value with its event time in microseconds UTC; an alarm if it gives a change away."""
        number = self._read(value)
        memory = self.memory
        if number is None:
            memory.refused += 1
            return None
        memory.seen += 1
        memory.history.append(number, at // 1_000)
        if self.config.kind != "value":
            fired = self.adwin.update(number)
        elif memory.reference is not None:
            fired = self.adwin.update(memory.reference.unit(number))
        elif len(memory.history.values) < memory.needed:
            return None
        else:
            fired = self._freeze()
        memory.history.fold(self._coordinate)
        if fired:
            memory.patience = self.config.patience
        elif not memory.patience:
            return None
        else:
            memory.patience -= 1
            if memory.seen % self.config.clock:
                return None
        return self._judge(at)

    def _read(self, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, float | int) or not -ABSURD <= value <= ABSURD:
            return None
        if self.config.kind == "rate" and not 0 <= value <= 1:
            return None
        return float(value) + 0.0  # -0.0 is 0.0

    def _coordinate(self, value: float) -> float:
        reference = self.memory.reference
        return value if reference is None else reference.coordinate(value)

    def _freeze(self) -> bool:
        """The latest values become the reference, and ADWIN's window."""
        memory = self.memory
        reference = memory.reference = freeze(memory.history.values)
        memory.history.see(reference.coordinate)
        return self._replay(map(reference.unit, memory.history.values))

    def _replay(self, values: Iterable[float]) -> bool:
        """A new window that has seen these values."""
        self.adwin = Adwin(self.config.delta, self.config.clock)
        fired = [self.adwin.update(value) for value in values]
        return True in fired

    def _judge(self, at: int) -> Alarm | None:
        memory = self.memory
        stretches = memory.history.stretches(self._coordinate)
        gain = self._gain()
        cut = best_cut(stretches, gain)
        effect = self._effect(stretches[: cut.at], stretches[cut.at :]) if cut else None
        if cut is None or effect is None:
            return None
        before = stretches[: cut.at]
        up = coordinate_of(stretches[cut.at :]) > coordinate_of(before)
        begin, end, hi = cut.at, len(stretches), cut.hi
        # The level may have moved on since. Further away: the last level counts, and the change took until then.
        # Back: that is another change, which will be found next.
        while self.config.kind != "plain" and (later := best_cut(stretches, gain, begin)):
            if self._effect(stretches[begin : later.at], stretches[later.at :]) is None:
                break
            further = self._effect(before, stretches[later.at :])
            if further is None or up != (coordinate_of(stretches[later.at :]) > coordinate_of(before)):
                end = later.at
                break
            begin, hi, effect = later.at, later.hi, further
        after = stretches[begin:end]
        alarm = Alarm(
            index=memory.seen - 1,
            change_index=memory.history.first + count(before),
            direction="up" if up else "down",
            before=_level(before),
            after=_level(after),
            effect=effect,
            change_time=_change_time(stretches, cut, hi),
            detected_at=at,
        )
        self._begin_anew(begin, _size(before, after))
        return alarm

    def _gain(self) -> Gain:
        if self.config.kind == "rate":
            return bernoulli_gain
        reference = self.memory.reference
        if reference is None:
            return normal_gain(pvariance(self.memory.history.values) or 1.0)
        return normal_gain(reference.sd**2 * reference.dependence)

    def _effect(self, before: Sequence[Stretch], after: Sequence[Stretch]) -> float | None:
        """How far the level moved, if that is far enough and significant; else None."""
        config, reference = self.config, self.memory.reference
        m0, m1 = coordinate_of(before), coordinate_of(after)
        if config.kind == "rate":
            effect = abs(_arcsine(m1) - _arcsine(m0))
            dependence = dependence_of(_deviations(before, m0) + _deviations(after, m1))
        elif reference is not None:
            effect = abs(m1 - m0) / reference.sd
            if shock := config.aftershock * self._shock():
                effect = min(effect, _size(before, after) / shock)
            dependence = reference.dependence
        else:
            return abs(m1 - m0)
        n0, n1 = max(1.0, count(before) / dependence), max(1.0, count(after) / dependence)
        z = effect * math.sqrt(n0 * n1 / (n0 + n1))
        return effect if effect >= config.minimum_effect and z >= config.minimum_z else None

    def _shock(self) -> float:
        """Size of the last change, as far as it still weighs."""
        memory = self.memory
        age = (memory.seen - memory.shock_at) / self.config.aftershock_half_life
        return memory.shock * math.exp2(-age)

    def _begin_anew(self, begin: int, size: float) -> None:
        memory, config = self.memory, self.config
        memory.shock, memory.shock_at = max(size, self._shock()), memory.seen
        memory.history.begin_at(begin)
        memory.patience = 0
        fired = False
        if config.kind == "rate":
            fired = self._replay(memory.history.values)
        elif config.kind == "value":
            memory.reference, memory.needed = None, config.rewarm
            fired = len(memory.history.values) >= config.rewarm and self._freeze()
        if fired:
            memory.patience = config.patience


def _level(stretches: Sequence[Stretch]) -> Level:
    return Level(mean=mean_of(stretches), median=median_of(stretches), n=count(stretches))


def _arcsine(rate: float) -> float:
    return 2 * math.asin(math.sqrt(min(max(rate, 0.0), 1.0)))


def _deviations(stretches: Sequence[Stretch], rate: float) -> list[float]:
    return [s.mean - rate for s in stretches if s.n == 1]


def _size(before: Sequence[Stretch], after: Sequence[Stretch]) -> float:
    """How far the level moved, in the metric's unit: the median, or where that is tied, the mean."""
    return abs(median_of(after) - median_of(before)) or abs(mean_of(after) - mean_of(before))


def _change_time(stretches: Sequence[Stretch], cut: Cut, hi: int) -> ChangeTime:
    """Times in microseconds; values that came out of order of time do not turn the bounds around."""
    lo, est, hi = (1_000 * stretches[number].at for number in (cut.lo, cut.at, hi))
    return ChangeTime(est=est, lo=min(lo, est, hi), hi=max(lo, est, hi))
