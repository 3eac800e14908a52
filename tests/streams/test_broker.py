"""The local broker: what it keeps, when it ends, and what it says when it cannot run. Real Apache Kafka throughout."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from fluvial.schemas.topics import TOOL_CALLS
from fluvial.streams import broker_jars
from fluvial.streams.admin import BrokerAway, ensure_topics, wait_for_broker
from fluvial.streams.broker import LocalBroker
from fluvial.streams.broker_error import BrokerError

PARENT = """
import sys, threading, time
from pathlib import Path
from fluvial.streams.broker import LocalBroker

broker = LocalBroker(Path(sys.argv[1]))
starter = threading.Thread(target=broker.start)
starter.start()
starter.join()
time.sleep(2)  # the thread that started the broker is gone, the broker is not
print(broker.pid if broker.ended() is None else "ended", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of this module's own, in a folder whose name is no plain one."""
    with LocalBroker(tmp_path_factory.mktemp("a") / "données, 2 = 1%" / "kafka") as broker:
        yield broker


def publish(address: str, values: list[bytes]) -> None:
    with KafkaProducer(bootstrap_servers=address, enable_idempotence=True, max_request_size=5_000_000) as producer:
        for sent in [producer.send(TOOL_CALLS.name, value, partition=0) for value in values]:
            sent.get(timeout=30)


def published(address: str) -> list[bytes]:
    place = TopicPartition(TOOL_CALLS.name, 0)
    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        end, values = consumer.end_offsets([place])[place], []
        while consumer.position(place) < end:
            values += [record.value for records in consumer.poll(500).values() for record in records]
        return values


def cluster_id(broker: LocalBroker) -> str:
    lines = (broker.folder / "log" / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("cluster.id="))


def until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def test_a_second_start_goes_on_with_the_same_log_cluster_and_port(broker: LocalBroker) -> None:
    ensure_topics(broker.address, [TOOL_CALLS])
    publish(broker.address, [b"before"])
    address, cluster = broker.address, cluster_id(broker)
    assert (broker.folder / "address").read_text() == f"{address}\n"

    broker.stop()
    assert broker.ended() == 143  # SIGTERM, after it closed its log
    broker.start()
    pid = broker.pid
    broker.start()

    assert broker.pid == pid
    assert (broker.address, cluster_id(broker)) == (address, cluster)
    assert published(address) == [b"before"]


def test_kill_9_of_the_broker_loses_nothing_that_was_acknowledged(broker: LocalBroker) -> None:
    ensure_topics(broker.address, [TOOL_CALLS])
    before = published(broker.address)
    values = [b"%d" % number for number in range(1_000)]
    publish(broker.address, values)
    assert broker.pid is not None and broker.ended() is None

    os.kill(broker.pid, signal.SIGKILL)
    until(lambda: broker.ended() is not None)
    assert broker.ended() == -signal.SIGKILL
    broker.start()

    assert published(broker.address) == before + values


def test_records_of_4_MiB_go_through(broker: LocalBroker) -> None:
    ensure_topics(broker.address, [TOOL_CALLS])
    largest = bytes(4 * 1_048_576 - 1_024)
    publish(broker.address, [largest] * 8)
    assert published(broker.address)[-8:] == [largest] * 8


def test_ctrl_c_in_the_terminal_does_not_reach_the_broker(broker: LocalBroker) -> None:
    assert broker.pid is not None
    assert os.getsid(broker.pid) != os.getsid(0)


def test_the_broker_listens_on_loopback_only(broker: LocalBroker) -> None:
    listening = [line.split() for line in Path(f"/proc/{broker.pid}/net/tcp").read_text().splitlines()[1:]]
    port = f"{int(broker.address.rpartition(':')[2]):04X}"
    assert {local for _, local, _, state, *_ in listening if state == "0A" and local.endswith(f":{port}")} <= {
        f"0100007F:{port}"
    }


def test_a_second_broker_on_the_same_folder_is_refused(broker: LocalBroker) -> None:
    with pytest.raises(BrokerError, match=rf"A broker already runs on .* \(started by process {os.getpid()}\)\. Use"):
        LocalBroker(broker.folder).start()
    wait_for_broker(broker.address, 10)


def test_a_port_in_use_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        broker = LocalBroker(tmp_path / "kafka", port)
        with pytest.raises(BrokerError, match=rf"Port {port} of 127\.0\.0\.1 is in use\. .*FLUVIAL_KAFKA_PORT"):
            broker.start()
    assert broker.pid is None
    assert not (tmp_path / "kafka" / "log").exists()


def test_kill_9_of_the_parent_ends_the_broker_and_the_folder_can_be_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        said = parent.stdout.readline().strip()
        parent.kill()
    assert said.isdigit()
    with LocalBroker(folder) as broker:
        wait_for_broker(broker.address, 10)
        assert is_gone(int(said))


def test_a_broker_that_ends_when_it_starts_is_shown_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "kafka" / "log"
    log.mkdir(parents=True)
    (log / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=7\n")
    broker = LocalBroker(tmp_path / "kafka")
    with pytest.raises(BrokerError, match=r"ended when it started \(code 1\); see .*kafka\.log") as caught:
        broker.start()
    assert "Stored node id 7 doesn't match previous node id 1" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 7


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16.0.2"])
def test_a_java_that_is_too_old_is_said(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path, f"""echo 'openjdk version "{version}" 2023-10-17' >&2""")
    number = version.removeprefix("1.").partition(".")[0]
    with pytest.raises(BrokerError, match=rf"/java is Java {number}, too old for Apache Kafka 4\. .*FLUVIAL_JAVA"):
        LocalBroker(tmp_path / "kafka", java=java).start()
    assert not (tmp_path / "kafka").exists()


@pytest.mark.parametrize(
    ("script", "says"), [("exit 3", "does not run as a Java"), ("echo hello", "does not say which Java it is")]
)
def test_a_program_that_is_no_java_is_said(tmp_path: Path, script: str, says: str) -> None:
    with pytest.raises(BrokerError, match=rf"{says}.*FLUVIAL_JAVA"):
        LocalBroker(tmp_path / "kafka", java=fake_java(tmp_path, script)).start()


def test_a_java_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"nowhere/java does not run as a Java .*No such file.*FLUVIAL_JAVA"):
        LocalBroker(tmp_path / "kafka", java=tmp_path / "nowhere" / "java").start()


def test_without_a_packaged_java_the_one_on_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, """echo 'openjdk version "11"' >&2""")
    monkeypatch.setattr("fluvial.streams.broker_java.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=rf"{tmp_path}/java is Java 11, too old"):
        LocalBroker(tmp_path / "kafka").start()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrokerError, match=r"No Java was found\."):
        LocalBroker(tmp_path / "kafka").start()


def test_a_first_start_without_network_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BrokerError, match=r"46 jars\) could not be fetched .*Connection refused\. It is fetched once"):
        LocalBroker(tmp_path / "kafka").start()
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_jar_that_is_not_what_the_lock_says_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jgo.maven import MavenContext

    def damaged(artifact: object) -> Path:
        file = tmp_path / "fetched.jar"
        file.write_bytes(b"half a jar")
        return file

    monkeypatch.setattr(type(MavenContext().project("g", "a").at_version("1").artifact()), "resolve", damaged)
    with pytest.raises(BrokerError, match=r"\.jar arrived damaged or changed \(its SHA-256 is [0-9a-f]{64}"):
        broker_jars.fetch_jars(tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, no folder")
    with pytest.raises(BrokerError, match=r"The folder .*/data/kafka cannot be used: .*--data"):
        LocalBroker(tmp_path / "data" / "kafka").start()


def test_a_broker_that_is_away_is_said_with_its_address() -> None:
    with pytest.raises(BrokerAway, match=r"No Kafka broker answers at 127\.0\.0\.1:1\. .*`fluvial up`"):
        wait_for_broker("127.0.0.1:1", timeout=0.2)
