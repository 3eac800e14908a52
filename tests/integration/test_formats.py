"""What agents emit already, through a real river to episodes: OpenTelemetry's SDK and Collector, CloudEvents, MCP."""

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from support.balance import assert_balanced
from support.collector import BINARY, Collector
from support.emitter import SERVICE, Emitted, Emitter
from support.recorded import MAPPING
from support.up import Up
from support.wire import message, rows

from fluvial.schemas.codec import decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.episode import Episode
from fluvial.schemas.formats import Message
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import AGENT_EVENTS, DEAD_LETTERS, OTLP_SPANS, TOOL_CALLS, Topic
from fluvial.sinks.episodes import EpisodeStore
from fluvial.streams.admin import delete_topics, ensure_topics, topic_names
from fluvial.streams.drain import drain
from fluvial.streams.log_reader import LogReader, decoded
from fluvial.streams.progress import HopStatus, status

needs_collector = pytest.mark.skipif(not BINARY.is_file(), reason="`make collector` has not built the Collector")


class Foreign:
    """A running river, and messages in foreign formats for it."""

    def __init__(self, broker: str, prefix: str, data: Path) -> None:
        self.broker, self.prefix, self.data = broker, prefix, data

    def send(self, topic: Topic, messages: Iterable[Message]) -> None:
        with KafkaProducer(bootstrap_servers=self.broker) as producer:
            for one in messages:
                headers = list(one.headers.items())
                producer.send(topic.named(self.prefix), one.value, key=one.key.encode() or None, headers=headers)

    def drained(self) -> dict[str, Episode]:
        """The episodes by id, once everything has come to its end and the balance is closed."""
        drain(self.broker, 100, self.prefix)
        assert_balanced(self.broker, self.prefix, self.data)
        return {episode.id: episode for episode in EpisodeStore.open(self.data / "episodes").all()}

    def read(self, topic: Topic, kind: type[Any]) -> list[Any]:
        with LogReader(self.broker) as reader:
            return list(decoded(reader.read(reader.spans(reader.partitions(topic.named(self.prefix)))), kind))

    def hop(self, name: str) -> HopStatus:
        with LogReader(self.broker) as reader:
            return status(reader, self.prefix, [name])[0]


