"""The owner's arithmetic of confidence (section 6), shared by the fold and by distil's claims under test."""

from typing import Final

START: Final = 0.6
UP: Final = 0.1
DOWN: Final = 0.15
ACTIVE_FROM: Final = 0.75
ACTIVE_UNTIL: Final = 0.5
FLOOR: Final = 0.3


def upvoted(confidence: float, weight: float = 1.0) -> float:
    """The confidence after an UPVOTE, within [0, 1]."""
    return _within(confidence + UP * weight)


def downvoted(confidence: float, weight: float = 1.0) -> float:
    """The confidence after a DOWNVOTE, within [0, 1]."""
    return _within(confidence - DOWN * weight)


def _within(confidence: float) -> float:
    """Clamped to [0, 1]; rounded, so that .6 + .1 + .1 + .1 - .15 is .75 and not a little less."""
    return min(1.0, max(0.0, round(confidence, 9)))
