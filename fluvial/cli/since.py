"""A point in time as people write it on the command line."""

import re

from fluvial.cli.output import WRONG_USE, fail
from fluvial.moments import micros

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def since_micros(text: str, now: int) -> int:
    """Microseconds UTC of a moment as fluvial/moments.py reads it, or of so long before `now` (microseconds UTC):
    `90s`, `15m`, `2h`, `7d`, `1w`. Anything else ends the command (exit 2).
    """
    if span := re.fullmatch(r"(\d{1,9})\s*(s|m|min|h|d|w)", text.strip()):
        return now - int(span[1]) * _SECONDS[span[2]] * 1_000_000
    try:
        return micros(text)
    except ValueError:
        fail(f"--since {text!r} is no time: write 2023-08-17, 2023-08-17T21:30 or a span: 15m, 2h, 7d.", WRONG_USE)
