"""The reflection of a call: the text that is embedded and searched (Reflexion, arXiv:2303.11366).

The agent's own where it gave one. Else a template in which nothing stands that differs between equal situations: no
agent, run, time or id; numbers to three digits, dates by their form. Equal situations give equal texts, and equal texts
are embedded once.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from fluvial.processors.run_context import result_text
from fluvial.schemas.tool_call import ToolCall

VALUE_CHARACTERS = 60
ARGUMENT_CHARACTERS = 220
ERROR_CHARACTERS = 100
_METRICS = 4
_DEPTH = 3
_SPACE = re.compile(r"\s+")
_ID_NAME = re.compile(
    r"(?i)(^|.*[_.-])(id|uuid|hash|nonce|salt|timestamp|ts|deadline|signature|cursor|dob)$|.*[a-z]I[dD]$"
)
_DATETIME = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}[T ]\d{1,2}:\d{2}\S*")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}")
_LONG_HEX = re.compile(
    r"\b0x[0-9a-fA-F]{9,}\b|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{16,}\b"
)
_LONG_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]|\.\d)")


def reflect(call: ToolCall) -> tuple[str, Literal["agent", "template"]]:
    """The text to embed and where it is from. Never empty."""
    own = (call.reflection or "").strip()
    return (own, "agent") if own else (template(call), "template")


def template(call: ToolCall) -> str:
    """`TOOL on CHAIN PAIR: ARGUMENTS -> ok; METRICS`, `... -> error TYPE: MESSAGE; METRICS` or `... -> no result`."""
    head = call.tool.strip()
    if call.chain:
        head += f" on {call.chain}"
    if call.token_pair:
        head += f" {call.token_pair}"
    arguments = _joined(_arguments("", call.args, 0), ARGUMENT_CHARACTERS)
    tail = _error(call) if call.status == "error" else "ok" if call.status == "ok" else "no result"
    metrics = ", ".join(f"{name} {_number(call.metrics[name])}" for name in sorted(call.metrics)[:_METRICS])
    return f"{head}{': ' if arguments else ''}{arguments} -> {tail}{'; ' if metrics else ''}{metrics}"


def _error(call: ToolCall) -> str:
    kind = (call.error_type or "").replace("_", " ")
    message = call.error_message or ("" if kind else result_text(call))
    short = _short(message, ERROR_CHARACTERS)
    return " ".join(["error", *([kind] if kind else [])]) + (f": {short}" if short else "")


def _arguments(name: str, value: Any, depth: int) -> Iterator[str]:
    if value is None or (name and _ID_NAME.match(name)) or depth > _DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _arguments(str(key), inner, depth + 1)
    elif isinstance(value, list):
        yield f"{name} x{len(value)}".strip()
        if value:
            yield from _arguments(name, value[0], depth + 1)
    else:
        text = _number(value) if isinstance(value, int | float) else _short(str(value), VALUE_CHARACTERS)
        yield f"{name} {text or 'empty'}".strip()


def _joined(parts: Iterator[str], most: int) -> str:
    """As many parts as fit, at least one."""
    text = ""
    for part in parts:
        if text and len(text) + len(part) + 2 > most:
            break
        text += f"{', ' if text else ''}{part}"
    return text[:most]


def _short(text: str, most: int) -> str:
    """One line without ids and times, cut after `most` characters."""
    line = _SPACE.sub(" ", text[: 4 * most]).strip()
    line = _DATE.sub("<date>", _DATETIME.sub("<date and time>", line))
    line = _LONG_HEX.sub("<id>", line)
    line = _LONG_NUMBER.sub(lambda match: _number(float(match.group())), line)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _number(value: float) -> str:
    """To three significant digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**300:
        return "huge"
    number = float(value)
    return f"{float(f'{number:.3g}'):g}" if math.isfinite(number) else str(number)
