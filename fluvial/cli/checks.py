"""What `fluvial doctor` looks at: each check says what it found and, if that is not well, what to do."""

import hashlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from fluvial.settings import Settings
from fluvial.streams.broker_ports import HOST, is_free

State = Literal["ok", "warn", "FAIL"]

LEAST_FREE = 200 * 1_048_576
"""Bytes without which Kafka and the stores soon stop."""
GOOD_FREE = 2 * 1_073_741_824
OLDEST_PYTHON = (3, 11)
NO_WORKERS = "none runs; `fluvial up` starts them"

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[.*?\])?\s*(==(?P<pin>[\w.+!-]+))?")


class Finding(NamedTuple):
    """FAIL stops `fluvial up`; warn does not."""

    check: str
    state: State
    detail: str


def findings(settings: Settings) -> Iterator[Finding]:
    """Every check in turn; none changes anything."""
    from fluvial.streams.admin import is_ready

    local = settings.broker is None
    started_once = (settings.kafka / "address").is_file()
    answers = (started_once or not local) and is_ready(settings.broker_address())
    yield python()
    yield packages()
    if local:
        yield java(settings.java)
        yield jars()
    yield data_folder(settings.data)
    yield broker(settings, answers)
    if local and not answers:
        yield kafka_port(settings.kafka_port)
    yield quack_port(settings.quack_port)
    if answers:
        yield topics(settings)
    yield workers(settings) if answers else Finding("workers", "ok", NO_WORKERS)
    yield model()
    yield extensions()


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("python", "ok", version)
    return Finding("python", "FAIL", f"{version} is too old: install Python 3.11 or newer")


def packages(name: str = "fluvial") -> Finding:
    """Whether the packages this one asks for are installed, the pinned ones in just that version."""
    try:
        asked = [text for text in metadata.requires(name) or () if "extra ==" not in text]
    except metadata.PackageNotFoundError:
        return Finding("packages", "warn", "Fluvial is not installed as a package, so nobody knows: `make setup`")
    wrong = []
    for requirement in asked:
        package, pin = _REQUIREMENT.match(requirement).group("name", "pin")  # type: ignore[union-attr]
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            wrong.append(f"{package} is missing")
            continue
        if pin and version != pin:
            wrong.append(f"{package} is {version} and must be {pin}")
    if wrong:
        return Finding("packages", "FAIL", f"{'; '.join(wrong)}: `make setup` installs what belongs together")
    return Finding("packages", "ok", f"{len(asked)} installed, as pinned")


def java(given: Path | None) -> Finding:
    from fluvial.streams.broker_error import BrokerError
    from fluvial.streams.broker_java import OLDEST, find_java

    try:
        found = find_java(find_java(given))  # the second time it is run, the packaged one too
    except BrokerError as error:
        return Finding("java", "FAIL", str(error))
    return Finding("java", "ok", f"{found} is Java {OLDEST} or newer")


def jars(folder: Path | None = None) -> Finding:
    """The jars of Kafka in the cache, each with the hash of the lock."""
    from fluvial.streams.broker_jars import KAFKA_VERSION, cache_folder, locked_jars

    folder = folder or cache_folder()
    wanted = locked_jars()
    there = [jar for jar in wanted if (folder / jar.file).is_file()]
    damaged = [jar.file for jar in there if _sha256(folder / jar.file) != jar.sha256]
    if damaged:
        return Finding("jars", "FAIL", f"{folder} holds damaged files: delete {', '.join(damaged)}, then `fluvial up`")
    if len(there) < len(wanted):
        missing = f"{len(wanted) - len(there)} of {len(wanted)} jars of Apache Kafka {KAFKA_VERSION} are not there yet"
        return Finding("jars", "warn", f"{missing}: `fluvial up` fetches them once (60 MB, needs the network)")
    return Finding("jars", "ok", f"Apache Kafka {KAFKA_VERSION} in {folder}")


