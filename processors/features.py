"""What was known of a call before its outcome, as flat features that a claim can be stated about.

The names, all of them optional (a feature that does not hold of a call is left out, so `absent` is its negation):

- `agent`, `model`, `chain`, `token_pair`, `labels.NAME`: short text as given.
- `hour`: hour of the day of `started_at`, 0 to 23 UTC, where the agent gave a time.
- `metrics.NAME`: a number. Metrics that are measured by the call itself (OUTCOME_METRICS: slippage, latency, cost,
  profit ...) are left out: they are outcomes.
- `args.PATH`: an argument that was given. PATH joins the keys of nested objects with dots and marks the elements of a
  list with `[]`: `args.amount`, `args.route.pool`, `args.flights[].date`; arguments that are no object are `args`.
  The value is the argument's own where it is a boolean, a number or text of at most 48 characters, else `True`
  ("given"). null counts as not given. Elements of a list share one feature where they agree.
- `args.PATH#length`: of text, in characters; `#words`, `#lines` (from 2 on): of text that has no form.
- `args.PATH#quote`, `#digit`, `#bracket`, `#comma`, `#nonascii`: `True` where text that has no form has such a one.
- `args.PATH#case`: `lower`, `upper` or `title`, where text that has no form is all of it.
- `args.PATH#form`: `empty`, `date`, `datetime`, `number`, `hex` or `url`.
- `args.PATH#number`: the value of text that is a decimal number (amounts of tokens often are).
- `args.PATH#mask`: short text with each run of digits as one `#`, where it has letters: `gift_card_#`.
- `args.PATH#count`: elements of a list, keys of an empty object; `args.PATH#max`, `#sum`: of the numbers in a list.
- `args.PATH#in_previous_result`, `#quoted_in_previous_result`: `True` where the text occurs in the result of the run's
  previous call, or equals a quoted string of it.
- `run.calls_before`, `run.errors_before`, `run.errors_in_a_row`, `run.same_call_before`: counts.
- `run.tool_errors_before`: how often this tool has failed earlier in the run.
- `run.same_call_failed`: `True` where the identical call failed earlier in the run.
- `run.previous_tool`, `run.previous_status`, `run.previous_error_type`: of the run's previous call.

A name ending in `#words`, `#length`, `#lines`, `#count`, `hour` and the counts of `run.` are integers; `#number`,
`#max`, `#sum`, `metrics.` are floats; flags are `True`. At most MOST features a call: circumstances and run first, then
the arguments, what is nearest to the root first, then their details. Nothing is taken from the call's result or error.
"""

import math
import re
from collections import deque
from typing import Any

from fluvial.processors.run_context import NEW_RUN, RunState
from fluvial.schemas.episode import RunContext
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.types import Scalar

MOST = 60
SHORT = 48
"""Longest text kept as a value: an address fits, a transaction hash or a sentence does not."""
OUTCOME_METRICS = frozenset(
    {
        "slippage_bps",
        "latency_ms",
        "duration_ms",
        "cost_usd",
        "pnl_bps",
        "pnl_usd",
        "gas_used",
        "fee_paid_usd",
        "reward",
    }
)

_ARGUMENTS = 24
_NODES = 2_000
_PATH = 256
_EXACT = 2**53
_HUGE = 10**300
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}")
_DATETIME = re.compile(_DATE.pattern + r"[T ]\d{1,2}:\d{2}\S*( ?[+-]\d{2}:?\d{2}| ?[A-Z]{1,4})?")
_NUMBER = re.compile(r"[+-]?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_FORMS = (("date", _DATE), ("datetime", _DATETIME), ("number", _NUMBER), ("hex", _HEX), ("url", _URL))
_CHARACTERS = (
    ("quote", re.compile('["“”„]')),
    ("digit", re.compile(r"\d")),
    ("bracket", re.compile(r"[\[\](){}<>]")),
    ("comma", re.compile(",")),
    ("nonascii", re.compile(r"[^\x00-\x7f]")),
)
_ORDER = ("count", "max", "sum", "form", "number", "mask", "quoted_in_previous_result", "in_previous_result", "words")
_TELLING = {name: place for place, name in enumerate(_ORDER)}
"""Which details are kept first where a call has more than MOST features."""


def features(call: ToolCall, context: RunContext, before: RunState = NEW_RUN) -> dict[str, Scalar]:
    """The features of `call`, which is the next after `before` in its run (`context` is of the same moment)."""
    found = _circumstances(call) | _run(call, context, before)
    arguments, counts = _flatten(call.args)
    details: dict[str, Scalar] = {f"{path}#count": count for path, count in counts.items()}
    for path, values in arguments.items():
        found[path] = _value(values)
        details |= {f"{path}#{name}": value for name, value in _details(path, values, before.previous_result).items()}
    found |= dict(sorted(details.items(), key=lambda detail: _TELLING.get(detail[0].rpartition("#")[2], len(_TELLING))))
    return dict(list(found.items())[:MOST])


def _circumstances(call: ToolCall) -> dict[str, Scalar]:
    named = {"agent": call.agent_id, "model": call.model, "chain": call.chain, "token_pair": call.token_pair}
    named |= {f"labels.{name}": call.labels[name] for name in sorted(call.labels)[:8]}
    found: dict[str, Scalar] = {name: text for name, text in named.items() if text and len(text) <= SHORT}
    if call.started_at is not None:
        found["hour"] = call.started_at // 3_600_000_000 % 24
    for name in sorted(call.metrics.keys() - OUTCOME_METRICS)[:16]:
        if math.isfinite(call.metrics[name]):
            found[f"metrics.{name}"] = float(call.metrics[name])
    return found


def _run(call: ToolCall, context: RunContext, before: RunState) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "run.calls_before": context.calls_before,
        "run.errors_before": context.errors_before,
        "run.errors_in_a_row": context.errors_in_a_row,
        "run.same_call_before": context.same_call_before,
        "run.tool_errors_before": before.tool_errors.get(call.tool, 0),
    }
    if context.same_call_failed:
        found["run.same_call_failed"] = True
    for name in ("previous_tool", "previous_status", "previous_error_type"):
        text = getattr(context, name)
        if text and len(text) <= 2 * SHORT:
            found[f"run.{name}"] = text
    return found