@pytest.fixture(scope="module")
def river(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    prefix, data = f"t{uuid.uuid4().hex[:12]}-", tmp_path_factory.mktemp("formats") / "data"
    ensure_topics(kafka, prefix=prefix)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLUVIAL_")}
    own = {"BROKER": kafka, "TOPIC_PREFIX": prefix, "DATA": str(data), "QUACK_PORT": "0", "MAPPING": str(MAPPING)}
    up = Up(inherited | {f"FLUVIAL_{name}": value for name, value in own.items()})
    try:
        up.until("ready", "receive", "land", "learn", "keep")
        yield Foreign(kafka, prefix, data)
    finally:
        up.interrupt()
        up.close()
        delete_topics(kafka, sorted(name for name in topic_names(kafka) if name.startswith(prefix)))


def assert_landed(episodes: dict[str, Episode], emitted: Emitted, conversation: str) -> None:
    """The two calls of an emitter's run are episodes, and its MCP span is none of its own."""
    run = {one.id: one for one in episodes.values() if one.run_id == conversation}
    assert run.keys() == set(emitted)
    swap, quote = run[emitted.swap], run[emitted.quote]
    for episode in (swap, quote):
        assert (episode.source, episode.agent_id, episode.model) == (SERVICE, "trader", "gpt-4o")
        assert episode.metrics["latency_ms"] > 0
    assert (swap.tool, swap.status, swap.reward, swap.metrics["slippage_bps"]) == ("swap", "ok", 0.75, 12.5)
    assert (swap.args_json, decode(swap.outcome_json.encode(), str)) == ('{"usd":500}', '{"price": 1713.2}')
    assert (quote.status, quote.error_type, quote.error_message) == ("error", "timeout", "no answer in 5 s")


@pytest.mark.parametrize("json", [False, True], ids=["protobuf", "json"])
def test_spans_of_the_sdk_become_episodes_with_agent_model_conversation_and_reward(river: Foreign, json: bool) -> None:
    emitter = Emitter.to_kafka(river.broker, river.prefix, json=json)
    runs = {f"talk-{json}-{number}": emitter.run(f"talk-{json}-{number}") for number in range(5)}
    emitter.close()
    with LogReader(river.broker) as reader:
        spans = reader.spans(reader.partitions(OTLP_SPANS.named(river.prefix)))
    assert sum(end > 0 for _, end in spans.values()) > 1, "the parts of a trace come by several partitions"
    episodes = river.drained()
    for conversation, emitted in runs.items():
        assert_landed(episodes, emitted, conversation)


@needs_collector
@pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
def test_spans_by_way_of_the_collector_become_the_same_episodes(river: Foreign, encoding: str, tmp_path: Path) -> None:
    with Collector(tmp_path, river.broker, river.prefix, encoding) as collector:
        emitter = Emitter.to_collector(collector.port)
        emitted = emitter.run(f"collected-{encoding}")
        emitter.close()
    assert_landed(river.drained(), emitted, f"collected-{encoding}")


def test_a_call_that_ended_in_any_format_before_a_drain_is_an_episode_after_it(river: Foreign) -> None:
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "lookup", "arguments": {}}}
    answer = {"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "found"}]}}
    envelope = {"specversion": "1.0", "source": "desk", "type": "tool_call", "subject": "any-run"}
    pair = {"request": call | {"id": 1}, "response": answer | {"id": 1}}
    structured = {"content-type": "application/cloudevents+json"}
    river.send(
        AGENT_EVENTS,
        [
            message(envelope | {"id": "00f067aa0ba90201", "data": {"tool": "lookup"}}, structured),
            message(call | {"id": 2}, key="session-1"),  # still under way: no event yet
            message(call | {"id": 3}, key="session-1"),
            message(answer | {"id": 3}, {"mcp-session-id": "session-1"}),
            message({"source": "mapped", "run_id": "any-run", "tool": "lookup", "is_error": True}),
        ],
    )
    river.send(
        TOOL_CALLS,
        [
            message(envelope | {"id": "00f067aa0ba90202", "data": {"tool": "lookup"}}, structured),
            message(pair, key="session-2"),
            message(call | {"id": 9}, key="session-2"),
        ],
    )
    found = [one for one in river.drained().values() if one.tool == "lookup"]
    assert Counter((one.source, one.run_id, one.status) for one in found) == {
        ("desk", "any-run", "ok"): 2,
        ("mcp", "session-1", "ok"): 1,
        ("mapped", "any-run", "error"): 1,
        ("mcp", "session-2", "ok"): 1,
    }
    letters = [one for one in river.read(DEAD_LETTERS, DeadLetter) if one.key == "session-2"]
    assert [(one.hop, one.reason) for one in letters] == [
        ("land", "half a call of MCP is joined with its other half: send it to agent-events")
    ]


def test_sixty_real_calls_in_four_formats_are_sixty_events(river: Foreign, shared: Path) -> None:
    events = [
        message(row["value"], row["headers"], row["key"])
        for name in ("cloudevents_structured", "cloudevents_binary")
        for row in rows(shared, name)
    ]
    spans = rows(shared, "otlp_json")
    ids = [span["spanId"] for row in spans for span in row["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    before, dead = river.hop("land"), {name: river.hop(name).dead for name in ("spans", "events")}
    river.send(
        AGENT_EVENTS, [*events, *(message(pair, key=f"s{n}") for n, pair in enumerate(rows(shared, "mcp_tools_call")))]
    )
    river.send(OTLP_SPANS, [message(row) for row in spans])
    episodes = river.drained()
    published = Counter(call.event_id for call in river.read(TOOL_CALLS, ToolCall))
    nameless = sum(row["value"]["data"]["tool"] == "" for row in rows(shared, "cloudevents_structured"))
    assert len(set(ids)) == 60 and nameless == 4
    usable = set(ids) & episodes.keys()
    assert len(usable) == 60 - nameless
    assert all(published[event_id] == 4 for event_id in usable), "each of the four formats gives the same id"
    after = river.hop("land")
    assert (after.done - before.done, after.duplicate - before.duplicate) == (56, 3 * 56)
    assert river.hop("spans").dead - dead["spans"] == nameless
    assert river.hop("events").dead - dead["events"] == 3 * nameless
