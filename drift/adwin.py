"""ADWIN as river has it (Bifet and Gavalda, 2007), with a state that can be kept.

This is the Rust core under `river.drift.ADWIN`, which does the same one call further up; a test holds the two together.
Importing `river.drift` brings scipy.stats and data sets with it: 4 s and 100 MB that every worker would pay.
"""

from river import __version__ as RIVER
from river._river_rust.drift import AdaptiveWindowing

__all__ = ["RIVER", "Adwin", "Unreadable"]


class Unreadable(ValueError):
    """The bytes are no state of an ADWIN of this river."""


class Adwin:
    """One adaptive window. `delta`: bound on the probability of a false alarm at a test; one test every `clock` values.

    Its bound holds for independent values in [0, 1].

    >>> adwin = Adwin(delta=0.002, clock=32)
    >>> [index for index in range(2000) if adwin.update(float(index >= 1000))]
    [1023]
    """

    __slots__ = ("_clock", "_core", "_delta")

    def __init__(self, delta: float, clock: int) -> None:
        self._delta = delta
        self._clock = clock
        self._core = AdaptiveWindowing(delta=delta, clock=clock)

    def update(self, value: float) -> bool:
        """Take a value; True when the mean has changed, and the window begins anew."""
        if not self._core.update(value):
            return False
        self._core = AdaptiveWindowing(delta=self._delta, clock=self._clock)
        return True

    def __bytes__(self) -> bytes:
        return bytes(self._core.__getstate__())

    def load(self, state: bytes) -> None:
        """Go on from `bytes(adwin)` of an ADWIN with the same settings. Raises Unreadable."""
        try:
            self._core.__setstate__(state)
        except BaseException as error:
            # river's Rust panics on what it cannot read, and a PanicException is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise Unreadable(f"no state of an ADWIN of river {RIVER}: {error}") from error
