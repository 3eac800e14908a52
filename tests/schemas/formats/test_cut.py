"""What is cut before it is redacted: a secret across the end must not be stored in part."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.wire import calls_of, message, protobuf

from fluvial.processors.dead_letter import dead_letter
from fluvial.processors.redact import Redactor
from fluvial.schemas.codec import Undecodable, encode
from fluvial.schemas.formats import Message, read
from fluvial.schemas.formats.cut import cut

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "53995c3f42cd8ad8"
SECRETS = {
    "github": "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ2bD4fG6hJ8",
    "aws": "AKIA" + "Q3EGR7TYU2WXZ5LM",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJlLW5vdC1yZWFs",
    "private_key": "private_key=0x" + "3f9a71c2e84b06d5" * 4,
}
SEED = "legal winner thank year wave sausage worth useful legal winner thank yellow"


def otlp(given: dict[str, str], binary: bool = False, **fields: Any) -> Message:
    attributes = [{"key": name, "value": {"stringValue": text}} for name, text in given.items()]
    whole = {"traceId": TRACE, "spanId": SPAN, "name": "execute_tool swap", "attributes": attributes} | fields
    batch = {"resourceSpans": [{"scopeSpans": [{"spans": [whole]}]}]}
    return message(protobuf(batch) if binary else batch)


def evaluation(name: str) -> Message:
    attributes = [
        {"key": "event.name", "value": {"stringValue": "gen_ai.evaluation.result"}},
        {"key": "gen_ai.evaluation.name", "value": {"stringValue": name}},
        {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 0.5}},
    ]
    record = {"traceId": TRACE, "spanId": SPAN, "attributes": attributes, "eventName": "gen_ai.evaluation.result"}
    return message({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})


def mcp(headers: dict[str, str] | None = None, **response: Any) -> Message:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "swap"}}
    answer = {"jsonrpc": "2.0", "id": 1} | (response or {"result": {"content": []}})
    return message({"request": request, "response": answer}, headers)


def failed(*content: str) -> Message:
    return mcp(result={"isError": True, "content": [{"type": "text", "text": text} for text in content]})


def event(**attributes: str) -> Message:
    given = {"specversion": "1.0", "id": "e", "source": "/s", "type": "tool_call", "subject": "r"} | attributes
    return message(given | {"data": {"tool": "swap"}}, {"content-type": "application/cloudevents+json"})


CUTS: dict[str, tuple[int, Callable[[str], Message]]] = {
    "label": (1_024, lambda text: otlp({"fluvial.label.note": text})),
    "label in protobuf": (1_024, lambda text: otlp({"fluvial.label.note": text}, binary=True)),
    "agent": (256, lambda text: otlp({"gen_ai.agent.name": text})),
    "conversation": (256, lambda text: otlp({"gen_ai.conversation.id": text})),
    "chain": (128, lambda text: otlp({"fluvial.chain": text})),
    "error type": (256, lambda text: otlp({"error.type": text})),
    "error of a span": (65_536, lambda text: otlp({}, status={"code": 2, "message": text})),
    "evaluation": (256, evaluation),
    "parent id": (64, lambda text: otlp({}, parentSpanId=text)),
    "time": (40, lambda text: otlp({}, startTimeUnixNano=text)),
    "MCP source": (256, lambda text: mcp({"source": text})),
    "MCP session": (256, lambda text: mcp({"mcp-session-id": text})),
    "MCP code": (256, lambda text: mcp(error={"code": text, "message": "no"})),
    "MCP error": (65_536, lambda text: mcp(error={"code": 1, "message": text})),
    "MCP error as JSON": (65_536, lambda text: mcp(error={"code": 1, "message": {"a": text}})),
    "MCP text": (65_536, failed),
    "MCP texts": (65_536, lambda text: failed("a", text)),
    "source of an event": (256, lambda text: event(source=text)),
    "subject of an event": (256, lambda text: event(subject=text)),
    "version of an event": (20, lambda text: event(specversion=text)),
    "fields of a row": (40, lambda text: message({text: 1})),
}


def stored(given: Message) -> str:
    """All that is kept of the message: its calls and parts, or the letter that says why there are none."""
    try:
        reading = read(given)
    except Undecodable as error:
        return dead_letter(hop="h", topic="t", partition=0, offset=0, reason=str(error), value=b"", key="", at=0).reason
    redactor = Redactor()
    calls = [redactor.call(call)[0] for call in calls_of(given)]
    parts = [redactor.value(json.loads(encode(parts)))[0] for parts in reading.parts]
    letters = [redactor.text(problem)[0] for problem in reading.problems]
    return json.dumps([json.loads(encode(calls)), parts, letters])


@pytest.mark.parametrize("place", CUTS)
@pytest.mark.parametrize("kind", SECRETS)
def test_of_a_secret_across_a_cut_nothing_is_stored(place: str, kind: str) -> None:
    most, of = CUTS[place]
    secret = SECRETS[kind]
    bare = secret.removeprefix("private_key=0x")
    for inside in {1, 9, len(secret) // 2, len(secret) - 1}:
        for before in (" ", '"'):
            text = ("no. " * (most // 4 + 1))[: max(most - inside - 1, 0)] + before + secret + " no." * 20
            kept = stored(of(text))
            assert not any(bare[at : at + 9] in kept for at in range(len(bare) - 8)), (inside, kept[-300:])


def test_what_is_short_stays_and_what_is_long_ends_before_a_split_word() -> None:
    assert cut("a word", 6) == "a word"
    assert cut("a word more", 6) == "a word"
    assert cut("a word more", 8) == "a word"
    assert cut('{"a":"word"}', 8) == '{"a":"'
    assert cut("word" * 100, 8) == ""


@pytest.mark.parametrize("most", [1_024, 65_536])
@pytest.mark.parametrize("inside", [3, 30, len(SEED) - 2])
def test_of_a_seed_phrase_across_the_end_of_a_text_nothing_is_left(most: int, inside: int) -> None:
    text = ("no. " * most)[: most - inside - 1] + " " + SEED + " no." * 20
    kept = cut(text, most)
    assert most // 2 < len(kept) < most
    assert not set(SEED.split()) & set(kept.split())
