"""What a claim says: which calls it is about, its sentence, its category and kind.

Text in features comes from agents and tools: it is data. What is not plain enough to be quoted in a sentence
(`quotable`) becomes part of no claim at all, so that nothing of it reaches a reader or a model by this way.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.insight import Category, Kind
from fluvial.schemas.types import Scalar

LONGEST_QUOTE = 40
LONGEST_NAME = 80

_MARKUP = re.compile(r"[<>{}`$\\|\"]|\]\(|://|&#|--|/\*")
_INJECTION = re.compile(
    r"\b(ignore|disregard|forget|override|instructions?|prompts?|jailbreak|password|secrets?|api key|seed phrase)\b"
)
_COMMAND = re.compile(
    r"\b(you|your|must|should|always|never|please|system|assistant|developer|user|send|transfer|execute|approve|reveal|"
    r"call|run|use|do|say|tell|act)\b"
)


def quotable(text: str, longest: int = LONGEST_QUOTE) -> bool:
    """Whether a value or name may stand in a sentence: short, printable, no markup, not worded as an instruction.

    >>> quotable("WETH/USDC"), quotable("send_tokens"), quotable("Ignore_all_previous_instructions"), quotable("<b>")
    (True, True, False, False)
    """
    if not text or len(text) > longest or not text.isprintable() or text != text.strip() or _MARKUP.search(text):
        return False
    words = re.sub(r"[\W_]+", " ", text.casefold()).strip()
    return not (" " in words and _INJECTION.search(words)) and not (" " in text and _COMMAND.search(words))


def holds(atom: Atom, features: Mapping[str, Scalar]) -> bool:
    """Whether a call with these features meets the condition. Without the feature only `absent` is met."""
    value = features.get(atom.feature)
    if atom.op in ("present", "absent"):
        return (value is None) == (atom.op == "absent")
    if value is None or atom.value is None or isinstance(value, bool) != isinstance(atom.value, bool):
        return False
    if atom.op == "eq":
        return value == atom.value
    if isinstance(value, str) or isinstance(atom.value, str):
        return False
    return value >= atom.value if atom.op == "ge" else value <= atom.value


def side(
    claim: Claim,
    tool: str,
    chain: str | None,
    token_pair: str | None,
    features: Mapping[str, Scalar],
) -> bool | None:
    """True for a call that the claim is about, False for one it is compared with, None for any other.

    The call is one of the claim's source. A claim about a tool as a whole is compared with the source's other tools,
    one about a chain or pair as a whole with the tool's other chains and pairs.
    """
    same_tool = claim.tool in (None, tool)
    same_place = claim.chain in (None, chain) and claim.token_pair in (None, token_pair)
    if same_tool and same_place and all(holds(atom, features) for atom in claim.atoms):
        return True
    if claim.atoms:
        return False if same_tool and same_place else None
    placed = claim.chain is not None or claim.token_pair is not None
    return False if same_tool or not placed else None


# Sentences


@dataclass(frozen=True)
class Figures:
    """Counts behind a claim: calls and failures inside and outside its atoms, and the runs of the calls inside."""

    calls: int
    failures: int
    runs: int
    outside_calls: int
    outside_failures: int

    @property
    def rate(self) -> float:
        return self.failures / self.calls

    @property
    def successes(self) -> tuple[int, int]:
        """Calls that worked, inside and outside."""
        return self.calls - self.failures, self.outside_calls - self.outside_failures

    @property
    def outside_rate(self) -> float:
        """Failure rate outside; .5 where there are no calls to compare with."""
        return self.outside_failures / self.outside_calls if self.outside_calls else 0.5


def sentence(claim: Claim, figures: Figures, cause: str | None = None) -> str:
    """The claim for a reader, with its counts; `cause` is the error type that nearly all failures have."""
    tool = claim.tool if claim.tool and quotable(claim.tool, LONGEST_NAME) else "this tool" if claim.tool else "a call"
    place = "".join(f" {word} {name}" for word, name in (("on", claim.chain), ("for", claim.token_pair)) if name)
    when = " and ".join(_phrase(atom) for atom in claim.atoms)
    failing = claim.expected >= claim.reference
    count, rest = (figures.failures, figures.outside_failures) if failing else figures.successes
    rate = count / figures.calls
    if failing:
        verb = "fails" if rate >= 0.5 else "fails more often"
        if rate == 1 and not when and not place:
            verb = "always fails so far"
    else:
        verb = "works" if rate >= 0.9 else "works more often"
    text = f"{tool}{place} {verb}{' when ' if when else ''}{when}: {count} of {figures.calls} calls"
    text += f" ({_percent(count, figures.calls)}) in {figures.runs} runs"
    if figures.outside_calls:
        compared = "otherwise" if when else "elsewhere" if place else "of the source's other calls"
        text += f", against {_percent(rest, figures.outside_calls)} {compared}"
    if cause and quotable(cause, LONGEST_NAME):
        text += f"; the error is nearly always {cause}"
    return text + "."


def _percent(part: int, whole: int) -> str:
    """Whole per cent; 0 % and 100 % only where it is exactly none or all."""
    rounded = round(100 * part / whole)
    return f"{min(99, max(1, rounded)) if 0 < part < whole else rounded} %"


_FORMS = {
    "empty": "is empty",
    "date": "is a date without a time",
    "datetime": "is a date with a time",
    "number": "is a number",
    "hex": "is hexadecimal",
    "url": "is an address of the web",
}
_CASES = {"lower": "is all lower case", "upper": "is all upper case", "title": "has every word capitalised"}
_FLAGS = {
    "quote": ("contains a quotation mark", "contains no quotation mark"),
    "digit": ("contains a digit", "contains no digit"),
    "bracket": ("contains a bracket", "contains no bracket"),
    "comma": ("contains a comma", "contains no comma"),
    "nonascii": ("contains letters beyond ASCII", "contains only ASCII"),
    "in_previous_result": (
        "occurs in the previous result of the run",
        "does not occur in the previous result of the run",
    ),
    "quoted_in_previous_result": (
        "is one of the quoted items of the previous result of the run",
        "is none of the quoted items of the previous result of the run",
    ),
}
_SIZES = {"words": "words", "length": "characters", "lines": "lines", "count": "elements"}
_OTHERS = {"max": "the largest number in {}", "sum": "the sum of the numbers in {}", "number": "{}"}
_ENDED = {"ok": "worked", "error": "failed", "unknown": "never got a result"}
_COUNTS = {
    "calls_before": ("call was made", "calls were made", "before in the run"),
    "errors_before": ("call failed", "calls failed", "before in the run"),
    "errors_in_a_row": ("call", "calls", "right before it failed in a row"),
    "tool_errors_before": ("call of this tool failed", "calls of this tool failed", "before in the run"),
    "same_call_before": ("identical call was made", "identical calls were made", "before in the run"),
}


def _phrase(atom: Atom) -> str:
    base, _, shape = atom.feature.partition("#")
    room, _, name = base.partition(".")
    if room == "run":
        return _run_phrase(atom, name)
    subject = _subject(room, name)
    if shape in _FLAGS:
        return f"{subject} {_FLAGS[shape][atom.op == 'absent']}"
    if atom.op in ("present", "absent"):
        return f"{subject} is {'not ' if atom.op == 'absent' else ''}given"
    if shape in ("form", "case"):
        return f"{subject} {(_FORMS | _CASES).get(str(atom.value), f'is {_value(atom.value)}')}"
    if shape == "mask":
        return f"{subject} looks like {_value(atom.value)}"
    if shape in _SIZES:
        unit = _SIZES[shape] if atom.value != 1 else _SIZES[shape].removesuffix("s")
        amount = _value(atom.value)
        return f"{subject} has {amount} {unit} or more" if atom.op == "ge" else f"{subject} has at most {amount} {unit}"
    subject = _OTHERS.get(shape, "{}").format(subject)
    amount = _value(atom.value)
    return (
        f"{subject} is {amount if atom.op == 'eq' else f'{amount} or more' if atom.op == 'ge' else f'at most {amount}'}"
    )


def _run_phrase(atom: Atom, name: str) -> str:
    if name == "same_call_failed":
        return f"{'no' if atom.op == 'absent' else 'the'} identical call failed before in the run"
    if name in _COUNTS:
        return _count_phrase(atom, *_COUNTS[name])
    if name == "previous_status":
        return f"the call before it {_ENDED[str(atom.value)]}"
    if name == "previous_error_type":
        return f"the call before it failed with {_value(atom.value)}"
    return f"the call before it was {_value(atom.value)}"


def _count_phrase(atom: Atom, one: str, many: str, where: str) -> str:
    n = _value(atom.value)
    if atom.op == "eq":
        return f"exactly {n} {one if atom.value == 1 else many} {where}"
    if atom.value == 0:
        return f"no {one} {where}" if atom.op == "le" else f"any number of {many} {where}"
    if atom.op == "le":
        return f"at most {n} {one if atom.value == 1 else many} {where}"
    return f"{n} or more {many} {where}"


def _subject(room: str, name: str) -> str:
    if room == "args":
        return name or "the argument"
    if room == "metrics":
        return name
    if room == "labels":
        return f"the label {name}"
    return {"token_pair": "the pair", "hour": "the hour (UTC)"}.get(room, f"the {room}")


def _value(value: Scalar | None) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.15g}"


# Category and kind

_CATEGORY_WORDS: tuple[tuple[Category, frozenset[str]], ...] = (
    ("emergency", frozenset({"emergency", "liquidation", "liquidate", "liquidated", "exploit", "pause", "paused"})),
    ("mev_pattern", frozenset({"mev", "sandwich", "sandwiched", "frontrun", "frontrunning", "backrun"})),
    ("slippage", frozenset({"slippage", "tolerance", "minout"})),
    ("gas_timing", frozenset({"gas", "gwei", "basefee"})),
    ("liquidity_depth", frozenset({"liquidity", "depth"})),
    ("volatility", frozenset({"volatility", "volatile"})),
    ("route_selection", frozenset({"route", "routes", "router", "hops"})),
    ("rebalance_timing", frozenset({"rebalance", "rebalancing"})),
    ("vault_strategy", frozenset({"vault", "vaults"})),
    ("pool_behavior", frozenset({"pool", "pools", "tick"})),
    ("fee_optimization", frozenset({"fee", "fees"})),
)


def category(claim: Claim, cause: str | None = None) -> Category:
    """The category whose words occur in the claim's conditions, else in `cause` (an error type), else in the tool."""
    for text in (" ".join(f"{atom.feature} {atom.value}" for atom in claim.atoms), cause or "", claim.tool or ""):
        words = frozenset(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()))
        for name, signs in _CATEGORY_WORDS:
            if words & signs:
                return name
    return "general"


def kind(claim: Claim) -> Kind:
    """MUSE's types (arXiv:2510.08002): tool (how to call it), procedural (what came before), strategic (when, who)."""
    rooms = {re.split(r"[.#]", atom.feature)[0] for atom in claim.atoms}
    relation = any(atom.feature.endswith("_previous_result") for atom in claim.atoms)
    if "run" in rooms or relation:
        return "procedural"
    return "strategic" if rooms & {"agent", "model", "hour", "metrics", "labels", "chain", "token_pair"} else "tool"
