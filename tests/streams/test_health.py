"""Whether a hop does its work, as a container engine asks."""

import time
from typing import Any

import pytest

from fluvial.schemas.progress import Progress
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import LAND, TOOL_CALLS
from fluvial.streams.health import main, standing_still
from fluvial.streams.progress import HopStatus


def hop(lag: int, last_progress: int | None) -> HopStatus:
    return HopStatus(
        "land", read=0, emitted=0, done=0, dead=0, duplicate=0, late=0, lag=lag, last_progress=last_progress
    )


@pytest.mark.parametrize(
    ("lag", "last_progress", "still"),
    [
        (0, None, False),
        (0, 1_000_000, False),
        (1, 41_000_000, False),
        (1, 39_000_000, True),
        (1, None, True),
    ],
)
def test_a_hop_stands_still_when_records_wait_and_nothing_was_committed_for_long(
    lag: int, last_progress: int | None, still: bool
) -> None:
    assert standing_still([hop(lag, last_progress)], now=100_000_000, seconds=60.0) == ["land"] * still


def test_each_hop_is_looked_at_by_itself(dry_river: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_BROKER", dry_river.broker)
    monkeypatch.setenv("FLUVIAL_TOPIC_PREFIX", dry_river.prefix)
    main(["land"])
    dry_river.write(TOOL_CALLS, [ToolCall(source="shop", run_id="1", tool="search")] * 2)
    with pytest.raises(SystemExit, match="fluvial: standing still with work to do: land"):
        main(["land"])
    main(["watch"])
    dry_river.reach(LAND, Progress(resume=1, at=time.time_ns() // 1_000), [0])
    main(["land"])


def test_a_name_that_is_no_hop_is_told() -> None:
    with pytest.raises(SystemExit, match="'sea' is no hop"):
        main(["sea"])
