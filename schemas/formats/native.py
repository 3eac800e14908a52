"""JSON objects: our own record, or rows of any shape through the user's mapping.

Ours is what is tagged `"type": "tool_call"`, and what has source, run_id and tool under these names. Where there is a
mapping, it reads every row that is not tagged and has other fields than ours too.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fluvial.schemas.codec import Undecodable, decode, in_words
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Map, Origin, Unrecognized
from fluvial.schemas.tool_call import ToolCall

FIELDS = frozenset(ToolCall.__struct_fields__) | {"type"}
_TAG = msgspec.json.encode(ToolCall.__struct_config__.tag)
_SHOWN = 8


def read_row(value: bytes, fields: Mapping[str, msgspec.Raw], origin: Origin, mapping: Map | None) -> ToolCall:
    """The call in an object with these fields. Raises Undecodable, and Unrecognized where it does not look like one."""
    given = {name for name, there in (("source", origin.source), ("run_id", origin.run_id)) if there}
    has_ours = {"source", "run_id", "tool"} <= fields.keys() | given
    if _is_tagged(fields) or (has_ours and (mapping is None or fields.keys() <= FIELDS)):
        call = _ours(value, origin) if given else decode(value, ToolCall)
    elif mapping is not None:
        call = _mapped(value, origin, mapping)
    else:
        names = ", ".join(cut(name, 40) for name in sorted(fields)[:_SHOWN]) or "none"
        raise Unrecognized(
            "neither a tool call (it needs source, run_id and tool) nor a CloudEvent, OTLP or MCP: a JSON object with "
            f"the fields {names}; a mapping can say where a tool call's fields are"
        )
    started_at = origin.at if call.started_at is None else call.started_at
    return replace(call, event_id=call.event_id or origin.event_id, started_at=started_at)


def _is_tagged(fields: Mapping[str, msgspec.Raw]) -> bool:
    return "type" in fields and bytes(fields["type"]) == _TAG


def _ours(value: bytes, origin: Origin) -> ToolCall:
    try:
        return msgspec.convert(_row(value, origin), ToolCall)
    except msgspec.ValidationError as error:
        raise Undecodable(f"not a valid ToolCall: {in_words(str(error))}") from error


def _mapped(value: bytes, origin: Origin, mapping: Map) -> ToolCall:
    row = _row(value, origin)
    try:
        return mapping(row)
    except ValueError as error:
        raise Unrecognized(f"the mapping does not fit: {error}") from error


def _row(value: bytes, origin: Origin) -> dict[str, Any]:
    """The object; source and run_id are those of its envelope where it has none."""
    row: dict[str, Any] = decode(value, dict[str, Any])
    for name, there in (("source", origin.source), ("run_id", origin.run_id)):
        if there and row.get(name) is None:
            row[name] = there
    return row
