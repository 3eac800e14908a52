"""What an erasure is about: which episodes, lessons and dead letters it takes, and where it is still spoken of.

A run and an agent are known by their whole name. A subject is whatever text a call holds in a value, as a whole or
among other words, in capitals or not; names that many calls share (source, tool, model, chain, token pair) are none.
"""

import re
from collections.abc import Iterator, Set
from functools import lru_cache
from typing import Any

import msgspec

from fluvial.schemas.claim import Claim
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.episode import Episode
from fluvial.schemas.erasure import Erasure

SHARED_NAMES = frozenset({"source", "tool", "model", "chain", "token_pair", "type", "hop", "topic"})
"""Fields (and features) whose values name a class of calls."""
_FIELDS = ("id", "run_id", "task_id", "agent_id", "call_id", "error_type", "error_message", "text", "regime")
_HOLDERS = {"run": ("run_id",), "agent": ("agent_id", "agent")}


def concerns(episode: Episode, erasure: Erasure) -> bool:
    """Whether the call has to be forgotten."""
    if erasure.what == "run":
        return episode.run_id == erasure.value
    if erasure.what == "agent":
        return episode.agent_id == erasure.value
    fields = [getattr(episode, name) for name in _FIELDS]
    given = [msgspec.json.decode(episode.args_json), msgspec.json.decode(episode.outcome_json)]
    derived = [episode.labels, episode.features, episode.context.previous_error_type]
    return any(names(text, erasure.value) for text in strings([fields, given, derived]))


def concerns_letter(letter: DeadLetter, erasure: Erasure) -> bool:
    """Whether a dead letter is of such a call. What could not be read has no fields: its text has to tell."""
    if erasure.what == "subject":
        return names(f"{letter.key} {letter.value} {letter.reason}", erasure.value) or _json_names(letter, erasure)
    quoted = encode(erasure.value).decode()
    of_key = erasure.what == "run" and letter.key.endswith(f"|{erasure.value}")
    return of_key or quoted in letter.value or quoted in letter.value.replace('\\"', '"')


def tells(content: str | None, claim: Claim | None, erasure: Erasure) -> bool:
    """Whether a lesson itself speaks of what is forgotten; of a run none does."""
    atoms = claim.atoms if claim is not None else ()
    if erasure.what == "agent":
        return any(atom.feature == "agent" and atom.value == erasure.value for atom in atoms)
    if erasure.what == "subject":
        return any(names(text, erasure.value) for text in (content or "", *(f"{a.feature} {a.value}" for a in atoms)))
    return False


def mentions(record: Any, erasure: Erasure, event_ids: Set[str]) -> bool:
    """Whether a record, as plain JSON values, holds one of the calls or the name of the run, agent or subject."""
    if erasure.what == "subject":
        return any(text in event_ids or names(text, erasure.value) for text in strings(record))
    return _holds(record, erasure) or any(text in event_ids for text in strings(record))


def names(text: str, subject: str) -> bool:
    """Whether the subject stands in the text as a whole word (or words), in capitals or not.

    >>> names("Refund for Alice Smith.", "alice smith"), names("Malice", "alice")
    (True, False)
    """
    return _whole_word(subject).search(text) is not None


def strings(value: Any) -> Iterator[str]:
    """Every text in plain JSON values, keys included, but for what stands under one of SHARED_NAMES."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += [inner for key, inner in one.items() if key not in SHARED_NAMES or not isinstance(inner, str)]
        elif isinstance(one, list | tuple):
            waiting += one


def _holds(value: Any, erasure: Erasure) -> bool:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if any(one.get(name) == erasure.value for name in _HOLDERS[erasure.what]):
                return True
            if one.get("feature") == erasure.what == "agent" and one.get("value") == erasure.value:
                return True
            if erasure.what == "run" and erasure.value in (one.get("matched") or ()):
                return True
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return False


def _json_names(letter: DeadLetter, erasure: Erasure) -> bool:
    """In JSON a word may stand behind an escape (a line's end: `\\nAlice`), where the text alone does not show it."""
    try:
        record = msgspec.json.decode(letter.value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return any(names(text, erasure.value) for text in strings(record))


@lru_cache(maxsize=64)
def _whole_word(subject: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(subject.strip())}(?!\w)", re.IGNORECASE)
