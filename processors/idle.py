"""What to forget of a state that grows with its keys, chosen by the tick clock alone: a replay chooses alike."""

from collections.abc import Mapping


def idle(touched: Mapping[str, int], now: int, longest: int, most: int) -> list[str]:
    """Keys to forget, the longest idle first: those beyond `most` keys, and those idle for longer than `longest`.

    `touched`: tick time of the last use, microseconds like `now` and `longest`. A key used before the first tick (0) is
    of unknown age: it goes only as one too many.
    """
    by_age = sorted(touched, key=lambda key: (touched[key], key))
    surplus = len(by_age) - most
    return [key for place, key in enumerate(by_age) if place < surplus or 0 < touched[key] < now - longest]
