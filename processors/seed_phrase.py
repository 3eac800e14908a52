"""BIP-39 seed phrases in text: 12 to 24 words of one of its lists whose checksum holds."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from mnemonic import Mnemonic

_LENGTHS = (24, 21, 18, 15, 12)
_SHORTEST = min(_LENGTHS)
_ENOUGH = "x" * _SHORTEST
_MOST = 500
"""Words of one stretch after which no phrase is looked for: such a stretch is a word list."""
_SHORTEST_TEXT = 12 * 3 + 11
_BETWEEN = r"[\s\d,;.:()\[\]{}\"'\\/|-]{1,12}+"
_ASCII = re.compile(rf"(?<![A-Za-z])[A-Za-z]{{3,9}}+(?:{_BETWEEN}[A-Za-z]{{3,9}}+(?![A-Za-z]))*+")
_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u3099\u309a])"
_ANY = re.compile(rf"{_LETTER}{{1,24}}+(?:{_BETWEEN}{_LETTER}{{1,24}}+)*+")
_SHAPES = bytes(32 if chr(byte) in " \t\r\n\x0b\x0c0123456789,;.:()[]{}\"'\\\\/|-" else 97 for byte in range(256))
_ASCII_LENGTHS = bytes(120 if 3 <= length <= 10 else 32 for length in range(256))
_ANY_LENGTHS = bytes(120 if 1 <= length <= 60 else 32 for length in range(256))
_WORD = re.compile(rf"{_LETTER}+")
_NEW_LINE = re.compile(r"\\[nrt]")

Span = tuple[int, int]


def may_hold_phrase(text: str) -> bool:
    """False where no 12 words of the right length stand in a row. Quick."""
    if len(text) < (_SHORTEST_TEXT if text.isascii() else 2 * _SHORTEST - 1):
        return False
    shapes = text.replace("\u3000", " ").encode("utf-8", "replace").translate(_SHAPES)
    words = shapes.split()
    if len(words) < _SHORTEST:
        return False
    try:
        lengths = bytes(map(len, words))
    except ValueError:  # one longer than 255
        lengths = bytes(min(len(word), 255) for word in words)
    return _ENOUGH.encode() in lengths.translate(_ASCII_LENGTHS if text.isascii() else _ANY_LENGTHS)


def seed_phrases(text: str) -> list[Span]:
    """Start and end of each phrase, in order. Words may be numbered, quoted or listed; case does not matter."""
    return [span for words, spans in _stretches(text) for span in _in_stretch(words, spans)]


def seed_words(text: str) -> list[str]:
    """The words of a phrase, however they were listed."""
    return [_plain(match.group()) for match in _WORD.finditer(_NEW_LINE.sub("  ", text))]


def _stretches(text: str) -> Iterator[tuple[list[str], list[Span]]]:
    """At least 12 words of the lists, in any language, with nothing but punctuation between them; and their places."""
    if not may_hold_phrase(text):
        return
    if "\\" in text:
        text = _NEW_LINE.sub("  ", text)
    ascii_only = text.isascii()
    for match in (_ASCII if ascii_only else _ANY).finditer(text):
        start, end = match.span()
        if end - start < (_SHORTEST_TEXT if ascii_only else 2 * _SHORTEST - 1):
            continue
        spans = [word.span() for word in _WORD.finditer(text, start, end)]
        if len(spans) < _SHORTEST:
            continue
        words = [text[a:b].lower() if ascii_only else _plain(text[a:b]) for a, b in spans]
        known = "".join("x" if word in _union() else " " for word in words)
        if _ENOUGH in known:
            yield words, spans


def is_seed_phrase(words: Sequence[str]) -> bool:
    """Whether these are all the words of one phrase (BIP-39: the last bits are the hash of the first)."""
    if len(words) not in _LENGTHS:
        return False
    plain = [_plain(word) for word in words]
    return any(_checks([places.get(word) for word in plain]) for places in _lists())


def _in_stretch(words: list[str], spans: list[Span]) -> Iterator[Span]:
    for places in _lists():
        known = [places.get(word) for word in words]
        place = 0
        while place <= min(len(known) - _SHORTEST, _MOST):
            if None in known[place : place + _SHORTEST]:
                place += 1
                continue
            length = next((n for n in _LENGTHS if place + n <= len(known) and _checks(known[place : place + n])), 0)
            if length:
                yield spans[place][0], spans[place + length - 1][1]
            place += length or 1


def _checks(places: Sequence[int | None]) -> bool:
    bits = 0
    for place in places:
        if place is None:
            return False
        bits = bits << 11 | place
    check = len(places) // 3
    entropy = (bits >> check).to_bytes(len(places) * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - check) == bits & ((1 << check) - 1)


def _plain(word: str) -> str:
    return unicodedata.normalize("NFKD", word.strip().lower())


@cache
def _lists() -> tuple[dict[str, int], ...]:
    """Word -> number, of every language; English, the usual one, first."""
    languages = sorted(Mnemonic.list_languages(), key=lambda name: (name != "english", name))
    return tuple({_plain(word): n for n, word in enumerate(Mnemonic(name).wordlist)} for name in languages)


@cache
def _union() -> frozenset[str]:
    return frozenset(word for places in _lists() for word in places)
