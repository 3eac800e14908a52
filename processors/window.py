"""Event-time windows over a stream of episodes: episodes in, clusters out; state is given in and handed back.

A pane is one window of one lane; a lane is a (source, tool, chain, token_pair). A pane closes when it is full, when the
lane's watermark (its largest event time) passes the window's end and the allowed lateness, when a tick finds it due, or
when a tick asks to flush. Rows of a pane that closes with too few wait for the lane's next pane to close. A lane that
is forgotten meanwhile, idle for long or one of too many, sends them out as a cluster, however small: none is lost.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from fluvial.processors.idle import idle
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import encode
from fluvial.schemas.episode import Episode
from fluvial.schemas.ids import stable_id

SECOND = 1_000_000
DAY = 86_400 * SECOND
MOST_ROW_BYTES = 8_192
LANES_KEPT = 10_000
"""Lanes without an open pane that a partition keeps."""
LANE_IDLE = 7 * DAY
"""How long such a lane is kept after its last episode, microseconds of tick time."""


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """How windows are cut. Times in microseconds, sizes in bytes of JSON."""

    length: int = 4 * 3_600 * SECOND
    most: int = 100
    fewest: int = 3
    lateness: int = 600 * SECOND
    idle: int = 60 * SECOND
    most_bytes: int = 524_288

    def window_of(self, at: int) -> int:
        """Start of the aligned window that holds the time `at`."""
        return at - at % self.length

    def passed(self, start: int, watermark: int) -> bool:
        """Whether a window is over, allowed lateness included."""
        return start + self.length + self.lateness <= watermark


class Lane(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`open`: starts of the panes that the watermark will close (late ones wait for ticks); `touched` as in Pane."""

    watermark: int | None = None
    open: tuple[int, ...] = ()
    touched: int = 0


