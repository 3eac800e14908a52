"""The jars of Apache Kafka: fetched once from Maven Central, checked against broker_jars.lock, kept for every project.

The lock names every jar with its SHA-256 (`make lock` writes it), so that nothing is resolved on a user's machine: the
broker that runs is the one that was tested. A jar enters the folder only whole and checked.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fluvial.streams.broker_error import BrokerError

KAFKA_VERSION = "4.3.1"
LOCK = Path(__file__).with_name("broker_jars.lock")
AT_ONCE = 8


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def locked_jars(lock: Path = LOCK) -> list[Jar]:
    """The jars of the lock: lines of `group:artifact:version sha256`, `#` begins a comment."""
    lines = (line.replace(":", " ").split() for line in lock.read_text().splitlines() if not line.startswith("#"))
    return [Jar(group, artifact, version, sha256) for group, artifact, version, sha256 in lines]


def cache_folder() -> Path:
    """Where the jars are kept: fluvial/kafka-VERSION in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fluvial" / f"kafka-{KAFKA_VERSION}"


def fetch_jars(folder: Path | None = None) -> list[Path]:
    """The jars of the broker in `folder` (default: the cache), fetching those that are not there.

    Raises BrokerError when they cannot be fetched, kept, or are not what the lock says.
    """
    folder = folder or cache_folder()
    jars = locked_jars()
    missing = [jar for jar in jars if not (folder / jar.file).is_file()]
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as fetched:
                _fetch(missing, Path(fetched), folder)
        except OSError as error:
            raise BrokerError(
                f"Apache Kafka {KAFKA_VERSION} ({len(missing)} jars) could not be fetched into {folder}: "
                f"{_why(error)}. It is fetched once: connect this machine to the network, or use a broker that runs "
                "(--broker)."
            ) from error
    return [folder / jar.file for jar in jars]


def _fetch(jars: Iterable[Jar], fetched: Path, folder: Path) -> None:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=fetched)

    def fetch(jar: Jar) -> None:
        try:
            path: Path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except RuntimeError:  # jgo's word for a repository that has no such file
            raise FileNotFoundError(f"the repository does not have {jar.file}") from None
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != jar.sha256:
            raise BrokerError(
                f"{jar.file} arrived damaged or changed (its SHA-256 is {found}, {LOCK.name} says {jar.sha256}). "
                "Try again; if it stays so, something between here and Maven Central changes what is fetched."
            )
        path.replace(folder / jar.file)

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for _ in pool.map(fetch, jars):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def _why(error: OSError) -> str:
    """The innermost cause: what a library wraps around it is long and says less."""
    cause: BaseException = error
    while inner := cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__):
        cause = inner
    return str(cause) or type(cause).__name__
