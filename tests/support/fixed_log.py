"""tests/golden/log: a small log with fixed times and ticks, one erasure in it, and how it gets into a topic."""

import json
from pathlib import Path

from kafka import KafkaProducer

from fluvial.schemas.codec import encode
from fluvial.schemas.topics import TOOL_CALLS

FOLDER = Path(__file__).parents[1] / "golden" / "log"
LOG = FOLDER / "tool_calls.jsonl"
DIGEST = FOLDER / "digest.json"
ERASED = 4
"""Calls of the run that a tick in the log asks to forget."""
REDACTION_KEY = "a key for tests, and for nothing else"


def write(broker: str, prefix: str) -> None:
    """Put the log into `tool-calls`, with the Kafka times it has."""
    producer = KafkaProducer(bootstrap_servers=broker, metrics_enabled=False)
    for text in LOG.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        value = line["text"].encode() if "text" in line else encode(line.get("call") or line["tick"])
        headers = [("record", b"tick")] if "tick" in line else []
        key = line["key"].encode() if "key" in line else None
        producer.send(TOOL_CALLS.named(prefix), value, key, headers, line["partition"], line["time_ms"])
    producer.close()
