"""Secrets out of a call before it is stored: by the name they stand under, by their own look, by their checksum.

In place of each stands `[redacted:KIND:HASH]`. The hash is keyed, so that equal secrets stay equal and nobody without
the key can try guesses on it. Addresses, transaction hashes and amounts are no secrets: 32 bytes of hexadecimal are
taken for a private key only where a name says so, words for a seed phrase and base58 for a key only where it checks.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from fluvial.processors.find_secrets import find_secrets, is_key_bytes, may_hold_secrets
from fluvial.processors.secret_names import MARK, SCHEME, kind_of_name, secret_kind
from fluvial.processors.seed_phrase import is_seed_phrase, seed_words
from fluvial.schemas.codec import encode
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall

HASH_BYTES = 6
"""48 bits: of a million different secrets, two look equal with a chance of 1 in 560; and the mark stays short."""
_NAMED = ("args", "result", "labels")
_TEXTS = (
    *("source", "run_id", "event_id", "task_id", "agent_id", "call_id", "tool", "model", "chain", "token_pair"),
    *("error_type", "error_message", "reflection"),
)
_MOST = {"event_id": 128, "chain": 128, "token_pair": 128, "error_message": 65_536, "reflection": 65_536}
"""Characters of a text of a call; of the others LONGEST."""
LONGEST = 256
_PLAIN_ID = re.compile(r"[0-9a-f-]{1,40}|[a-z_ ]{1,19}")
_LINE_END = re.compile(r"\\[nr]|\s")
_HEX_KEY = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")
_PASSES = 4
_NOT_INHERITED = frozenset({"authorization"})
"""An object of that name is mostly a signed transfer (EIP-3009), of public amounts and addresses."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """Finds and replaces; the same text always gives the same marks. What has been redacted is left as it is.

    `key`: at most 64 bytes, never shown; without one a mark is `[redacted:KIND]`. `personal`: also e-mail addresses and
    phone numbers. All methods give the number of secrets replaced, and raise RecursionError where a value is nested
    deeper than the interpreter follows.
    """

    key: bytes = field(default=b"", repr=False)
    personal: bool = False

    def call(self, call: ToolCall) -> tuple[ToolCall, int]:
        """The call without secrets in any of its texts, names and ids included. Times and figures stay.

        A mark may be longer than its secret: what would be too long for a call then is cut, but of an event id there is
        a hash of it instead, as different events must not become one.
        """
        texts = {name: value for name in _TEXTS if (value := getattr(call, name)) and not _PLAIN_ID.fullmatch(value)}
        whole = encode((call.args, call.result, call.labels, call.metrics, *texts.values())).decode()
        if not may_hold_secrets(whole, self.personal):
            return call, 0
        count = 0
        changed: dict[str, Any] = {}
        for name, value in {**{name: getattr(call, name) for name in _NAMED}, **texts}.items():
            clean, found = self.value(value)
            if found:
                changed[name] = within(clean, _MOST.get(name, LONGEST)) if name in texts else clean
                count += found
                if name == "event_id" and len(clean) > _MOST[name]:
                    changed[name] = stable_id(clean)
        if "labels" in changed:
            changed["labels"] = {within(name, 128): within(value, 65_536) for name, value in changed["labels"].items()}
        names, found = self._names(call.metrics)
        if found:
            changed["metrics"] = {within(names[name], 128): value for name, value in call.metrics.items()}
            count += found
        return (replace(call, **changed), count) if count else (call, 0)

    def operation(self, op: InsightOp) -> InsightOp:
        """The operation on an insight without secrets in sentence, claim, key, evidence and actor."""
        if not may_hold_secrets(encode(op).decode(), self.personal):
            return op
        texts = {name: value for name in ("content", "actor", "insight_id", "cause") if (value := getattr(op, name))}
        changed: dict[str, Any] = {name: self.text(value)[0] for name, value in texts.items()}
        changed["evidence"] = tuple(self.text(one)[0] for one in op.evidence)
        if op.claim is not None:
            atoms = tuple(
                replace(atom, feature=self.text(atom.feature)[0], value=self.value(atom.value, atom.feature)[0])
                for atom in op.claim.atoms
            )
            changed["claim"] = replace(op.claim, atoms=atoms, **self._fields(op.claim, "source", "tool", "chain"))
        if op.about is not None:
            changed["about"] = replace(op.about, **self._fields(op.about, "tool", "chain", "token_pair", "metric"))
        return replace(op, **changed)

    def text(self, text: str) -> tuple[str, int]:
        """The text with a mark in place of each secret."""
        count = 0
        for _ in range(_PASSES):
            found = find_secrets(text, self.personal)
            if not found:
                break
            parts: list[str] = []
            reached = 0
            for one in found:
                parts += text[reached : one.start], self.mark(one.kind, one.text)
                reached = one.end
            text = "".join(parts) + text[reached:]
            count += len(found)
        return text, count

    def value(self, value: Any, name: str = "") -> tuple[Any, int]:
        """JSON, which stands under `name`, without its secrets."""
        if isinstance(value, str):
            kind = secret_kind(name, value, self.personal) if name else None
            return (self.mark(kind, value), 1) if kind else self.text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            kind = secret_kind(name, str(value), self.personal) if name else None
            return (self.mark(kind, str(value)), 1) if kind else (value, 0)
        if isinstance(value, list):
            return self._list(value, name)
        if isinstance(value, dict):
            return self._object(value, name)
        return value, 0

    def mark(self, kind: str, secret: str) -> str:
        """What stands in place of the secret. Equal for equal secrets, however they were written."""
        if not self.key:
            return f"[redacted:{kind}]"
        data = _canonical(kind, secret).encode("utf-8", "surrogatepass")
        return f"[redacted:{kind}:{hashlib.blake2b(data, key=self.key, digest_size=HASH_BYTES).hexdigest()}]"

    def _list(self, values: list[Any], name: str) -> tuple[list[Any], int]:
        if len(values) >= 12 and all(isinstance(word, str) for word in values) and is_seed_phrase(values):
            return [self.mark("mnemonic", " ".join(values))], 1
        if len(values) >= 16 and all(type(number) is int for number in values):
            known = kind_of_name(name)
            if is_key_bytes(values) or (known and not known.doubtful and 0 <= min(values) <= max(values) < 256):
                return [self.mark("private_key", str(values))], 1
            return values, 0
        count = 0
        clean = []
        before: Any = None
        for value in values:
            under = before if isinstance(before, str) and _announces(before, len(values)) else name
            item, found = self.value(value, under)
            clean.append(item)
            count += found
            before = value
        return clean, count

    def _object(self, fields: dict[str, Any], name: str) -> tuple[dict[str, Any], int]:
        words = list(fields.values())
        if len(words) >= 12 and all(isinstance(word, str) for word in words) and is_seed_phrase(words):
            mark = self.mark("mnemonic", " ".join(words))
            return dict.fromkeys(fields, mark), 1
        names, count = self._names(fields)
        known = kind_of_name(name) if name else None
        inherited = known is not None and not known.doubtful and known.kind not in _NOT_INHERITED
        named = fields.get("name") or fields.get("key")  # {"name": "Authorization", "value": "..."}
        clean = {}
        for key, value in fields.items():
            under = name if inherited else named if key == "value" and isinstance(named, str) else key
            clean[names[key]], found = self.value(value, under)
            count += found
        return clean, count

    def _names(self, fields: dict[str, Any]) -> tuple[dict[str, str], int]:
        """Each name -> the name without secrets (names stay distinct), and the number of secrets."""
        count = 0
        names: dict[str, str] = {}
        taken: set[str] = set()
        for name in fields:
            clean, found = self.text(name)
            while clean in taken:
                clean += "'"
            names[name] = clean
            taken.add(clean)
            count += found
        return names, count

    def _fields(self, record: Any, *names: str) -> dict[str, str]:
        return {name: self.text(value)[0] for name in names if (value := getattr(record, name))}


KEYLESS = Redactor()
"""For whoever was given no key."""


def within(clean: str, most: int) -> str:
    """At most `most` characters of a text that has been redacted, and of no mark a part."""
    if len(clean) <= most:
        return clean
    split = [mark.start() for mark in MARK.finditer(clean) if mark.start() < most < mark.end()]
    return clean[: split[0] if split else most]


def count_marks(call: ToolCall) -> int:
    """How many secrets have been taken out of the call, here or before it was published."""
    return encode(call).count(b"[redacted:")


def _announces(before: str, length: int) -> bool:
    """Whether the next item of a list stands under this one: `--password` of a command, or a header and its value."""
    if not (before.startswith("-") or length == 2) or len(before) > 64:
        return False
    known = kind_of_name(before)
    return known is not None and not known.doubtful


def _canonical(kind: str, secret: str) -> str:
    """The secret alone: without the scheme before it, the case of hexadecimal and what stands between words."""
    if kind == "mnemonic":
        return " ".join(seed_words(secret))
    if "-----BEGIN" in secret:
        return _LINE_END.sub("", secret)
    secret = SCHEME.sub("", secret.strip(), count=1)
    hexadecimal = _HEX_KEY.fullmatch(secret)
    return hexadecimal[1].lower() if hexadecimal else secret
