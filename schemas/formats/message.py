"""What goes into the readers of the formats, and what comes out."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fluvial.schemas.call_part import CallParts
from fluvial.schemas.codec import Undecodable
from fluvial.schemas.tool_call import ToolCall

Map = Callable[[Any], ToolCall]
"""From a decoded JSON row of any shape to a call; raises ValueError with the reason."""


class Message(NamedTuple):
    """A Kafka record: value, headers, key, and its time in microseconds UTC."""

    value: bytes | None
    headers: Mapping[str, bytes]
    key: str
    timestamp: int


class Reading(NamedTuple):
    """What a message holds."""

    calls: tuple[ToolCall, ...] = ()
    """Whole calls."""
    parts: tuple[CallParts, ...] = ()
    """Parts of calls, one CallParts a key."""
    ignored: int = 0
    """Well-formed things that say nothing of a tool call: other events, records, methods, tombstones."""
    problems: tuple[str, ...] = ()
    """What of a batch could not be used, a sentence each."""


class Origin(NamedTuple):
    """What an envelope says of the call in it, for where the call itself is silent."""

    source: str | None = None
    run_id: str | None = None
    at: int | None = None
    """Microseconds UTC."""
    event_id: str = ""


NO_ORIGIN = Origin()


class Unrecognized(Undecodable):
    """The message has the shape of no format."""


class Unusable(Undecodable):
    """One thing of a batch cannot be used; the message says why, in a sentence."""


def text_header(message: Message, name: str) -> str:
    """The header as text, whatever the case of its name; empty where there is none."""
    return next((said(value) for key, value in message.headers.items() if key.lower() == name), "")


def said(value: bytes | None) -> str:
    """The bytes as text; what is no UTF-8 is replaced."""
    return (value or b"").decode(errors="replace").strip()
