"""Which keys of a state are forgotten."""

from fluvial.processors.idle import idle


def test_keys_idle_for_too_long_and_the_longest_idle_of_too_many_are_forgotten() -> None:
    touched = {"old": 1, "b": 50, "a": 50, "young": 99}
    assert idle(touched, now=100, longest=60, most=9) == ["old"]
    assert idle(touched, now=100, longest=99, most=2) == ["old", "a"]
    assert idle(touched, now=100, longest=99, most=4) == []


def test_what_was_used_before_the_first_tick_goes_only_as_one_too_many() -> None:
    touched = {"before": 0, "young": 99}
    assert idle(touched, now=10**15, longest=10**15, most=2) == []
    assert idle(touched, now=100, longest=60, most=1) == ["before"]
