"""The broker's administration: is it there, has it the topics of schemas/topics.py as they must be.

`python -m fluvial.streams.admin` makes the topics on the broker of the settings; `fluvial up` does so by itself.
"""

import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from fluvial.schemas.topics import ALL_TOPICS, FOREVER, Topic
from fluvial.settings import Settings

LOOK_SECONDS = 5.0
"""How long one look at the broker may take."""
REQUEST_SECONDS = 30.0

CHECKED = ("cleanup.policy", "retention.ms", "max.message.bytes")
"""Settings of a topic that must be as they are here; the others are a matter of speed and space."""

_WHAT_TO_DO = "Start the local one with `fluvial up`, or name one that runs with --broker host:port."


class BrokerAway(RuntimeError):
    """No broker answers; the message says where it was sought."""


class TopicMismatch(RuntimeError):
    """A topic exists with other settings; the message says which and what to do."""


def is_ready(broker: str, seconds: float = LOOK_SECONDS) -> bool:
    """Whether the broker (host:port[,host:port]) answers and leads every partition it knows: its log is recovered."""
    try:
        with _administration(broker, seconds) as admin:
            topics = admin.describe_topics()
    except BrokerAway:
        return False
    return all(partition["leader_id"] >= 0 for topic in topics for partition in topic["partitions"])


def wait_for_broker(broker: str, timeout: float = 60.0) -> None:
    """Return once a broker answers at `broker`. Raises BrokerAway after `timeout` seconds."""
    deadline, pause = time.monotonic() + timeout, 0.1
    while True:
        left = deadline - time.monotonic()
        try:
            with _administration(broker, min(LOOK_SECONDS, max(left, 1.0))):
                return
        except BrokerAway:
            if left <= 0:
                raise
        time.sleep(min(pause, max(left, 0.0)))
        pause = min(2 * pause, 2.0)


def ensure_topics(broker: str, topics: Iterable[Topic] = ALL_TOPICS, prefix: str = "") -> list[str]:
    """Create the topics that are missing and check those that exist; the names of those created.

    Replicas are the broker's default (one on the local one). Where there is a single broker, topics that are kept for
    ever are flushed to disk before a record is acknowledged: no replica would have it after a power cut.

    Raises BrokerAway, and TopicMismatch for the first topic with other partitions, clean-up, retention or record size.
    """
    wanted = {topic.named(prefix): topic for topic in topics}
    with _administration(broker, REQUEST_SECONDS) as admin:
        there = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        missing = [name for name in wanted if name not in there]
        alone = len(admin.describe_cluster()["brokers"]) == 1
        for name in missing:
            _create(admin, name, wanted[name], alone)
        admin.wait_for_topics(missing)
        existing = [name for name in wanted if name in there]
        settings = _settings(admin, existing)
    for name in existing:
        _check(name, wanted[name], there[name], settings[name])
    return missing


def delete_topics(broker: str, names: Sequence[str]) -> None:
    """Delete these topics and their records, and return when they are gone.

    Raises BrokerAway, KafkaError (no such topic, or not gone after 30 s).
    """
    if not names:
        return
    with _administration(broker, REQUEST_SECONDS) as admin:
        admin.delete_topics(list(names))
        deadline = time.monotonic() + REQUEST_SECONDS
        while set(names) & set(admin.list_topics()):  # the controller has forgotten them, brokers hear of it later
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"not gone after {REQUEST_SECONDS:g} s: {', '.join(names)}")
            time.sleep(0.05)


def topic_names(broker: str) -> set[str]:
    """The topics on the broker, Kafka's own apart. Raises BrokerAway."""
    with _administration(broker, REQUEST_SECONDS) as admin:
        return {topic["name"] for topic in admin.describe_topics() if not topic["is_internal"]}


def _create(admin: KafkaAdminClient, name: str, topic: Topic, alone: bool) -> None:
    config = topic.config() | ({"flush.messages": "1"} if alone and topic.retention_ms == FOREVER else {})
    with suppress(TopicAlreadyExistsError):  # another process was faster
        admin.create_topics({name: {"num_partitions": topic.partitions, "replication_factor": -1, "configs": config}})


def _settings(admin: KafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings in force of these topics."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    described = admin.describe_configs(resources, config_filter="all")["topic"]
    return {name: {key: entry["value"] for key, entry in described[name].items()} for name in names}


def _check(name: str, topic: Topic, partitions: int, settings: dict[str, str]) -> None:
    if partitions != topic.partitions:
        raise TopicMismatch(
            f"The topic {name} has {partitions} partition(s), and Fluvial needs {topic.partitions}. Delete it (its "
            "records go with it), or keep Fluvial's topics apart with another FLUVIAL_TOPIC_PREFIX."
        )
    wanted = topic.config()
    wrong = {key: settings[key] for key in CHECKED if key in wanted and settings[key] != wanted[key]}
    if wrong:
        has = ", ".join(f"{key}={value}" for key, value in wrong.items())
        needs = ",".join(f"{key}=[{wanted[key]}]" if "," in wanted[key] else f"{key}={wanted[key]}" for key in wrong)
        raise TopicMismatch(
            f"The topic {name} has {has}, and Fluvial needs {needs}. Set that (kafka-configs.sh --alter --topic {name} "
            f"--add-config {needs}), or keep Fluvial's topics apart with another FLUVIAL_TOPIC_PREFIX."
        )


@contextmanager
def _administration(broker: str, seconds: float) -> Iterator[KafkaAdminClient]:
    """A client of one of the brokers. Raises BrokerAway when none answers within so many seconds."""
    if not any(_listens(address) for address in broker.split(",")):
        raise BrokerAway(f"No Kafka broker answers at {broker}. {_WHAT_TO_DO}")
    admin: Any = None
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=broker.split(","),
            request_timeout_ms=int(seconds * 1_000),
            bootstrap_timeout_ms=int(seconds * 1_000),
        )
        yield admin
    except KafkaError as error:
        if admin is None:
            raise BrokerAway(f"No Kafka broker answers at {broker} ({type(error).__name__}). {_WHAT_TO_DO}") from error
        if error.retriable:
            raise BrokerAway(f"The Kafka broker at {broker} did not do in time what it was asked: {error}") from error
        raise
    finally:
        if admin is not None:
            admin.close()


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=LOOK_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def main() -> int:
    """Make the topics and name those that were missing; 1 when the broker is away or a topic is another."""
    settings = Settings()
    broker = settings.broker_address()
    try:
        wait_for_broker(broker)
        for name in ensure_topics(broker, prefix=settings.topic_prefix):
            print(name)
    except (BrokerAway, TopicMismatch, KafkaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
