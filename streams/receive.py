"""Receive: what agents and Collectors send in their own formats, to tool calls and to parts of tool calls.

One message gives whole calls, which go on to `tool-calls`, and parts of calls whose other parts come in other messages,
which go by trace or session to `call-parts` (streams/join.py). Which format it is, the message says (schemas/formats/).
"""

import asyncio
import time
from typing import Any

from aiokafka import ConsumerRecord

from fluvial.schemas.call_part import EvaluationPart, SpanPart
from fluvial.schemas.codec import Undecodable, decode
from fluvial.schemas.formats import Message, Reading, read
from fluvial.schemas.formats.message import Map, Unrecognized
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import AGENT_EVENTS, EVENTS, LOGS, OTLP_LOGS, OTLP_SPANS, SPANS
from fluvial.streams.hand_on import hand_on, hand_on_parts
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn, micros_of

ALIVE_SECONDS = 30.0
"""Where no ticks come, a mark so often says that the hop is there."""
_ENVELOPE = ("ce_", "content-type")
"""How the names of headers begin that say that the value is no plain ToolCall."""


def message_of(record: ConsumerRecord) -> Message:
    """The Kafka record as the readers of the formats take it."""
    key = (record.key or b"").decode("utf-8", "replace")
    return Message(record.value, dict(record.headers), key, micros_of(record.timestamp))


def call_of(record: ConsumerRecord, mapping: Map | None) -> ToolCall:
    """The call in a record of `tool-calls`: ours, or a whole one in another format.

    Raises Undecodable, also where the record has to be joined with others: the reason names the topic for that.
    """
    unreadable = None
    if not any(name.lower().startswith(_ENVELOPE) for name, _ in record.headers):
        try:
            return decode(record.value or b"", ToolCall)
        except Undecodable as error:
            unreadable = error
    try:
        reading = read(message_of(record), mapping)
    except Unrecognized as error:
        raise unreadable or error from error
    if len(reading.calls) == 1 and not reading.parts and not reading.problems:
        return reading.calls[0]
    raise Undecodable(_why_not_whole(reading))


def _why_not_whole(reading: Reading) -> str:
    """What `tool-calls` does not take, and which topic does."""
    kinds = {type(part) for parts in reading.parts for part in parts.parts}
    if SpanPart in kinds:
        return f"OTLP spans are joined with the spans above them: send them to {OTLP_SPANS.name}"
    if EvaluationPart in kinds:
        return f"OTLP log records are joined with their spans: send them to {OTLP_LOGS.name}"
    if kinds:
        return f"half a call of MCP is joined with its other half: send it to {AGENT_EVENTS.name}"
    if reading.calls or reading.problems:
        return f"one record is one call here: send several to {AGENT_EVENTS.name}"
    return "this is no tool call, though well-formed"


class Receive(Hop):
    """Every message is counted once: dead where something in it could not be used, which does not hold up the rest."""

    takes_ticks = False

    def __init__(self, broker: str, *, mapping: Map | None = None, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._mapping = mapping
        self._marked = time.monotonic()

    def record_of(self, message: ConsumerRecord) -> Reading:
        return read(message_of(message), self._mapping)

    def on_record(self, turn: Turn, arrival: Arrival[Reading]) -> None:
        reading = arrival.record
        problems = list(reading.problems)
        for call in reading.calls:
            problems += hand_on(turn, call, self.redactor)
        for parts in reading.parts:
            problems += hand_on_parts(turn, parts, self.redactor)
        if problems:
            turn.dead_letter(arrival, "; ".join(problems))
        else:
            turn.count("done")

    async def between_turns(self) -> None:
        if time.monotonic() - self._marked > ALIVE_SECONDS:
            self._marked = time.monotonic()
            await asyncio.gather(*(partition.commit(partition.turn()) for partition in self._partitions.values()))


class Spans(Receive):
    """What a Collector's exporter writes of traces."""

    plan = SPANS


class Logs(Receive):
    """What a Collector's exporter writes of logs."""

    plan = LOGS


class Events(Receive):
    """CloudEvents, messages of MCP, and any JSON that the mapping reads."""

    plan = EVENTS
