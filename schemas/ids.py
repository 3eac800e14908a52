"""Ids are pure functions of the input: the same call is the same event wherever it is computed."""

import hashlib
from typing import Any

import msgspec


def stable_id(*parts: Any) -> str:
    """BLAKE2b-128 of the parts' canonical JSON (sorted keys), as 32 hexadecimal digits.

    >>> stable_id("a", 1, {"y": 2, "x": None})
    'a51fcfd4632200b779a2d2854e467f4d'
    """
    return hashlib.blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=16).hexdigest()
