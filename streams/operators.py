"""What operators wrote into `insight-ops`: as true as `tool-calls`, and no hop makes it again."""

from collections.abc import Iterator

from msgspec import Struct

from fluvial.schemas.codec import decode
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import INSIGHT_OPS, KEEP
from fluvial.streams.epochs import OPERATOR, origin_of
from fluvial.streams.log_reader import LogReader, LogRecord


class Copy(Struct, frozen=True):
    """A record as it is to be written again; `time` is the Kafka record's, microseconds UTC."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    time: int


def copy_of(record: LogRecord) -> Copy:
    return Copy(record.key, record.value, record.headers, record.time)


def operators_records(reader: LogReader, prefix: str = "") -> Iterator[Copy]:
    """Every record of `insight-ops` that no hop sent, in order, with headers that name the epoch it was handled in.

    That is the last tick that every origin had passed when it came (streams/epochs.py), as the log says. Raises
    BrokerAway, TopicMissing.
    """
    origins = [
        origin_of(hop.name, tp.partition)
        for hop in KEEP.upstream()
        for tp in reader.partitions(hop.source.named(prefix))
    ]
    reached = dict.fromkeys(origins, 0)
    for record in reader.read(reader.spans(reader.partitions(INSIGHT_OPS.named(prefix)))):
        headers = dict(record.headers)
        origin, epoch = headers.get("origin", b"").decode("utf-8", "replace"), headers.get("epoch", b"")
        if record.is_tick:
            if origin in reached:
                reached[origin] = max(reached[origin], decode(record.value or b"", Tick).slot)
        elif "origin" not in headers:
            yield _in_epoch(record, min(reached.values()))
        elif origin == OPERATOR and epoch.isdigit():
            yield _in_epoch(record, int(epoch))
        elif origin not in reached:
            yield copy_of(record)  # its headers are no hop's: it becomes a dead letter again


def _in_epoch(record: LogRecord, epoch: int) -> Copy:
    return Copy(record.key, record.value, (("origin", OPERATOR.encode()), ("epoch", b"%d" % epoch)), record.time)