class Pane(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open window. `touched` is the tick clock when its last row came, 0 where there was none yet."""

    lane: str
    source: str
    tool: str
    start: int
    end: int
    chain: str | None = None
    token_pair: str | None = None
    n: int = 0
    late: int = 0
    size: int = 0
    touched: int = 0


class Carried(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of closed panes that were too few for a cluster, and those panes as one."""

    rows: tuple[Row, ...]
    pane: Pane


@dataclass(frozen=True)
class Windows:
    """The state: lanes by lane id, panes by `lane:start`, rows by `lane:start:number`, what is carried by lane id."""

    lanes: MutableMapping[str, Lane]
    panes: MutableMapping[str, Pane]
    rows: MutableMapping[str, Row]
    carried: MutableMapping[str, Carried]


def row_of(episode: Episode) -> Row:
    """The episode as evidence, at most MOST_ROW_BYTES long: its last features are left out beyond that."""
    row = Row(
        event_id=episode.id,
        run_id=episode.run_id,
        failed=episode.status == "error",
        at=episode.started_at,
        task_id=episode.task_id,
        error_type=episode.error_type,
        reward=episode.reward,
        features=episode.features,
    )
    while row.features and (size := len(encode(row))) > MOST_ROW_BYTES:
        keep = min(len(row.features) - 1, len(row.features) * MOST_ROW_BYTES // size)
        row = msgspec.structs.replace(row, features=dict(list(row.features.items())[:keep]))
    return row


def place(windows: Windows, plan: WindowPlan, episode: Episode, now: int) -> tuple[list[Cluster], bool]:
    """Put an episode into its pane: (clusters that close by it, whether it came late).

    `now` is the tick clock, 0 before the first tick; times more than a day ahead of it do not move the watermark.
    """
    name = stable_id(episode.source, episode.tool, episode.chain, episode.token_pair)
    lane = windows.lanes.get(name, Lane())
    start = plan.window_of(episode.started_at)
    late = lane.watermark is not None and plan.passed(start, lane.watermark)
    key = f"{name}:{start}"
    pane = windows.panes.get(key) or Pane(
        lane=name,
        source=episode.source,
        tool=episode.tool,
        chain=episode.chain,
        token_pair=episode.token_pair,
        start=start,
        end=start + plan.length,
    )
    row = row_of(episode)
    windows.rows[f"{key}:{pane.n}"] = row
    pane = msgspec.structs.replace(
        pane, n=pane.n + 1, late=pane.late + late, size=pane.size + len(encode(row)), touched=now
    )
    windows.panes[key] = pane

    opened = lane.open if late or start in lane.open else (*lane.open, start)
    counts = now == 0 or episode.started_at <= now + DAY
    seen = [at for at in (lane.watermark, episode.started_at if counts else None) if at is not None]
    lane = Lane(watermark=max(seen, default=None), open=opened, touched=now)
    windows.lanes[name] = lane

    waiting = windows.carried.get(name)
    full = pane.n + (len(waiting.rows) if waiting else 0) >= plan.most or pane.size >= plan.most_bytes
    over = [s for s in sorted(opened) if lane.watermark is not None and plan.passed(s, lane.watermark)]
    closing = [f"{name}:{s}" for s in over if not (full and s == start)] + ([key] if full else [])
    return [cluster for k in closing if (cluster := _close(windows, plan, k))], late


def sweep(windows: Windows, plan: WindowPlan, at: int, flush: bool = False) -> list[Cluster]:
    """A tick has come: the clusters of the panes that are due, or of all panes to flush, in the order of their keys.

    A pane is due once nothing came for `idle` and its window is over, lateness included; or, whatever its window (event
    times may lie in the future), once nothing came for as long as a window and its lateness.
    """
    clusters = []
    for key in sorted(windows.panes):
        pane = windows.panes[key]
        if not pane.touched:
            pane = windows.panes[key] = msgspec.structs.replace(pane, touched=at)
        over = max(pane.end + plan.lateness, pane.touched + plan.idle)
        abandoned = pane.touched + plan.length + plan.lateness
        if (flush or at >= min(over, abandoned)) and (cluster := _close(windows, plan, key)):
            clusters.append(cluster)
    return clusters


def forget(windows: Windows, at: int) -> list[Cluster]:
    """Forget the lanes without an open pane that are idle for too long or too many, the longest idle first.

    What they carried goes out as clusters, which may be small. An episode that still comes for such a lane begins it
    anew: it is not late.
    """
    held = {pane.lane for pane in windows.panes.values()}
    touched = {name: lane.touched for name, lane in windows.lanes.items() if name not in held}
    clusters = []
    for name in idle(touched, at, LANE_IDLE, LANES_KEPT):
        del windows.lanes[name]
        if waiting := windows.carried.pop(name, None):
            clusters.append(_cluster(waiting.pane, waiting.rows))
    return clusters


def _close(windows: Windows, plan: WindowPlan, key: str) -> Cluster | None:
    """Take the pane out of the state; its cluster, or None where its rows are too few and are carried on."""
    pane = windows.panes.pop(key)
    lane = windows.lanes[pane.lane]
    if pane.start in lane.open:
        still = tuple(s for s in lane.open if s != pane.start)
        windows.lanes[pane.lane] = msgspec.structs.replace(lane, open=still)
    rows = tuple(windows.rows.pop(f"{key}:{n}") for n in range(pane.n))
    waiting = windows.carried.pop(pane.lane, None)
    if waiting:
        rows = (*waiting.rows, *rows)
        before = waiting.pane
        start, end = min(pane.start, before.start), max(pane.end, before.end)
        pane = msgspec.structs.replace(pane, start=start, end=end, late=pane.late + before.late)
    if len(rows) < plan.fewest:
        windows.carried[pane.lane] = Carried(rows=rows, pane=pane)
        return None
    return _cluster(pane, rows)


def _cluster(pane: Pane, rows: tuple[Row, ...]) -> Cluster:
    return Cluster(
        id=stable_id("cluster", pane.lane, pane.start, pane.end, [row.event_id for row in rows]),
        source=pane.source,
        tool=pane.tool,
        chain=pane.chain,
        token_pair=pane.token_pair,
        window_start=pane.start,
        window_end=pane.end,
        rows=rows,
        late=pane.late,
    )
