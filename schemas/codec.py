"""Bytes <-> record. JSON on the wire; unknown fields are ignored, so that older readers read newer records."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class Undecodable(ValueError):
    """The bytes are not such a record; the message says where and why."""


def _explained(error: Exception, data: bytes) -> str:
    """msgspec calls a half surrogate pair at the end of a string truncated."""
    if "truncated" in str(error) and data.rstrip().endswith((b"}", b"]")):
        return "half a surrogate pair (\\ud800 to \\udfff) in a string, or an end that is missing"
    return str(error)


def encode(record: Any) -> bytes:
    """The record as UTF-8 JSON, fields in the order of their declaration."""
    return _encoder.encode(record)


def decode(data: bytes, kind: type[T]) -> T:
    """The record in `data`, checked against every constraint of its type.

    Raises Undecodable with the place and the constraint that was not met.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise Undecodable(f"not a valid {kind.__name__}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"not JSON: {_explained(error, data)}") from error
    except RecursionError as error:
        raise Undecodable("nested too deeply (about 1,000 levels are read)") from error
