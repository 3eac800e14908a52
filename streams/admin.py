"""The broker's administration: is it there, has it the topics of schemas/topics.py as they must be.

`python -m fluvial.streams.admin` makes the topics on the broker of the settings; `fluvial up` does so by itself.
"""

import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    TopicAlreadyExistsError,
)
from kafka.structs import OffsetAndMetadata

from fluvial.schemas.topics import ALL_TOPICS, FOREVER, HOPS, Topic
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
    ever are flushed to disk before a record is acknowledged: no replica would have it after a power cut. A topic that
    others write to is taken as they have made it.

    Raises BrokerAway, and TopicMismatch for the first topic with other partitions, clean-up, retention or record size.
    """
    wanted = {topic.named(prefix): topic for topic in topics}
    with _administration(broker, REQUEST_SECONDS) as admin:
        there = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        _fit_to_foreign(wanted, there, prefix)
        missing = [name for name in wanted if name not in there]
        alone = len(admin.describe_cluster()["brokers"]) == 1
        for name in missing:
            _create(admin, name, wanted[name], alone)
        admin.wait_for_topics(missing)
        existing = [name for name in wanted if name in there and not wanted[name].foreign]
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


def delete_before(broker: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Delete the records before these offsets; readers meet them no more on return, the disk some minutes later.

    Raises BrokerAway, KafkaError.
    """
    with _administration(broker, REQUEST_SECONDS) as admin:
        admin.delete_records(dict(offsets))


def topic_names(broker: str) -> set[str]:
    """The topics on the broker, Kafka's own apart. Raises BrokerAway."""
    with _administration(broker, REQUEST_SECONDS) as admin:
        return {topic["name"] for topic in admin.describe_topics() if not topic["is_internal"]}


def _fit_to_foreign(wanted: dict[str, Topic], there: Mapping[str, int], prefix: str) -> None:
    """The state of a hop gets as many partitions as others have given to the topic it reads."""
    for plan in HOPS.values():
        name = plan.state_topic.named(prefix)
        made = there.get(plan.source.named(prefix), 0) if plan.source.foreign else 0
        if name in wanted and made > wanted[name].partitions:
            wanted[name] = replace(wanted[name], partitions=made)


def groups(broker: str, prefix: str) -> dict[str, int]:
    """The consumer groups whose names begin with the prefix, and how many members each has. Raises BrokerAway."""
    with _administration(broker, REQUEST_SECONDS) as admin:
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                names = [one["group_id"] for one in admin.list_groups() if one["group_id"].startswith(prefix)]
                described = admin.describe_groups(names) if names else {}
                break
            except CoordinatorLoadInProgressError:  # the broker has just made its topic of groups, or started
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    return {name: len(group["members"]) for name, group in described.items()}


def delete_groups(broker: str, names: Sequence[str]) -> None:
    """Delete these consumer groups; one that is not there is none. Raises BrokerAway, KafkaError (it has members)."""
    if not names:
        return
    with _administration(broker, REQUEST_SECONDS) as admin:
        told = admin.delete_groups(list(names))
    if left := [f"{name} ({what})" for name, what in told.items() if what not in ("OK", "GroupIdNotFoundError")]:
        raise KafkaError(f"not deleted: {', '.join(left)}")


def move_group(broker: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Have a consumer group without members go on from these offsets. Raises BrokerAway, KafkaError."""
    with _administration(broker, REQUEST_SECONDS) as admin:
        told = admin.alter_group_offsets(group, {tp: OffsetAndMetadata(at, "", -1) for tp, at in offsets.items()})
    if failed := [what for what in told.values() if what is not NoError]:
        raise failed[0](f"the group {group} could not be moved")


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
    if topic.compacted and partitions < topic.partitions:
        raise TopicMismatch(
            f"The topic {name} has {partitions} partition(s), and its hop reads one of {topic.partitions}. Give it as "
            f"many: kafka-topics.sh --alter --topic {name} --partitions {topic.partitions}."
        )
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
