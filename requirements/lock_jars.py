"""Write streams/broker_jars.lock: resolve the jars of Apache Kafka and note their SHA-256. `make lock` runs this."""

import hashlib
import tempfile
from pathlib import Path

from jgo.maven import MavenContext

from fluvial.streams.broker_jars import KAFKA_VERSION, LOCK

BROKER = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
LOGGING = "log4j-slf4j-impl"
"""Kafka logs to slf4j 1.7; its distribution brings this bridge, its artifact does not. Of log4j-core's own version."""

HEADER = f"""\
# The jars that run Apache Kafka {KAFKA_VERSION} and their SHA-256, as resolved from {BROKER}
# by requirements/lock_jars.py (`make lock`).
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(repo_cache=Path(folder))
        roots, rest = context.resolver.resolve([context.create_dependency(BROKER)])
        artifacts = [d.artifact for d in [*roots, *(d for d in rest if d.scope in ("compile", "runtime"))]]
        [core] = [a for a in artifacts if a.artifactId == "log4j-core"]
        artifacts.append(context.project(core.groupId, LOGGING).at_version(core.version).artifact())
        lines = [
            f"{a.groupId}:{a.artifactId}:{a.version} {hashlib.sha256(a.resolve().read_bytes()).hexdigest()}\n"
            for a in sorted(artifacts, key=lambda a: (a.groupId, a.artifactId))
        ]
    LOCK.write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
