"""Prepare: a call as it is sent, or the reason why it cannot be."""

import math
from typing import Any

from msgspec.structs import replace

from fluvial.plain import plain
from fluvial.processors.redact import KEYLESS, Redactor
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import MAX_RECORD_BYTES

RECORD_BYTES = MAX_RECORD_BYTES - 16_384
"""The longest record taken; the rest is room for Kafka's own fields."""


class Refused(ValueError):
    """The call cannot be published; the message says what is wrong with it."""


def prepare(call: ToolCall, redactor: Redactor = KEYLESS) -> tuple[ToolCall, bytes, int]:
    """The call without secrets, with its id (of what is left), checked against every constraint; its bytes; how many
    metrics were left out.

    Metrics and rewards that are no finite numbers are left out; values that JSON has no form for become text.
    Raises Refused.
    """
    try:
        finite = {name: number for name, value in call.metrics.items() if (number := _finite(value)) is not None}
        reward = None if call.reward is None else _finite(call.reward)
        left_out = len(call.metrics) - len(finite) + (reward is None and call.reward is not None)
        call = decode(_encoded(replace(call, metrics=finite, reward=reward)), ToolCall)
        call, redactions = redactor.call(call)
        call = replace(call, event_id=event_id_of(call))
        value = encode(call)
        if redactions:
            decode(value, ToolCall)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise Refused(str(error)) from error
    if len(value) > RECORD_BYTES:
        raise Refused(f"too long: {len(value):,} bytes, at most {RECORD_BYTES:,} are taken")
    return call, value, left_out


def _encoded(call: ToolCall) -> bytes:
    try:
        return encode(call)
    except TypeError:
        return encode(replace(call, args=plain(call.args), result=plain(call.result)))


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
