"""Secrets out of a call before it is stored: by the name they stand under, and by their own look.

Addresses, transaction hashes and amounts are no secrets: 32 bytes of hexadecimal are taken for a private key only
under a name that says so, words for a seed phrase only where its checksum holds.
"""

import re
import string
from typing import Any

from msgspec.structs import replace

from fluvial.processors.secret_patterns import NAMED_IN_TEXT, NEEDLES_OF_NAMES, PATTERNS, SECRET_NAMES, secret_kind
from fluvial.processors.seed_phrase import is_seed_phrase, seed_phrases
from fluvial.schemas.codec import encode
from fluvial.schemas.tool_call import ToolCall

_TEXTS = ("error_message", "reflection", "error_type", "tool", "task_id", "agent_id", "model", "chain", "token_pair")
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def redact(call: ToolCall) -> tuple[ToolCall, int]:
    """The call with `[redacted:KIND]` in place of each secret, and how many there were. Ids and times stay.

    Raises RecursionError where arguments or result are nested deeper than the interpreter follows.
    """
    count = 0
    changed: dict[str, Any] = {}
    for name in ("args", "result", "labels", *_TEXTS):
        value = getattr(call, name)
        if value:
            clean, found = _redact(value, "")
            if found:
                changed[name] = clean
                count += found
    names, found = _redact_names(call.metrics)
    if found:
        changed["metrics"] = {names[name]: value for name, value in call.metrics.items()}
        count += found
    return (replace(call, **changed), count) if count else (call, 0)


def redact_text(text: str) -> tuple[str, int]:
    """The text with `[redacted:KIND]` in place of each secret, and how many there were."""
    lower = text.translate(_LOWER)
    spans = [
        (*match.span("secret"), pattern.kind)
        for pattern in PATTERNS
        if any(needle in lower for needle in pattern.needles)
        for match in pattern.regex.finditer(text)
    ]
    if any(needle in lower for needle in NEEDLES_OF_NAMES):
        spans += _named(text, lower)
    spans += [(start, end, "mnemonic") for start, end in seed_phrases(text)]
    return _cut_out(text, spans) if spans else (text, 0)


def count_marks(call: ToolCall) -> int:
    """How many secrets have been taken out of the call, here or before it was published."""
    return encode(call).count(b"[redacted:")


def _redact(value: Any, name: str) -> tuple[Any, int]:
    """`value`, which stands under `name`, without its secrets, and their number."""
    if isinstance(value, str):
        kind = secret_kind(name, value)
        return (f"[redacted:{kind}]", 1) if kind else redact_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        kind = secret_kind(name, str(value))
        return (f"[redacted:{kind}]", 1) if kind else (value, 0)
    if isinstance(value, list):
        if all(isinstance(word, str) for word in value) and is_seed_phrase(value):
            return ["[redacted:mnemonic]"], 1
        return _redact_list(value, name)
    if isinstance(value, dict):
        return _redact_object(value, name)
    return value, 0


def _redact_list(values: list[Any], name: str) -> tuple[list[Any], int]:
    count = 0
    clean = []
    for value in values:
        item, found = _redact(value, name)
        clean.append(item)
        count += found
    return clean, count


def _redact_object(fields: dict[str, Any], name: str) -> tuple[dict[str, Any], int]:
    names, count = _redact_names(fields)
    clean = {}
    for key, value in fields.items():
        clean[names[key]], found = _redact(value, name if name in SECRET_NAMES else key)
        count += found
    return clean, count


def _redact_names(fields: dict[str, Any]) -> tuple[dict[str, str], int]:
    """Each name -> the name without secrets (names stay distinct), and the number of secrets."""
    count = 0
    names: dict[str, str] = {}
    taken: set[str] = set()
    for name in fields:
        clean, found = redact_text(name)
        while clean in taken:
            clean += "'"
        names[name] = clean
        taken.add(clean)
        count += found
    return names, count


def _named(text: str, lower: str) -> list[tuple[int, int, str]]:
    """Values in text that follow the name of a secret."""
    spans = []
    place = 0
    while match := NAMED_IN_TEXT.search(lower, place):
        group = "bare" if match["quote"] is None else "quoted"
        start, end = match.span(group)
        kind = secret_kind(match["name"].replace(" ", "_"), text[start:end])
        if kind and (group == "quoted" or _is_plain_value(match)):
            spans.append((start, end, kind))
            place = end
        else:
            place = match.end("name")
    return spans


def _is_plain_value(match: re.Match[str]) -> bool:
    """Whether an unquoted value is one, and not code or prose: it has a digit or follows `=` at once."""
    value = match["bare"]
    return not set(value) & set("([{<$*") and (any(map(str.isdigit, value)) or f"={value}" in match.group())


def _cut_out(text: str, spans: list[tuple[int, int, str]]) -> tuple[str, int]:
    """Replace the spans; of those that overlap, all by the mark of the first."""
    parts: list[str] = []
    count = reached = 0
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= reached:
            parts += (text[reached:start], f"[redacted:{kind}]")
            count += 1
        reached = max(reached, end)
    return "".join(parts) + text[reached:], count
