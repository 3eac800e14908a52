"""The arithmetic of confidence."""

import pytest

from fluvial.processors.confidence import ACTIVE_FROM, FLOOR, START, downvoted, upvoted


def test_votes_add_and_take_without_errors_of_rounding() -> None:
    assert downvoted(upvoted(upvoted(upvoted(START)))) == ACTIVE_FROM
    assert downvoted(downvoted(START)) == FLOOR
    assert upvoted(START, 0.5) == 0.65


@pytest.mark.parametrize(("after", "bound"), [(upvoted(0.95), 1.0), (downvoted(0.1), 0.0)])
def test_confidence_stays_within_its_bounds(after: float, bound: float) -> None:
    assert after == bound
