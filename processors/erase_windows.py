"""Erasure in the windows of gather: rows of forgotten calls leave open panes and what lanes carry."""

from collections.abc import Set

from msgspec.structs import replace

from fluvial.processors.window import Windows
from fluvial.schemas.codec import encode


def erase_rows(windows: Windows, event_ids: Set[str]) -> None:
    """Take the rows of these events out. A pane without rows is no pane any more; the lanes' watermarks stay."""
    touched = {key.rpartition(":")[0] for key, row in windows.rows.items() if row.event_id in event_ids}
    for key in sorted(touched):
        _thin_out(windows, key, event_ids)
    for name in sorted(windows.carried):
        carried = windows.carried[name]
        left = tuple(row for row in carried.rows if row.event_id not in event_ids)
        if not left:
            del windows.carried[name]
        elif len(left) < len(carried.rows):
            windows.carried[name] = replace(carried, rows=left)


def _thin_out(windows: Windows, key: str, event_ids: Set[str]) -> None:
    pane = windows.panes[key]
    rows = [windows.rows.pop(f"{key}:{number}") for number in range(pane.n)]
    left = [row for row in rows if row.event_id not in event_ids]
    for number, row in enumerate(left):
        windows.rows[f"{key}:{number}"] = row
    if left:
        size = sum(len(encode(row)) for row in left)
        windows.panes[key] = replace(pane, n=len(left), late=min(pane.late, len(left)), size=size)
    else:
        del windows.panes[key]
        lane = windows.lanes[pane.lane]
        windows.lanes[pane.lane] = replace(lane, open=tuple(start for start in lane.open if start != pane.start))
