"""Secrets that are written otherwise: once in base64, in escapes of JSON, in percent signs."""

import binascii
import re
from collections.abc import Iterator

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}+={0,2}")
_WRAPPED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{40,}+(?:(?:  |\r?\n)[A-Za-z0-9+/_-]{4,}+)++={0,2}")
_MIXED = re.compile(r"(?=[^A-Z]*[A-Z])[^a-z]*[a-z]")
_SEGMENT = re.compile(r"[^/]{24,}")
_ESCAPE = re.compile(r"\\{1,8}+u([0-9A-Fa-f]{4})|\\{1,8}+(/)|((?:%[0-9A-Fa-f]{2})+)")
_URLSAFE = str.maketrans("-_", "+/")
_PRINTABLE = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f]+")
_LONGEST = 1 << 20


def base64_texts(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Start and end of each stretch of text[start:end] that is base64 (plain or URL-safe) of a text, and that text."""
    for match in _BASE64.finditer(text, start, end):
        yield from _decoded(match.group(), match.start())


def wrapped_base64_texts(text: str) -> Iterator[tuple[int, int, str]]:
    """The same for base64 that is broken into lines."""
    if "\n" in text or "  " in text:
        for match in _WRAPPED.finditer(text):
            yield from _decoded(match.group(), match.start())


def _decoded(token: str, start: int) -> Iterator[tuple[int, int, str]]:
    if not _MIXED.match(token):
        return
    whole = decoded_base64(token)
    if whole is not None:
        yield start, start + len(token), whole
    elif "/" in token:  # a segment of a path
        for part in _SEGMENT.finditer(token):
            inner = decoded_base64(part.group())
            if inner is not None:
                yield start + part.start(), start + part.end(), inner


def decoded_base64(token: str) -> str | None:
    """The text that is encoded, or None if these are no text's bytes."""
    token = "".join(token.split()).rstrip("=")[:_LONGEST].translate(_URLSAFE)
    token = token[: len(token) - (len(token) % 4 == 1)]
    try:
        text = binascii.a2b_base64(token + "=" * (-len(token) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if _PRINTABLE.fullmatch(text) else None


def may_be_escaped(text: str) -> bool:
    """Whether there is anything for `unescaped`. Quick."""
    return ("%" in text or "\\" in text) and _ESCAPE.search(text) is not None


def unescaped(text: str) -> tuple[str, list[int]] | None:
    r"""The text with `\u003d`, `\/` and `%3D` as the characters they stand for, and where each stood (end included).

    None where there is nothing of the kind.
    """
    if not may_be_escaped(text):
        return None
    parts: list[str] = []
    places: list[int] = []
    reached = 0
    for match in _ESCAPE.finditer(text):
        start = match.start()
        parts.append(text[reached:start])
        places += range(reached, start)
        if match[3]:
            shown = bytes.fromhex(match[3].replace("%", "")).decode("utf-8", "surrogateescape")
            for character in shown:
                places.append(start)
                start += 3 * len(character.encode("utf-8", "surrogateescape"))
        else:
            shown = "/" if match[2] else chr(int(match[1], 16))
            places.append(start)
        parts.append(shown)
        reached = match.end()
    return "".join(parts) + text[reached:], [*places, *range(reached, len(text) + 1)]
