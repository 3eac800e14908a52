"""The one table of topics: name, key, record, partitions, retention."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fluvial.schemas.alert import Alert
from fluvial.schemas.call_part import CallParts
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall

FOREVER = -1
WEEK_MS = 7 * 86_400_000
YEAR_MS = 365 * 86_400_000
DERIVED_BYTES = 2 * 1_073_741_824
"""Of each partition of a topic that can be rebuilt: a hop may stand still for as long as this takes to fill."""
MAX_RECORD_BYTES = 4 * 1_048_576

COMPACTION = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1_048_576),
    "segment.ms": str(10 * 60_000),
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": str(60 * 60_000),
}
"""A state topic stays about as small as the state: only closed segments are compacted, so they are closed soon."""


@dataclass(frozen=True)
class Topic:
    """One topic. `producers` are the hops whose ticks a reader waits for (streams/hop.py)."""

    name: str
    key: str
    record: type[Any]
    partitions: int
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    compacted: bool = False
    producers: tuple[str, ...] = ()
    time: str = "at"
    """The field of the record that orders it in time."""
    foreign: bool = False
    """Others write here, in formats of their own, and may have made the topic, with as many partitions as they like.

    No ticks are in it: what has to wait goes on into a topic of ours.
    """

    def named(self, prefix: str) -> str:
        """The topic's name on the broker: the setting `topic_prefix` keeps several rivers on one broker apart."""
        return prefix + self.name

    def config(self) -> dict[str, str]:
        """The topic's settings as Kafka names them."""
        config = {"max.message.bytes": str(MAX_RECORD_BYTES)}
        if self.compacted:
            return config | COMPACTION
        return config | {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
        }


OTLP_SPANS = Topic("otlp_spans", "trace id or none", bytes, 4, foreign=True)
OTLP_LOGS = Topic("otlp_logs", "trace id or none", bytes, 4, foreign=True)
AGENT_EVENTS = Topic("agent-events", "any", bytes, 4, foreign=True)
CALL_PARTS = Topic("call-parts", "trace id or session", CallParts, 4)
TOOL_CALLS = Topic("tool-calls", "source|run_id", ToolCall, 4, FOREVER, time="started_at")
EPISODES = Topic(
    "episodes", "tool|chain|token_pair", Episode, 4, YEAR_MS, DERIVED_BYTES, producers=("land",), time="started_at"
)
CLUSTERS = Topic("clusters", "source", Cluster, 4, YEAR_MS, DERIVED_BYTES, producers=("gather",), time="window_end")
DRIFT = Topic(
    "drift",
    "tool|chain|token_pair|metric",
    DriftEvent,
    4,
    YEAR_MS,
    DERIVED_BYTES,
    producers=("watch",),
    time="detected_at",
)
INSIGHT_OPS = Topic("insight-ops", "insight_id", InsightOp, 1, FOREVER, producers=("watch", "distil"))
ALERTS = Topic("alerts", "fingerprint", Alert, 1, producers=("notify",))
DEAD_LETTERS = Topic("dead-letters", "hop", DeadLetter, 1, FOREVER)


@dataclass(frozen=True)
class HopPlan:
    """What a hop reads and writes. Its state topic has one partition a partition of its source."""

    name: str
    source: Topic
    outputs: tuple[Topic, ...] = field(default=())

    @property
    def state_topic(self) -> Topic:
        return Topic(f"{self.name}-state", "table, key", bytes, self.source.partitions, compacted=True)

    def upstream(self) -> tuple["HopPlan", ...]:
        """The hops that write to the source and whose ticks this one waits for."""
        return tuple(HOPS[name] for name in self.source.producers)


SPANS = HopPlan("spans", OTLP_SPANS, (TOOL_CALLS, CALL_PARTS))
LOGS = HopPlan("logs", OTLP_LOGS, (TOOL_CALLS, CALL_PARTS))
EVENTS = HopPlan("events", AGENT_EVENTS, (TOOL_CALLS, CALL_PARTS))
JOIN = HopPlan("join", CALL_PARTS, (TOOL_CALLS,))
LAND = HopPlan("land", TOOL_CALLS, (EPISODES,))
WATCH = HopPlan("watch", EPISODES, (DRIFT, INSIGHT_OPS))
GATHER = HopPlan("gather", EPISODES, (CLUSTERS,))
DISTIL = HopPlan("distil", CLUSTERS, (INSIGHT_OPS,))
KEEP = HopPlan("keep", INSIGHT_OPS)
NOTIFY = HopPlan("notify", DRIFT, (ALERTS,))

HOPS = {plan.name: plan for plan in (SPANS, LOGS, EVENTS, JOIN, LAND, WATCH, GATHER, DISTIL, KEEP, NOTIFY)}
FOREIGN_TOPICS = (OTLP_SPANS, OTLP_LOGS, AGENT_EVENTS)
OWN_TOPICS = (CALL_PARTS, TOOL_CALLS, EPISODES, CLUSTERS, DRIFT, INSIGHT_OPS, ALERTS, DEAD_LETTERS)
STREAM_TOPICS = FOREIGN_TOPICS + OWN_TOPICS
ALL_TOPICS = STREAM_TOPICS + tuple(plan.state_topic for plan in HOPS.values())


@cache
def senders(topic: Topic) -> tuple[str, ...]:
    """The hops that write to a topic, whether or not its reader waits for their ticks."""
    return tuple(plan.name for plan in HOPS.values() if topic in plan.outputs)
