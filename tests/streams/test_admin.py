"""The topics on a real broker: made as the table says, checked when they exist, small where they are compacted."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from fluvial.schemas.topics import (
    ALL_TOPICS,
    DEAD_LETTERS,
    EPISODES,
    FOREVER,
    LAND,
    OTLP_SPANS,
    SPANS,
    TOOL_CALLS,
    Topic,
)
from fluvial.streams import admin as administration
from fluvial.streams.admin import TopicMismatch, delete_topics, ensure_topics, is_ready, topic_names

Settings = Callable[[str], dict[str, str]]


@pytest.fixture
def admin(kafka: str) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        yield admin


@pytest.fixture
def settings(admin: Any) -> Settings:
    """The settings of a topic that are not the broker's defaults."""

    def of(name: str) -> dict[str, str]:
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        return {key: entry["value"] for key, entry in described["topic"][name].items()}

    return of


def test_topics_are_made_once_with_the_partitions_and_settings_of_the_table(
    kafka: str, topic_prefix: str, admin: Any, settings: Settings
) -> None:
    names = {topic.named(topic_prefix): topic for topic in ALL_TOPICS}
    there = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics(list(names))}
    assert there == {name: topic.partitions for name, topic in names.items()}
    assert ensure_topics(kafka, prefix=topic_prefix) == []
    for name, topic in names.items():
        assert topic.config().items() <= settings(name).items()


def test_what_is_kept_for_ever_is_on_the_disk_of_a_single_broker_before_it_is_acknowledged(
    topic_prefix: str, admin: Any, settings: Settings
) -> None:
    kept = {topic for topic in ALL_TOPICS if topic.retention_ms == FOREVER}
    alone = len(admin.describe_cluster()["brokers"]) == 1
    flushed = {t for t in ALL_TOPICS if settings(t.named(topic_prefix)).get("flush.messages") == "1"}
    assert flushed == (kept if alone else set())


def test_a_missing_topic_is_made_beside_those_that_exist(kafka: str, topic_prefix: str) -> None:
    name = EPISODES.named(topic_prefix)
    delete_topics(kafka, [name])
    assert ensure_topics(kafka, prefix=topic_prefix) == [name]
    assert is_ready(kafka)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        (replace(TOOL_CALLS, partitions=3), r"has 4 partition\(s\), and Fluvial needs 3\. Delete it"),
        (replace(EPISODES, retention_ms=1_000), r"has retention\.ms=31536000000, .* needs retention\.ms=1000\."),
        (
            replace(DEAD_LETTERS, compacted=True),
            r"has cleanup\.policy=delete, and Fluvial needs cleanup\.policy=comp",
        ),
    ],
)
def test_a_topic_with_other_settings_is_an_error_that_says_what_to_do(
    kafka: str, topic_prefix: str, topic: Topic, says: str
) -> None:
    with pytest.raises(TopicMismatch, match=rf"The topic {topic.named(topic_prefix)} {says}.*FLUVIAL_TOPIC_PREFIX"):
        ensure_topics(kafka, [topic], topic_prefix)


def test_a_topic_for_smaller_records_is_an_error(kafka: str, topic_prefix: str, admin: Any) -> None:
    name = TOOL_CALLS.named(topic_prefix)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": "1000"})])
    with pytest.raises(TopicMismatch, match=rf"{name} has max\.message\.bytes=1000, .*--add-config max\.message\.byt"):
        ensure_topics(kafka, prefix=topic_prefix)


def partitions_of(admin: Any, name: str) -> int:
    (topic,) = admin.describe_topics([name])
    return len(topic["partitions"])


def test_a_topic_that_a_collector_has_made_is_taken_as_it_is_and_the_state_of_its_hop_fits(
    kafka: str, topic_prefix: str, admin: Any
) -> None:
    source, state = OTLP_SPANS.named(topic_prefix), SPANS.state_topic.named(topic_prefix)
    delete_topics(kafka, [source, state])
    admin.create_topics({source: {"num_partitions": 7, "replication_factor": 1, "configs": {"retention.ms": "60000"}}})
    admin.wait_for_topics([source])
    assert ensure_topics(kafka, prefix=topic_prefix) == [state]
    assert (partitions_of(admin, source), partitions_of(admin, state)) == (7, 7)
    admin.create_partitions({source: 9})
    with pytest.raises(TopicMismatch, match=rf"{state} has 7 .* one of 9\. .*--alter --topic {state} --partitions 9\."):
        ensure_topics(kafka, prefix=topic_prefix)


def test_deleting_is_of_these_topics_only(kafka: str, topic_prefix: str) -> None:
    delete_topics(kafka, [LAND.state_topic.named(topic_prefix)])
    names = {name for name in topic_names(kafka) if name.startswith(topic_prefix)}
    assert names == {t.named(topic_prefix) for t in ALL_TOPICS if t != LAND.state_topic}


def test_a_state_topic_becomes_about_as_small_as_the_state(kafka: str, topic_prefix: str) -> None:
    """Two segments of 16 MiB and a little, over ten keys: only the newest records of the closed ones stay."""
    place = TopicPartition(LAND.state_topic.named(topic_prefix), 0)
    with KafkaProducer(bootstrap_servers=kafka, max_request_size=2_000_000, acks="all") as producer:
        for number in range(80):
            producer.send(place.topic, b"%d" % number + bytes(500_000), key=b"%d" % (number % 10), partition=0)
    with KafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        deadline = time.monotonic() + 60
        offsets = list(range(80))
        while len(offsets) > 40:
            assert time.monotonic() < deadline, f"{len(offsets)} records are still there"
            time.sleep(1)
            consumer.seek(place, 0)
            offsets = []
            while consumer.position(place) < 80:
                offsets += [record.offset for records in consumer.poll(500).values() for record in records]
    assert offsets[-10:] == list(range(70, 80))


def test_the_topics_are_made_once_by_the_command_for_containers(kafka: str, topic_prefix: str) -> None:
    environment = {**os.environ, "FLUVIAL_BROKER": kafka, "FLUVIAL_TOPIC_PREFIX": f"{topic_prefix}x-"}
    for expected in (len(ALL_TOPICS), 0):
        said = subprocess.run(
            [sys.executable, "-m", "fluvial.streams.admin"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(said.stdout.splitlines()) == expected


def test_a_broker_that_is_away_ends_that_command_with_1_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUVIAL_BROKER", "127.0.0.1:1")
    monkeypatch.setattr(administration.wait_for_broker, "__defaults__", (0.1,))
    assert administration.main() == 1
    assert capsys.readouterr().err.startswith("No Kafka broker answers at 127.0.0.1:1.")
