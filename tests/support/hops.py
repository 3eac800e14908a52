"""Two small hops in the places of land and gather, and the process that runs one of them.

`python -m support.hops relay|adder BROKER PREFIX` with the folder tests/ on the path.
"""

import asyncio
import signal
import sys
from typing import Any

from msgspec import Struct

from fluvial.schemas.cluster import Cluster
from fluvial.schemas.episode import Episode
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, EPISODES, GATHER, LAND
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn


class Sum(Struct, frozen=True):
    total: int
    seen: tuple[str, ...] = ()


class Relay(Hop):
    """Every call becomes an episode; the tool is its key."""

    plan = LAND

    def on_record(self, turn: Turn, arrival: Arrival[ToolCall]) -> None:
        call = arrival.record
        turn.emit(EPISODES, call.tool, episode(call, arrival))
        turn.count("done")


class Adder(Hop):
    """Adds up `seq` a tool and says the running total."""

    plan = GATHER

    def on_record(self, turn: Turn, arrival: Arrival[Episode]) -> None:
        sums = turn.table("sums", Sum)
        old = sums.get(arrival.key, Sum(0))
        new = sums[arrival.key] = Sum(old.total + (arrival.record.seq or 0))
        row = Cluster(id=arrival.record.id, source="s", tool=arrival.key, window_start=0, window_end=new.total)
        turn.emit(CLUSTERS, arrival.key, row)
        turn.count("done")


def episode(call: ToolCall, arrival: Arrival[Any]) -> Episode:
    return Episode(
        id=call.event_id,
        source=call.source,
        run_id=call.run_id,
        tool=call.tool,
        status=call.status,
        started_at=call.started_at or arrival.timestamp,
        text="",
        reflection_source="template",
        embedding_model="none",
        seq=call.seq,
        log_partition=arrival.partition,
        log_offset=arrival.offset,
    )


async def run(kind: type[Hop], broker: str, prefix: str) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hop = kind(broker, prefix=prefix)
    await hop.start()
    await stop.wait()
    await hop.stop()


if __name__ == "__main__":
    asyncio.run(run({"relay": Relay, "adder": Adder}[sys.argv[1]], sys.argv[2], sys.argv[3]))
