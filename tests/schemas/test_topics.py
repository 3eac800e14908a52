"""The table of topics: what is created on the broker."""

from fluvial.schemas.topics import (
    ALERTS,
    ALL_TOPICS,
    CALL_PARTS,
    CLUSTERS,
    DEAD_LETTERS,
    DRIFT,
    EPISODES,
    FOREIGN_TOPICS,
    FOREVER,
    HOPS,
    INSIGHT_OPS,
    KEEP,
    LAND,
    OWN_TOPICS,
    STREAM_TOPICS,
    TOOL_CALLS,
)


def test_the_names_of_the_topics_are_those_scripts_rely_on() -> None:
    assert [topic.name for topic in ALL_TOPICS] == [
        "otlp_spans",
        "otlp_logs",
        "agent-events",
        "call-parts",
        "tool-calls",
        "episodes",
        "clusters",
        "drift",
        "insight-ops",
        "alerts",
        "dead-letters",
        "spans-state",
        "logs-state",
        "events-state",
        "join-state",
        "land-state",
        "watch-state",
        "gather-state",
        "distil-state",
        "keep-state",
        "notify-state",
    ]


def test_the_hops_stand_in_the_order_of_the_river() -> None:
    assert list(HOPS) == ["spans", "logs", "events", "join", "land", "watch", "gather", "distil", "keep", "notify"]


def test_the_truth_is_kept_for_ever_and_no_hop_loses_its_source_by_standing_still_for_a_while() -> None:
    kept = {topic.name for topic in STREAM_TOPICS if topic.retention_ms == FOREVER}
    assert kept == {"tool-calls", "insight-ops", "dead-letters"}
    ages = {topic.name: topic.retention_ms / 86_400_000 for topic in STREAM_TOPICS if topic.name not in kept}
    foreign = {"otlp_spans": 7, "otlp_logs": 7, "agent-events": 7}
    assert ages == foreign | {"call-parts": 7, "episodes": 365, "clusters": 365, "drift": 365, "alerts": 7}


def test_a_stream_is_deleted_by_age_and_state_is_compacted() -> None:
    assert EPISODES.config() == {
        "max.message.bytes": "4194304",
        "cleanup.policy": "delete",
        "retention.ms": "31536000000",
        "retention.bytes": "2147483648",
    }
    assert LAND.state_topic.config() == {
        "max.message.bytes": "4194304",
        "cleanup.policy": "compact",
        "segment.bytes": "16777216",
        "segment.ms": "600000",
        "min.cleanable.dirty.ratio": "0.2",
        "delete.retention.ms": "3600000",
    }


def test_the_order_of_the_operations_is_the_memory_so_they_have_one_partition() -> None:
    assert INSIGHT_OPS.partitions == 1


def test_a_state_topic_has_the_partitions_of_its_source() -> None:
    for plan in HOPS.values():
        assert plan.state_topic.partitions == plan.source.partitions
        assert plan.state_topic.name == f"{plan.name}-state"


def test_what_a_topic_waits_for_is_what_writes_to_it() -> None:
    for topic in (EPISODES, CLUSTERS, DRIFT, INSIGHT_OPS, ALERTS):
        assert set(topic.producers) == {plan.name for plan in HOPS.values() if topic in plan.outputs}
    assert TOOL_CALLS.producers == CALL_PARTS.producers == DEAD_LETTERS.producers == ()
    assert [plan.name for plan in KEEP.upstream()] == ["watch", "distil"]


def test_a_topic_is_ordered_in_time_by_a_field_of_its_record() -> None:
    for topic in OWN_TOPICS:
        assert topic.time in topic.record.__struct_fields__


def test_only_what_others_write_has_no_record_of_ours() -> None:
    assert {topic for topic in STREAM_TOPICS if topic.foreign} == set(FOREIGN_TOPICS)
    assert {topic for topic in STREAM_TOPICS if topic.record is bytes} == set(FOREIGN_TOPICS)


def test_a_prefix_keeps_rivers_on_one_broker_apart() -> None:
    assert TOOL_CALLS.named("blue-") == "blue-tool-calls"
    assert TOOL_CALLS.named("") == "tool-calls"
