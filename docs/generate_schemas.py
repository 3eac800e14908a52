"""Write docs/schemas/*.json, the JSON Schema of every record: `python docs/generate_schemas.py`."""

from pathlib import Path
from typing import Any

import msgspec

from fluvial.schemas.alert import Alert
from fluvial.schemas.call_part import CallParts
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import Insight, InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall

FOLDER = Path(__file__).parent / "schemas"
RECORDS: dict[str, type[msgspec.Struct]] = {
    "tool_call": ToolCall,
    "call_parts": CallParts,
    "episode": Episode,
    "drift_event": DriftEvent,
    "cluster": Cluster,
    "insight_op": InsightOp,
    "insight": Insight,
    "alert": Alert,
    "tick": Tick,
    "dead_letter": DeadLetter,
    "progress": Progress,
}


def schema_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema 2020-12 of a record as it is read: its tag `type` may be left out, unknown fields are ignored."""
    schema = msgspec.json.schema(record)
    for part in schema["$defs"].values():
        if "required" in part:
            part["required"] = [name for name in part["required"] if name != "type"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def pages() -> dict[Path, bytes]:
    """Every file with what belongs in it."""
    return {
        FOLDER / f"{name}.json": msgspec.json.format(msgspec.json.encode(schema_of(record))) + b"\n"
        for name, record in RECORDS.items()
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_bytes(text)
