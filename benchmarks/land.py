"""What landing costs without the topic: the real calls through Land's own batches into a fresh store.

    python benchmarks/land.py [--calls 11513] [--batch 256] [--shared ../shared]

Prints events/s of wall time and of CPU time, the share of each step, the memory and the size of the store.
"""

import argparse
import asyncio
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fluvial.mapping import Unmappable, load_mapping
from fluvial.processors.redact import Redactor
from fluvial.schemas.codec import Undecodable, decode, encode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.streams import land as module
from fluvial.streams.land import Land
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Turn

ROOT = Path(__file__).parents[1]
START = 1_764_547_200_000_000


def real_calls(shared: Path) -> list[ToolCall]:
    mapping = load_mapping(ROOT / "examples" / "mapping.toml")
    calls = []
    for file in sorted((shared / "data" / "agents").glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            try:
                calls.append(decode(encode(mapping.call(msgspec.json.decode(line))), ToolCall))
            except (Unmappable, Undecodable):
                continue
    return calls


class Watch:
    """Seconds spent in the steps of land."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, owner: Any, name: str) -> None:
        """Measure every call of `owner.name` from now on."""
        step: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return step(*args, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

        setattr(owner, name, timed)


def run(calls: list[ToolCall], batch: int, folder: Path) -> dict[str, Any]:
    land = Land("no broker", episodes=folder)
    land.load()
    watch = Watch()
    for owner, name in (
        (land._embedder, "embed"),
        (land._store, "merge"),
        (land._store, "positions"),
        (land._store, "maintain"),
        (Redactor, "call"),
        (module, "problem_of"),
        (module, "_episodes"),
    ):
        watch.time(owner, name)
    wall, cpu = time.perf_counter(), time.process_time()
    landed, duplicates = asyncio.run(feed(land, calls, batch))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "calls": len(calls),
        "batch": batch,
        "landed": landed,
        "duplicates": duplicates,
        "rows": land._store.count(),
        "events/s": round(len(calls) / wall, 1),
        "events/cpu-s": round(len(calls) / cpu, 1),
        "seconds": {name: round(seconds, 2) for name, seconds in watch.seconds.items()},
        "resident MB": int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 // 1_000_000,
        "store MB": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1),
    }


async def feed(land: Land, calls: list[ToolCall], batch: int) -> tuple[int, int]:
    """The calls in batches, a tick after each. Returns how many landed and how many were duplicates."""
    state, landed, duplicates = State(), 0, 0
    for start in range(0, len(calls), batch):
        turn = Turn("land", 0, state, Progress(resume=0, at=START + start * 30_000))
        part = [
            Arrival(one, f"{one.source}|{one.run_id}", "tool-calls", 0, place, START, encode(one))
            for place, one in enumerate(calls[start : start + batch], start)
        ]
        await land.handle(turn, [*part, Tick(slot=start + 1, at=turn.now + 1)])
        state.settle()
        landed += turn.progress.emitted
        duplicates += turn.progress.duplicate
    if land._maintenance is not None:
        await land._maintenance
    return landed, duplicates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=11_513)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(real_calls(options.shared)[: options.calls], options.batch, Path(folder))))


if __name__ == "__main__":
    main()