def _flatten(args: Any) -> tuple[dict[str, list[Scalar]], dict[str, int]]:
    """Path -> the values given there, and path -> size of the list or empty object there; breadth first, bounded."""
    arguments: dict[str, list[Scalar]] = {}
    counts: dict[str, int] = {}
    waiting: deque[tuple[str, Any]] = deque([("args", args)])
    for _ in range(_NODES):
        if not waiting:
            break
        path, value = waiting.popleft()
        if len(path) > _PATH or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if isinstance(value, dict) and value:
            waiting.extend((f"{path}.{str(key)[:SHORT]}", inner) for key, inner in value.items())
        elif isinstance(value, list | dict):
            counts[path] = counts.get(path, 0) + len(value)
            waiting.extend((f"{path}[]", inner) for inner in value)
        elif isinstance(value, bool | int | float | str) and (path in arguments or len(arguments) < _ARGUMENTS):
            arguments.setdefault(path, []).append(_plain(value))
    return arguments, dict(list(counts.items())[:_ARGUMENTS])


def _plain(value: Scalar) -> Scalar:
    """Integers that a double cannot hold become one: features are compared, not paid out."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return float(max(-_HUGE, min(value, _HUGE)))
    return value


def _value(values: list[Scalar]) -> Scalar:
    first = values[0]
    agreed = all(type(value) is type(first) and value == first for value in values)
    return first if agreed and not (isinstance(first, str) and len(first) > SHORT) else True


def _details(path: str, values: list[Scalar], previous_result: str) -> dict[str, Scalar]:
    texts = [value for value in values if isinstance(value, str)]
    found: dict[str, Scalar] = {}
    if path.endswith("]") or "[]." in path:
        numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers:
            found["max"] = max(numbers)
            if math.isfinite(total := sum(numbers)):
                found["sum"] = total
        masks = {_mask(text) for text in texts}
        if len(masks) == 1 and (mask := masks.pop()):
            found["mask"] = mask
    elif texts:
        found |= _text(texts[0])
    for text in texts:
        if 3 <= len(text) <= 256 and text in previous_result:
            found["in_previous_result"] = True
            if f"'{text}'" in previous_result or f'"{text}"' in previous_result:
                found["quoted_in_previous_result"] = True
    return found


def _text(text: str) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"length": len(text)}
    form = _form(text)
    if form:
        found["form"] = form
        if form == "number" and math.isfinite(number := float(text)):
            found["number"] = number
    else:
        found["words"] = len(text.split())
        if (lines := text.count("\n") + 1) > 1:
            found["lines"] = lines
        found |= {name: True for name, pattern in _CHARACTERS if pattern.search(text)}
        for case, holds in (("lower", text.islower()), ("upper", text.isupper()), ("title", text.istitle())):
            if holds:
                found["case"] = case
                break
    if form != "hex" and (mask := _mask(text)):
        found["mask"] = mask
    return found


def _form(text: str) -> str | None:
    stripped = text.strip()
    if not stripped:
        return "empty"
    return next((name for name, pattern in _FORMS if len(stripped) <= 1_000 and pattern.fullmatch(stripped)), None)


def _mask(text: str) -> str | None:
    """Short text with runs of digits as one #, where it has both digits and letters."""
    if len(text) > SHORT or not any(map(str.isalpha, text)):
        return None
    mask = re.sub(r"\d+", "#", text)
    return mask if mask != text else None
