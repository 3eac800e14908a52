"""Moments: the ways logs write a time, as microseconds UTC."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = (
    (Decimal(10) ** 11, Decimal(1_000_000)),  # seconds, to the year 5138
    (Decimal(10) ** 14, Decimal(1_000)),  # milliseconds
    (Decimal(10) ** 17, Decimal(1)),  # microseconds
)
_NANOSECONDS = Decimal("0.001")
_FAR = Decimal(10) ** 21
"""More nanoseconds than there are to the year 9999."""


def micros(value: Any) -> int:
    """Microseconds since 1970 UTC; finer parts are cut.

    Text is ISO 8601, with `Z`, an offset, or neither (then UTC). A number, also as text, is seconds, milliseconds,
    microseconds or nanoseconds since 1970 by its size: below 1e11, 1e14, 1e17, or more. Years 1 to 9999.
    Raises ValueError.

    >>> micros("1970-01-01T01:00:00.000001999+01:00"), micros(1.5), micros(1_692_307_800_000)
    (1, 1500000, 1692307800000000)
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            return _of_number(Decimal(text))
        except InvalidOperation:
            return _of_text(text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_number(Decimal(str(value)))
    raise ValueError(f"{value!r} is no time (ISO 8601, or a number since 1970)")


def _of_number(number: Decimal) -> int:
    if not number.is_finite():
        raise ValueError(f"{number} is no time (ISO 8601, or a number since 1970)")
    if abs(number) >= _FAR:
        raise ValueError(f"{number:.3g} is no time of the years 1 to 9999")
    factor = next((factor for limit, factor in _UNITS if abs(number) < limit), _NANOSECONDS)
    return int((number * factor).to_integral_value(rounding="ROUND_FLOOR"))


def _of_text(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text[:60]!r} is no time (ISO 8601, or a number since 1970)") from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
