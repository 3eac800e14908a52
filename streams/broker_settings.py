"""How the local broker runs: one node for one machine, small, and careful with what it was given.

Measured on two shared cores (Java 25, JDK flags below): starts in 3 s, 190 MB after the start and 245 MB under load
(G1 and C2: 3.5 s, 226 and 348 MB, and twice the CPU time for the same transactions).

**Durability.** What is acknowledged is in the page cache: kill -9 of the broker loses nothing. Against a power cut,
topics that are the truth are flushed before they are acknowledged (streams/admin.py: `flush.messages=1`), everything
else once a second: flushing each append of every topic makes a transaction 2.7 times slower here, and far more on a
disk that takes its time. What a power cut takes with it (at most the last second of derived topics and of state) can be
rebuilt from the truth.
"""

from collections.abc import Mapping, Sequence

from fluvial.schemas.topics import MAX_RECORD_BYTES

NODE = 1
MIB = 1_048_576
LONGEST_MS = 2_147_483_647
"""The largest value of a setting that is a 32-bit integer: 24 days in milliseconds."""

JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djdk.nio.maxCachedBufferSize=262144",  # or every thread keeps a buffer as large as the largest record it saw
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dlog4j2.configurationFile=log4j2.properties",
)


def server_properties(port: int, controller_port: int) -> dict[str, str]:
    """The settings of the broker; paths are relative to its folder, where it is started."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE),
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "log",
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "metadata.max.idle.interval.ms": "0",  # an idle broker writes nothing
        # One replica of everything, and few partitions of Kafka's own topics (default 50 each).
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "8",
        "offsets.topic.segment.bytes": str(8 * MIB),
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.segment.bytes": str(8 * MIB),
        # Nothing is forgotten because nobody came for a while.
        "offsets.retention.minutes": str(10 * 366 * 24 * 60),
        "transactional.id.expiration.ms": str(LONGEST_MS),
        "log.retention.ms": "-1",
        # Readers wait for a transaction left open: end it soon after its time is up.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
        "group.initial.rebalance.delay.ms": "0",
        # After kill -9 the new process waits until the old one's session is over: 12.2 s until it leads its partitions
        # with the default of 9 s, 3.7 s with this. Both ends of the session are in one process, which pauses as one.
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        # Records of 4 MiB, and a bound to what is held of requests (the heap has 256 MiB).
        "message.max.bytes": str(MAX_RECORD_BYTES),
        "replica.fetch.max.bytes": str(MAX_RECORD_BYTES),
        "socket.request.max.bytes": str(32 * MIB),
        "queued.max.request.bytes": str(64 * MIB),
        # Small files and few threads.
        "log.segment.bytes": str(128 * MIB),
        "log.index.size.max.bytes": str(MIB),
        "log.cleaner.threads": "1",
        "log.cleaner.backoff.ms": "5000",
        "log.cleaner.dedupe.buffer.size": str(8 * MIB),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "group.coordinator.threads": "1",
        # See Durability.
        "log.flush.interval.ms": "1000",
        "log.flush.scheduler.interval.ms": "500",
        "log.initial.task.delay.ms": "1000",
    }


def log4j2_properties(log: str) -> dict[str, str]:
    """Kafka's own log: one file of at most 8 MiB and two former ones."""
    return {
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": log,
        "appender.file.filePattern": f"{log}.%i",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{ISO8601} %-5p %m (%c{1})%n",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "8MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": "2",
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file; names and values are ASCII."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def arguments_text(options: Sequence[str]) -> str:
    """An argument file of `java`: one quoted option a line."""
    return "".join('"{}"\n'.format(option.replace("\\", "\\\\").replace('"', '\\"')) for option in options)
