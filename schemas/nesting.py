"""How deeply a JSON value is nested: what reads JSON by recursion breaks at about 1,000 levels."""

from typing import Any

DEEPEST = 200
"""Levels of nesting of arguments and result that are kept."""


def is_deeper(value: Any, levels: int = DEEPEST) -> bool:
    """Whether objects and lists stand in each other in more than so many levels."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not layer:
            return False
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict) or isinstance(inner, list)  # noqa: SIM101 - faster, and there may be millions
        ]
    return bool(layer)
