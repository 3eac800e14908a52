"""How far the hops have come, as the state topics say: the last record of every transaction is its Progress."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluvial.schemas.codec import decode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.topics import HOPS, HopPlan
from fluvial.streams.epochs import is_from_hop
from fluvial.streams.log_reader import LogReader, LogRecord

NOWHERE = Progress(resume=0)
LOOK = 2_000
"""Offsets of a partition that are looked at one by one to tell records from ticks."""

Place = tuple[str, int]
"""A partition of a hop: the hop's name and the partition of its source."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a partition's last transaction said, and when it was committed (microseconds UTC; None: never)."""

    progress: Progress
    at: int | None


@dataclass(frozen=True, slots=True)
class HopStatus:
    """One hop, all partitions together. `lag`: records of the source topic that are still to be handled.

    Ticks and transaction marks are told from records within the first 2,000 offsets a partition; beyond, they count.
    """

    hop: str
    read: int
    emitted: int
    done: int
    dead: int
    duplicate: int
    late: int
    lag: int
    last_progress: int | None

    @property
    def unaccounted(self) -> int:
        """Records that were read and of which nobody said what became of them; 0, or something is wrong."""
        return self.read - self.done - self.dead - self.duplicate - self.late


def marks(reader: LogReader, plans: Iterable[HopPlan], prefix: str = "") -> dict[Place, Mark]:
    """The last mark of every partition of these hops; one that never committed stands at its beginning.

    Raises BrokerAway, TopicMissing.
    """
    places = {
        tp: (plan.name, tp.partition) for plan in plans for tp in reader.partitions(plan.state_topic.named(prefix))
    }
    found = dict.fromkeys(places.values(), Mark(NOWHERE, None))
    for tp, record in reader.last(places, lambda r: r.key == PROGRESS_KEY).items():
        found[places[tp]] = Mark(decode(record.value or b"", Progress), record.time)
    return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records of a source partition that are still to be handled; `sent`: those of them that hops have sent.

    `exact` is False where more than the first 2,000 offsets wait: beyond, ticks and transaction marks count.
    """

    records: int
    sent: int
    exact: bool


def waiting(
    reader: LogReader, plans: Iterable[HopPlan], known: Mapping[Place, Mark], prefix: str = ""
) -> dict[Place, Waiting]:
    """What waits in each partition of these hops' sources. Raises BrokerAway, TopicMissing."""
    found: dict[Place, Waiting] = {}
    for plan in plans:
        spans = reader.spans(reader.partitions(plan.source.named(prefix)))
        came_to = {tp: mark.progress if (mark := known.get((plan.name, tp.partition))) else NOWHERE for tp in spans}
        starts = {tp: max(first, came_to[tp].resume) for tp, (first, _) in spans.items()}
        near = {tp: (start, min(spans[tp][1], start + LOOK)) for tp, start in starts.items()}
        records, sent = dict.fromkeys(spans, 0), dict.fromkeys(spans, 0)
        for record in reader.read(near):
            if _waits(record, plan, came_to[record.partition]):
                records[record.partition] += 1
                sent[record.partition] += is_from_hop(record.headers, plan.source)
        for tp, (_, end) in spans.items():
            beyond = max(0, end - starts[tp] - LOOK)
            found[plan.name, tp.partition] = Waiting(records[tp] + beyond, sent[tp], exact=beyond == 0)
    return found


def lags(
    reader: LogReader, plans: Iterable[HopPlan], known: Mapping[Place, Mark], prefix: str = ""
) -> dict[Place, int]:
    """Records that wait in each partition of these hops' sources, as HopStatus.lag counts them."""
    return {place: one.records for place, one in waiting(reader, plans, known, prefix).items()}


def _waits(record: LogRecord, plan: HopPlan, progress: Progress) -> bool:
    """Whether a record from `resume` on is still to be handled. A hop that aligns epochs (streams/epochs.py) has
    handled some that came after others which wait."""
    if record.is_tick or not plan.source.producers:
        return not record.is_tick
    headers = dict(record.headers)
    if "origin" not in headers:
        return record.offset > progress.plain
    epoch = headers.get("epoch", b"")
    return not epoch.isdigit() or int(epoch) >= progress.slot


def status(reader: LogReader, prefix: str = "", hops: Iterable[str] = HOPS) -> list[HopStatus]:
    """These hops (default: all, in the river's order). Raises BrokerAway, TopicMissing."""
    plans = [HOPS[name] for name in hops]
    known = marks(reader, plans, prefix)
    lag = lags(reader, plans, known, prefix)
    return [_sum(plan.name, known, lag) for plan in plans]


def _sum(hop: str, known: Mapping[Place, Mark], lag: Mapping[Place, int]) -> HopStatus:
    own = [mark for (name, _), mark in known.items() if name == hop]
    return HopStatus(
        hop=hop,
        read=sum(mark.progress.read for mark in own),
        emitted=sum(mark.progress.emitted for mark in own),
        done=sum(mark.progress.done for mark in own),
        dead=sum(mark.progress.dead for mark in own),
        duplicate=sum(mark.progress.duplicate for mark in own),
        late=sum(mark.progress.late for mark in own),
        lag=sum(count for (name, _), count in lag.items() if name == hop),
        last_progress=max((mark.at for mark in own if mark.at is not None), default=None),
    )