def data_folder(folder: Path) -> Finding:
    """Whether the folder can be written, or made, and how much room there is."""
    exists = folder.absolute()
    while not exists.exists():
        exists = exists.parent
    try:
        with tempfile.TemporaryFile(dir=exists):
            free = shutil.disk_usage(exists).free
    except OSError as error:
        what = f"{exists} cannot be written ({error.strerror})"
        return Finding("data folder", "FAIL", f"{what}: change its permissions or choose another with --data")
    room = f"{folder.absolute()}, {free / 1_073_741_824:.1f} GiB free"
    if free < LEAST_FREE:
        return Finding("data folder", "FAIL", f"{room}: make room, or choose another disk with --data")
    if free < GOOD_FREE:
        return Finding("data folder", "warn", f"{room}: that is soon used up")
    return Finding("data folder", "ok", room)


def broker(settings: Settings, answers: bool) -> Finding:
    if answers:
        return Finding("broker", "ok", f"{settings.broker_address()} answers")
    if settings.broker is None:
        return Finding("broker", "ok", "the local one does not run; `fluvial up` starts it")
    return Finding("broker", "FAIL", f"{settings.broker} does not answer: start it, or name another with --broker")


def topics(settings: Settings) -> Finding:
    """The topics that exist against the table of schemas/topics.py."""
    from fluvial.schemas.topics import ALL_TOPICS
    from fluvial.streams.admin import BrokerAway, TopicMismatch, ensure_topics, topic_names

    address, prefix = settings.broker_address(), settings.topic_prefix
    try:
        names = topic_names(address)
        there = [topic for topic in ALL_TOPICS if topic.named(prefix) in names]
        ensure_topics(address, there, prefix)  # all of them exist: it only compares
    except (BrokerAway, TopicMismatch) as error:
        return Finding("topics", "FAIL", str(error))
    if len(there) < len(ALL_TOPICS):
        return Finding("topics", "ok", f"{len(ALL_TOPICS) - len(there)} are still to be made; `fluvial up` makes them")
    return Finding("topics", "ok", f"{len(there)} as they must be")


def workers(settings: Settings) -> Finding:
    from fluvial.cli.status import standstill
    from fluvial.streams.admin import BrokerAway
    from fluvial.streams.log_reader import LogReader, TopicMissing
    from fluvial.streams.progress import status

    try:
        with LogReader(settings.broker_address()) as reader:
            hops = status(reader, settings.topic_prefix)
    except TopicMissing:
        return Finding("workers", "ok", NO_WORKERS)
    except BrokerAway as error:
        return Finding("workers", "warn", str(error))
    warning = standstill(hops, time.time_ns() // 1_000, settings)
    return Finding("workers", "warn", warning) if warning else Finding("workers", "ok", "all hops move")


def kafka_port(number: int) -> Finding:
    if is_free(number):
        return Finding("kafka port", "ok", f"{HOST}:{number} is free" if number else "a free one will be taken")
    what = f"{HOST}:{number} is in use"
    return Finding("kafka port", "FAIL", f"{what}: end what uses it, or choose another with FLUVIAL_KAFKA_PORT")


def quack_port(number: int) -> Finding:
    """Keep takes another where this one is in use, and notes which."""
    if is_free(number):
        return Finding("quack port", "ok", f"{HOST}:{number} is free" if number else "a free one will be taken")
    return Finding("quack port", "ok", f"{HOST}:{number} is in use, by keep if it runs; else keep takes a free one")


def model() -> Finding:
    """Load the embedding model, whose files are checked against their hashes."""
    from fluvial.processors.embed import MODEL_ID, Embedder, ModelUnusable

    try:
        Embedder()
    except ModelUnusable as error:
        return Finding("model", "FAIL", str(error))
    return Finding("model", "ok", MODEL_ID)


def extensions(names: Sequence[str] = ("httpfs", "quack", "vss")) -> Finding:
    import duckdb

    from fluvial.sinks.extensions import ExtensionUnusable, load

    try:
        with duckdb.connect(":memory:") as connection:
            load(connection, *names)
    except ExtensionUnusable as error:
        return Finding("extensions", "FAIL", str(error))
    return Finding("extensions", "ok", f"DuckDB {duckdb.__version__} loads {', '.join(names)}")


def _sha256(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
