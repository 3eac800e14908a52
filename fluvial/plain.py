"""Plain: any Python value as JSON can hold it."""

from collections.abc import Callable
from typing import Any

import msgspec

HEAD_CHARACTERS = 65_536


def plain(value: Any) -> Any:
    """The value as JSON can hold it, a copy; what JSON has no form for becomes its `repr`."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_described))
    except Exception:  # noqa: BLE001 - foreign objects may raise anything; recording must not break the agent's call
        return text(value, repr)


def _described(value: Any) -> Any:
    """Numbers and arrays of numpy as numbers and lists, everything else as text."""
    return value.tolist() if hasattr(value, "tolist") else text(value, repr)


def text(value: Any, form: Callable[[Any], str]) -> str:
    """`form(value)` (str or repr), at most 65,536 characters, fit for UTF-8, whatever the value does."""
    try:
        words: str = form(value)
    except Exception as error:  # noqa: BLE001 - a foreign __repr__ or __str__, as above
        words = f"<{type(value).__name__} without text: {type(error).__name__}>"
    return words[:HEAD_CHARACTERS].encode("utf-8", "replace").decode()
