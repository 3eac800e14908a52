"""CloudEvents 1.0 on Kafka: the envelope. What is in it is read by its own shape (read.py).

Binary: the attributes are headers `ce_NAME`, the value is the data. Structured: the value is JSON with the attributes
and `data` or `data_base64`. The envelope says what its data do not: `source`, `partitionkey` (else `subject`, else the
Kafka key) as run, `time` as start, and the identity:

- the span id of the extension `traceparent`;
- the event's id where that is 16 lower-case hexadecimal digits (a span id);
- else BLAKE2b-128 of ("cloudevent", source, id).

Data that bring an event_id of their own keep it.
"""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Message, Origin, said, text_header
from fluvial.schemas.formats.otlp_values import span_of_traceparent
from fluvial.schemas.ids import stable_id

_REQUIRED = ("id", "source", "specversion", "type")
_PREFIX = "ce_"
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_TOOL_CALL = re.compile(r"(?i)tool[._-]?call")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = 256


class Event(NamedTuple):
    """An event: its attributes in lower case, and its data (None: a tombstone or an event without)."""

    attributes: Mapping[str, str]
    data: bytes | None

    @property
    def says_tool_call(self) -> bool:
        """Whether its type names a tool call."""
        return _TOOL_CALL.search(self.attributes["type"]) is not None

    def origin(self, key: str) -> Origin:
        """What the envelope says of its data. `key` is that of the Kafka record."""
        get = self.attributes.get
        return Origin(
            source=cut(get("source", ""), _IDENTIFIER) or None,
            run_id=cut(get("partitionkey") or get("subject") or key, _IDENTIFIER) or None,
            at=_micros(get("time", "")),
            event_id=self._event_id(),
        )

    def _event_id(self) -> str:
        span = span_of_traceparent(self.attributes.get("traceparent"))
        if span is not None:
            return span.span_id
        event_id = self.attributes["id"]
        if _SPAN_ID.fullmatch(event_id):
            return event_id
        return stable_id("cloudevent", self.attributes["source"], event_id)


def event_of(message: Message, fields: Mapping[str, msgspec.Raw] | None) -> Event | None:
    """The event that the message is; None if it is none. `fields`: those of its value, where that is a JSON object.

    Raises Undecodable where it says that it is one and is not.
    """
    if text_header(message, "content-type").lower().startswith("application/cloudevents"):
        if fields is None:
            raise Undecodable("a structured CloudEvent whose value is no JSON object")
        return _checked(_structured(fields))
    headers = {name.lower(): value for name, value in message.headers.items()}
    if "ce_specversion" in headers:
        attributes = {name[3:]: said(value) for name, value in headers.items() if name.startswith(_PREFIX)}
        return _checked(Event(attributes, message.value))
    if fields is not None and fields.keys() >= {*_REQUIRED}:
        return _checked(_structured(fields))
    return None


def _checked(event: Event) -> Event:
    missing = [name for name in _REQUIRED if not event.attributes.get(name)]
    if missing:
        raise Undecodable(f"a CloudEvent without {' and '.join(missing)}")
    version = event.attributes["specversion"]
    if not version.startswith("1."):
        raise Undecodable(f"a CloudEvent of specversion {cut(version, 20)}: 1.0 is read")
    return event


def _structured(fields: Mapping[str, msgspec.Raw]) -> Event:
    attributes = {name.lower(): _attribute(raw) for name, raw in fields.items() if name not in ("data", "data_base64")}
    if "data_base64" in fields:
        text = decode(bytes(fields["data_base64"]), str)
        try:
            return Event(attributes, base64.b64decode(text, validate=True))
        except ValueError as error:  # binascii.Error is one, text beyond ASCII gives another
            raise Undecodable(f"a CloudEvent whose data_base64 is no base64: {error}") from error
    data = bytes(fields["data"]) if "data" in fields else None
    if data is None or data == b"null":
        return Event(attributes, None)
    if data.startswith(b'"'):
        # Text: of another content type, or JSON that was encoded once more.
        data = decode(data, str).encode()
    return Event(attributes, data)


def _attribute(raw: msgspec.Raw) -> str:
    """Text as it is, numbers and booleans as their JSON; empty where it is anything else."""
    data = bytes(raw)
    if data[:1] == b'"':
        return decode(data, str)
    return "" if data[:1] in b"{[n" else data.decode(errors="replace")


def _micros(time: str) -> int | None:
    """RFC 3339 to microseconds UTC; None where it is no time of the years 1 to 9999."""
    try:
        moment = datetime.fromisoformat(time)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None
