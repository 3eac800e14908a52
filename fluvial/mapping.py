"""Mapping: tool calls out of logs of any shape. A TOML file says `field = "JMESPath expression"`.

source = "'my-agents'"                    # a JMESPath literal
run_id = "session.id"
tool = "name"
args = "input"
status = { error_if = "is_error" }        # or ok_if = "success"
started_at = "timestamp"                  # ISO 8601, or a number since 1970
chain = { constant = "polygon" }

[labels]
question = "task.question"

[metrics]
gas_gwei = "receipt.gas"
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from fluvial.moments import micros
from fluvial.schemas.codec import in_words
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.types import Status

FIELDS = tuple(ToolCall.__struct_fields__)
REQUIRED = ("source", "run_id", "tool")
TABLES = ("labels", "metrics")
TIMES = ("started_at", "ended_at")
NUMBERS = ("reward", "source_trust")
AS_THEY_ARE = ("args", "result")

Read = Callable[[Any], Any]
"""What stands in a row, None where it has nothing."""


class MappingError(ValueError):
    """The mapping file cannot be used; the message names file, line and field."""


class Unmappable(ValueError):
    """A row does not give a tool call; the message names the field."""


@dataclass(frozen=True)
class Mapping:
    """`rows` of a log to calls: one reader a field, labels and metrics by name."""

    fields: dict[str, Read]
    labels: dict[str, Read]
    metrics: dict[str, Read]

    def call(self, row: Any) -> ToolCall:
        """The tool call in a decoded JSON row. Raises Unmappable; constraints are checked where it is published."""
        values = {name: _value(name, read, row) for name, read in self.fields.items()}
        values["labels"] = _present({name: _value(f"labels.{name}", read, row) for name, read in self.labels.items()})
        values["metrics"] = _present(
            {name: _value(f"metrics.{name}", read, row) for name, read in self.metrics.items()}
        )
        for name in REQUIRED:
            if values[name] is None:
                raise Unmappable(f"{name}: the mapping finds nothing in this row")
        try:
            return msgspec.convert(_present(values), ToolCall)
        except msgspec.ValidationError as error:
            raise Unmappable(f"not a valid ToolCall: {in_words(str(error))}") from error


def load_mapping(path: Path) -> Mapping:
    """The mapping in a TOML file. Raises MappingError, and OSError if the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        return parse_mapping(text, str(path))
    except UnicodeDecodeError as error:
        raise MappingError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from error


def parse_mapping(text: str, name: str = "mapping") -> Mapping:
    """The mapping in the text of a TOML file called `name`. Raises MappingError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MappingError(f"{name}: not TOML: {error}.") from error
    tables: dict[str, dict[str, Read]] = {table: {} for table in TABLES}
    fields: dict[str, Read] = {}
    try:
        for field, entry in document.items():
            if field in TABLES:
                if not isinstance(entry, dict):
                    raise _Wrong(field, f"is a table: write [{field}] and one line a name")
                tables[field] = {label: _reader(f"{field}.{label}", item) for label, item in entry.items()}
            elif field in FIELDS:
                fields[field] = _reader(field, entry)
            else:
                near = get_close_matches(field, FIELDS, 1)
                raise _Wrong(field, "is no field of a tool call" + (f" (did you mean {near[0]}?)" if near else ""))
        for field in REQUIRED:
            if field not in fields:
                raise _Wrong(field, "is required and missing")
    except _Wrong as wrong:
        raise MappingError(f"{name}{_line(text, wrong.field)}: {wrong.field} {wrong}.") from wrong
    return Mapping(fields, tables["labels"], tables["metrics"])


class _Wrong(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _reader(field: str, entry: Any) -> Read:
    """From one entry of the file to what reads it from a row."""
    match entry:
        case str():
            return _read_as(field, _search(field, entry))
        case {"constant": constant, **rest} if not rest:
            return _read_as(field, lambda row: constant)
        case {"error_if": str(expression), **rest} if not rest and field == "status":
            failed = _search(field, expression)
            return lambda row: "error" if failed(row) else "ok"
        case {"ok_if": str(expression), **rest} if not rest and field == "status":
            succeeded = _search(field, expression)
            return lambda row: "ok" if succeeded(row) else "error"
        case _:
            conditions = ", { error_if = ... } or { ok_if = ... }" if field == "status" else ""
            raise _Wrong(field, f"is an expression in quotes or {{ constant = ... }}{conditions}, not {entry!r}")


def _search(field: str, expression: str) -> Read:
    try:
        compiled = jmespath.compile(expression)
    except JMESPathError as error:
        raise _Wrong(field, f"has no JMESPath expression: {' '.join(str(error).split())}") from error
    search: Read = compiled.search
    return search


def _read_as(field: str, read: Read) -> Read:
    """The reader that also brings the value into the field's type."""
    if field in TIMES:
        return lambda row: _if_any(micros, read(row))
    if field in NUMBERS or field.startswith("metrics."):
        return lambda row: _if_any(_number, read(row))
    if field == "status":
        return lambda row: _if_any(_status, read(row))
    if field == "seq":
        return lambda row: _if_any(_whole, read(row))
    if field in AS_THEY_ARE:
        return read
    if field in REQUIRED:
        return lambda row: _if_any(_text, read(row))
    return lambda row: _if_any(_text, read(row)) or None


def _if_any(form: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else form(value)


def _number(value: Any) -> float:
    if isinstance(value, str | int | float):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"{_shown(value)} is no number")


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(f"{_shown(value)} is no whole number")
    return int(value) if isinstance(value, int | str) and str(value).lstrip("+-").isdigit() else int(number)


def _status(value: Any) -> str:
    if value in get_args(Status):
        return str(value)
    hint = '; write status = { error_if = "..." } or { ok_if = "..." }' if isinstance(value, bool) else ""
    raise ValueError(f'{_shown(value)} is neither "ok" nor "error" nor "unknown"{hint}')


def _text(value: Any) -> str:
    """Numbers become text; what has parts stays JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _value(field: str, read: Read, row: Any) -> Any:
    try:
        return read(row)
    except (ValueError, TypeError, OverflowError) as error:  # JMESPath's own errors are ValueErrors
        raise Unmappable(f"{field}: {' '.join(str(error).split())}") from error


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _line(text: str, field: str) -> str:
    """`:7`, the line on which the field is set; empty if it is on none."""
    table, _, name = field.rpartition(".")
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            inside = header[1]
            if inside == field:
                return f":{number}"
        key = re.match(r"""\s*["']?([^"'=]+?)["']?\s*=""", line)
        if key and key[1] in (field, name) and (inside == table or key[1] == field):
            return f":{number}"
    return ""
