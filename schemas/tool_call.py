"""ToolCall: what an agent publishes about one call of one tool."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from fluvial.schemas.ids import stable_id
from fluvial.schemas.types import Identifier, Integer, Micros, Name, Probability, Status, Text


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    """One call of one tool and how it ended. Times are microseconds UTC; units stand in the metrics' names.

    Only `source`, `run_id` and `tool` are required. `event_id` is computed from the call where it is missing
    (`event_id_of`); `started_at` is taken from the Kafka record where it is missing. `args` and `result` are any JSON.
    """

    source: Identifier
    run_id: Identifier
    tool: Identifier
    event_id: Annotated[str, Meta(max_length=128)] = ""
    task_id: Identifier | None = None
    agent_id: Identifier | None = None
    model: Identifier | None = None
    seq: Integer | None = None
    call_id: Identifier | None = None
    args: Any = None
    result: Any = None
    status: Status = "ok"
    error_type: Identifier | None = None
    error_message: Text | None = None
    started_at: Micros | None = None
    ended_at: Micros | None = None
    chain: Name | None = None
    token_pair: Name | None = None
    labels: dict[Name, Text] = {}
    metrics: dict[Name, float] = {}
    reward: float | None = None
    reflection: Text | None = None
    source_trust: Probability = 1.0


def event_id_of(call: ToolCall) -> str:
    """The call's own id, or BLAKE2b-128 of (source, run_id, seq or call_id, tool, args, started_at)."""
    if call.event_id:
        return call.event_id
    place = call.seq if call.seq is not None else call.call_id
    return stable_id(call.source, call.run_id, place, call.tool, call.args, call.started_at)
