"""BIP-39 seed phrases in text: 12 to 24 words of the English list whose checksum holds."""

import hashlib
import re
from functools import cache

from mnemonic import Mnemonic

_LENGTHS = (24, 21, 18, 15, 12)
_WORD = re.compile(r"[A-Za-z]+")
_BETWEEN = re.compile(r"[\s\d,;.:()\[\]\"'\\/|-]{1,8}")
_MOST = 500
"""Words of one stretch after which no phrase is looked for: such a stretch is a word list."""
_SHORTEST = 12 * 3 + 11


def seed_phrases(text: str) -> list[tuple[int, int]]:
    """Start and end of each phrase, in order. Words may be numbered, quoted or listed; case does not matter."""
    if len(text) < _SHORTEST:
        return []
    found: list[tuple[int, int]] = []
    for run in _runs(text):
        place = 0
        while place <= min(len(run) - min(_LENGTHS), _MOST):
            length = next((n for n in _LENGTHS if place + n <= len(run) and _holds(text, run[place : place + n])), 0)
            if length:
                found.append((run[place][0], run[place + length - 1][1]))
            place += length or 1
    return found


def is_seed_phrase(words: list[str]) -> bool:
    """Whether these are all the words of one phrase (BIP-39: the last bits are the hash of the first)."""
    places = [_words().get(word.strip().lower()) for word in words]
    if len(places) not in _LENGTHS:
        return False
    bits = 0
    for place in places:
        if place is None:
            return False
        bits = bits << 11 | place
    check = len(places) // 3
    entropy = (bits >> check).to_bytes(len(places) * 4 // 3, "big")
    return hashlib.sha256(entropy).digest()[0] >> (8 - check) == bits & ((1 << check) - 1)


@cache
def _words() -> dict[str, int]:
    return {word: place for place, word in enumerate(Mnemonic("english").wordlist)}


def _runs(text: str) -> list[list[tuple[int, int]]]:
    """Stretches of at least 12 words of the list with nothing but punctuation between them, as spans."""
    known = _words()
    runs: list[list[tuple[int, int]]] = [[]]
    for match in _WORD.finditer(text):
        start, end = match.span()
        if not 3 <= end - start <= 8 or match.group().lower() not in known:
            if runs[-1]:
                runs.append([])
            continue
        if runs[-1] and not _BETWEEN.fullmatch(text, runs[-1][-1][1], start):
            runs.append([])
        runs[-1].append((start, end))
    return [run for run in runs if len(run) >= min(_LENGTHS)]


def _holds(text: str, spans: list[tuple[int, int]]) -> bool:
    return is_seed_phrase([text[start:end] for start, end in spans])
