"""What every room's tests share: the real data beside the project, and Apache Kafka with fresh topics."""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from msgspec import Struct

from fluvial.schemas.codec import encode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import HopPlan, Topic
from fluvial.streams.admin import delete_topics, ensure_topics, topic_names, wait_for_broker
from fluvial.streams.broker import LocalBroker

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data folder of the tests' own in place of ./fluvial-data, also for the processes they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLUVIAL_DATA", str(tmp_path_factory.mktemp("fluvial-data")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data: FLUVIAL_SHARED, else `shared` beside the project."""
    folder = Path(os.environ.get("FLUVIAL_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there (FLUVIAL_SHARED names it)")
    return folder


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of Apache Kafka: FLUVIAL_TEST_KAFKA, else one local broker for the whole session of tests."""
    given = os.environ.get("FLUVIAL_TEST_KAFKA")
    if given:
        wait_for_broker(given)
        yield given
        return
    with LocalBroker(tmp_path_factory.mktemp("data") / "kafka") as broker:
        yield broker.address


@pytest.fixture
def topic_prefix(kafka: str) -> Iterator[str]:
    """A prefix of this test's own, with all topics of the river; they are deleted after the test.

    Real workers take it from FLUVIAL_TOPIC_PREFIX, hops in the test as `prefix=`.
    """
    prefix = f"t{uuid.uuid4().hex[:12]}-"
    ensure_topics(kafka, prefix=prefix)
    yield prefix
    delete_topics(kafka, sorted(name for name in topic_names(kafka) if name.startswith(prefix)))


class DryRiver:
    """The topics of a river without its hops: tests write what hops would have written, in transactions as hops do."""

    def __init__(self, broker: str, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.environment = {"FLUVIAL_BROKER": broker, "FLUVIAL_TOPIC_PREFIX": prefix}
        """What the command line takes to look at this river."""
        self._producer: Any = KafkaProducer(
            bootstrap_servers=broker, transactional_id=f"{prefix}dry-river", compression_type="lz4"
        )
        self._producer.init_transactions()

    def write(
        self,
        topic: Topic,
        records: Iterable[Struct | bytes | tuple[bytes, bytes]],
        partition: int = 0,
        *,
        abort: bool = False,
        origin: str = "",
        epoch: int = 0,
    ) -> None:
        """One transaction of records (or bytes, or keys and bytes) in one partition; with an origin as a hop's."""
        self._producer.begin_transaction()
        for record in records:
            key, value = record if isinstance(record, tuple) else (b"key", record)
            headers = [("record", b"tick")] if isinstance(value, Tick) else []
            headers += [("origin", origin.encode()), ("epoch", b"%d" % epoch)] if origin else []
            data = value if isinstance(value, bytes) else encode(value)
            self._producer.send(topic.named(self.prefix), data, key=key, partition=partition, headers=headers)
        self._producer.flush()
        if abort:
            self._producer.abort_transaction()
        else:
            self._producer.commit_transaction()

    def reach(self, plan: HopPlan, progress: Progress, partitions: Sequence[int] | None = None) -> None:
        """What a hop commits in each of these partitions (default: all): rows of its tables and, last, its progress."""
        rows = [(b"table\x1f%d" % number, b"{}") for number in range(3)]
        for partition in range(plan.source.partitions) if partitions is None else partitions:
            self.write(plan.state_topic, [*rows, (PROGRESS_KEY, encode(progress))], partition)

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def dry_river(kafka: str, topic_prefix: str) -> Iterator[DryRiver]:
    river = DryRiver(kafka, topic_prefix)
    yield river
    river.close()
