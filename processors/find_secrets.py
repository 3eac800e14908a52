"""Every secret in a text, and where it stands."""

import re
import string
from collections.abc import Iterator
from typing import NamedTuple

from fluvial.processors.key_formats import is_key_pair, is_solana_key, is_wif
from fluvial.processors.named_secrets import may_name_secrets, named_secrets
from fluvial.processors.secret_encodings import base64_texts, may_be_escaped, unescaped, wrapped_base64_texts
from fluvial.processors.secret_names import MARK, SCHEME
from fluvial.processors.secret_patterns import EMAIL, LONG_RUN, NEEDLES, PATTERNS, PERSONAL_NEEDLES, PHONE, TOKENS
from fluvial.processors.seed_phrase import may_hold_phrase, seed_phrases

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BASE58_RUN = re.compile(r"(?<![A-Za-z0-9])(?:[1-9A-HJ-NP-Za-km-z]{51,52}|[1-9A-HJ-NP-Za-km-z]{86,88})(?![A-Za-z0-9])")
_BYTES = re.compile(r"\[\s{0,20}\d{1,3}(?:\s{0,20},\s{0,20}\d{1,3}){63}\s{0,20}\]")
_NEW_LINE = re.compile(r"\\[nrt]")
_LONG = 20


class Secret(NamedTuple):
    """Where it stands, what it is, and the secret itself."""

    start: int
    end: int
    kind: str
    text: str


def may_hold_secrets(text: str, personal: bool = False) -> bool:
    """False where `find_secrets` finds nothing in the text (which may be JSON) nor in any part of it. Quick."""
    text = _readable(text)
    lower = _lower(text)
    return (
        any(map(lower.__contains__, NEEDLES))
        or may_name_secrets(lower)
        or may_hold_phrase(text)
        or next(_in_runs(text, personal), None) is not None
        or _BYTES.search(text) is not None
        or may_be_escaped(text)
        or (personal and (any(map(lower.__contains__, PERSONAL_NEEDLES)) or PHONE.search(text) is not None))
    )


def find_secrets(text: str, personal: bool = False) -> list[Secret]:
    """Every secret, in order, none within another; what redaction left is none."""
    if len(text) < _LONG and text.isidentifier():
        return []
    found = list(_find(text, personal))
    return _apart(found) if found else found


def _find(text: str, personal: bool, decode: bool = True) -> Iterator[Secret]:
    """In the text and in what its escapes stand for; with `decode` also in what base64 hides."""
    read = _readable(text)
    yield from _in_runs(read, personal, decode)
    yield from _plain(read, personal)
    if view := unescaped(text):
        shown, places = view
        for one in _find(shown, personal, decode):
            yield Secret(places[one.start], places[one.end], one.kind, one.text)


def _plain(text: str, personal: bool) -> Iterator[Secret]:
    """What stands as it is in a text, but for single tokens."""
    lower = _lower(text)
    if any(map(lower.__contains__, NEEDLES)):
        for pattern in PATTERNS:
            if any(map(lower.__contains__, pattern.needles)):
                for match in pattern.regex.finditer(text):
                    yield Secret(*match.span("secret"), pattern.kind, match["secret"])
    if may_name_secrets(lower):
        for start, end, kind in named_secrets(text):
            yield Secret(start, end, kind, text[start:end])
    for start, end in seed_phrases(text):
        yield Secret(start, end, "mnemonic", text[start:end])
    if "," in text:
        for match in _BYTES.finditer(text):
            if is_key_bytes([int(digits) for digits in re.findall(r"\d+", match.group())]):
                yield Secret(*match.span(), "private_key", match.group())
    if personal:
        yield from (Secret(*match.span(), "email", match.group()) for match in EMAIL.finditer(text))
        yield from (Secret(*match.span(), "phone", match.group()) for match in PHONE.finditer(text))


def _in_runs(text: str, personal: bool, decode: bool = True) -> Iterator[Secret]:
    """Single tokens."""
    hidden: list[tuple[int, int, str]] = []
    for run in LONG_RUN.finditer(text):
        yield from _in_run(text, *run.span())
        if decode:
            hidden += base64_texts(text, *run.span())
    if decode:
        hidden += wrapped_base64_texts(text)
    for start, end, inner in hidden:
        for one in _find(inner, personal, decode=False):
            yield Secret(start, end, one.kind, one.text)
            break


def _in_run(text: str, start: int, end: int) -> Iterator[Secret]:
    for match in TOKENS.finditer(text, start, end):
        kind = match.lastgroup
        assert kind is not None
        yield Secret(*match.span(), "token" if kind == "bot" else kind, match.group())
    if end - start > 50:
        for match in _BASE58_RUN.finditer(text, start, end):
            if is_wif(match.group()) or is_solana_key(match.group()):
                yield Secret(*match.span(), "private_key", match.group())


def is_key_bytes(numbers: list[int]) -> bool:
    """Whether these 64 numbers are the bytes of an Ed25519 secret key, as Solana's tools write it."""
    return len(numbers) == 64 and max(numbers) < 256 and min(numbers) >= 0 and is_key_pair(bytes(numbers))


def _apart(found: list[Secret]) -> list[Secret]:
    """Those that overlap as one, of the kind of the first; not what is a mark already."""
    merged: list[Secret] = []
    for one in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if not SCHEME.sub("", one.text).strip("\0"):
            continue  # a mark
        if merged and one.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, one.end))
        else:
            merged.append(one)
    return merged


def _readable(text: str) -> str:
    """With NUL in place of marks, which hold no secret, and blanks in place of escaped line ends, which are letters to
    a pattern. Every character keeps its place."""
    if "[redacted:" in text:
        text = MARK.sub(lambda mark: "\0" * len(mark.group()), text)
    return _NEW_LINE.sub("  ", text) if "\\" in text else text


def _lower(text: str) -> str:
    """In lower case, every character in its place."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.translate(_LOWER)
