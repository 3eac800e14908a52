"""Bytes <-> record. JSON on the wire; unknown fields are ignored, so that older readers read newer records."""

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_LONGEST = 400
"""Characters of what is said of a problem."""


class Undecodable(ValueError):
    """The bytes are not such a record; the message says where and why."""


def in_words(problem: str) -> str:
    """What msgspec says of a constraint, for somebody who does not know its notation."""
    if empty := re.fullmatch(r"Expected `str` of length >= 1 - at `\$\.?(.+)`", problem):
        return f"{empty[1]} is empty"
    if problem.startswith("Expected `int") and problem.endswith("_at`"):
        return f"{problem}: times are microseconds since 1970 UTC (text in ISO form comes in through a mapping)"
    # msgspec repeats the value, however long it is.
    return problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST // 2]} ... {problem[-_LONGEST // 2 :]}"


def _explained(error: Exception, data: bytes) -> str:
    """msgspec calls a half surrogate pair at the end of a string truncated."""
    if not data.strip():
        return "the record is empty"
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
        raise Undecodable(f"not a valid {kind.__name__}: {in_words(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"not JSON: {_explained(error, data)}") from error
    except RecursionError as error:
        raise Undecodable("nested too deeply (about 1,000 levels are read)") from error
