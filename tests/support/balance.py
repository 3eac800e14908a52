"""The whole balance of a river: every record is in an output, a store, a dead letter or a counter, and once."""

from collections import Counter
from pathlib import Path

from fluvial.schemas.codec import decode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.topics import DEAD_LETTERS, HOPS
from fluvial.sinks.episodes import EpisodeStore
from fluvial.sinks.insights_query import NoInsights, ask
from fluvial.streams.balance import open_flows
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import HopStatus, status


def assert_balanced(broker: str, prefix: str, data: Path | None = None, *, forgotten: int = 0) -> None:
    """Fails with what does not add up. Hops that do not run are no fault: what is sent to them waits.

    With `data`, the folder of the stores (drained, so that the snapshot is young): rows are what hops say they have
    done; `forgotten` is how many episodes were erased (`fluvial forget`) after they had landed.
    """
    with LogReader(broker, timeout=30) as reader:
        hops = {hop.hop: hop for hop in status(reader, prefix)}
        flows = open_flows(reader, prefix)
        spans = reader.spans(reader.partitions(DEAD_LETTERS.named(prefix)))
        letters = {letter.id: letter.hop for r in reader.read(spans) if (letter := decode(r.value or b"", DeadLetter))}
    assert {name: hop.unaccounted for name, hop in hops.items() if hop.unaccounted} == {}
    assert flows == []
    died = Counter(letters.values())
    assert {name: died[name] for name in HOPS} == {name: hop.dead for name, hop in hops.items()}
    if data is not None:
        _assert_stored(data, hops, forgotten)


def _assert_stored(data: Path, hops: dict[str, HopStatus], forgotten: int) -> None:
    if hops["land"].read:
        episodes = [episode.id for episode in EpisodeStore.open(data / "episodes").all()]
        assert len(episodes) == len(set(episodes)) == hops["land"].done - forgotten
    query = "SELECT count(*) FROM operations WHERE refused IS NULL"
    try:
        ((operations,),) = ask(query, data / "keep", data / "insights.duckdb").rows
    except NoInsights:
        operations = 0
    assert operations == hops["keep"].done
