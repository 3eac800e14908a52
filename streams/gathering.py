"""Which open window a call is in, as the state topic of gather says."""

from collections.abc import Collection

import msgspec

from fluvial.processors.window import Carried, Pane
from fluvial.schemas.cluster import Row
from fluvial.schemas.topics import GATHER
from fluvial.streams.log_reader import LogReader
from fluvial.streams.state import State


def gathering(reader: LogReader, wanted: Collection[str], prefix: str = "") -> dict[str, Pane]:
    """The open window of each of these events that is in one; of those that wait for the next window, the last one.

    Reads the whole state, which is as large as the open windows. Raises BrokerAway, TopicMissing.
    """
    states = {tp: State() for tp in reader.partitions(GATHER.state_topic.named(prefix))}
    for record in reader.read(reader.spans(states)):
        if record.key and not record.key.startswith(b"\x00"):
            states[record.partition].load(record.key, record.value)
    found: dict[str, Pane] = {}
    for state in states.values():
        panes = state.table("panes", Pane)
        for place, row in state.table("rows", Row).items():
            if row.event_id in wanted:
                found[row.event_id] = panes[place.rpartition(":")[0]]
        for carried in state.table("carried", Carried).values():
            pane = msgspec.structs.replace(carried.pane, n=len(carried.rows))
            found |= {row.event_id: pane for row in carried.rows if row.event_id in wanted}
    return found
