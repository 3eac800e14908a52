"""Real calls of agents as the river sees them behind land, and the way from there to operations, without Kafka."""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import ValidationError

from fluvial.mapping import Unmappable, load_mapping
from fluvial.processors.distil import finish, learn
from fluvial.processors.features import features
from fluvial.processors.lessons import Lessons
from fluvial.processors.run_context import NEW_RUN, RunState, step
from fluvial.processors.window import SECOND, WindowPlan, Windows, place, sweep
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall, event_id_of

MAPPING = Path(__file__).parents[2] / "examples" / "mapping.toml"
NOW = 1_764_500_000 * SECOND
"""The tick clock when the calls are published; calls without time happen from then on."""


def recorded_calls(*files: Path, source: str = "") -> list[ToolCall]:
    """The calls of these logs in file order, of all sources or of one; those that would be refused are left out."""
    mapping = load_mapping(MAPPING)
    calls = []
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if source not in ("", row["source"]):
                    continue
                try:
                    calls.append(mapping.call(row))
                except (Unmappable, ValidationError):
                    continue
    return calls


def episodes(calls: Iterable[ToolCall]) -> list[Episode]:
    """What land makes of the calls, without the text to embed."""
    runs: dict[tuple[str, str], RunState] = {}
    landed = []
    for number, call in enumerate(calls):
        before = runs.get((call.source, call.run_id), NEW_RUN)
        context, runs[call.source, call.run_id] = step(before, call, 0)
        landed.append(
            Episode(
                id=event_id_of(call),
                source=call.source,
                run_id=call.run_id,
                tool=call.tool,
                status=call.status,
                started_at=NOW + number * 20_000 if call.started_at is None else call.started_at,
                text="",
                reflection_source="template",
                embedding_model="none",
                log_partition=0,
                log_offset=number,
                task_id=call.task_id,
                error_type=call.error_type,
                chain=call.chain,
                token_pair=call.token_pair,
                metrics=call.metrics,
                reward=call.reward,
                context=context,
                features=features(call, context, before),
            )
        )
    return landed


def clusters(landed: Iterable[Episode], plan: WindowPlan | None = None) -> list[Cluster]:
    """What gather makes of them, with a tick every hundred episodes and a flush at the end."""
    plan = plan or WindowPlan()
    windows, now, closed = Windows({}, {}, {}, {}), NOW, []
    for number, episode in enumerate(landed, 1):
        closed += place(windows, plan, episode, now)[0]
        if number % 100 == 0:
            now += 2 * SECOND
            closed += sweep(windows, plan, now)
    return closed + sweep(windows, plan, now, flush=True)


def distilled(
    stream: Iterable[Cluster], each: Callable[[Lessons], object] = lambda lessons: None
) -> tuple[list[InsightOp], Lessons]:
    """What distil makes of them, flush included; `each` sees the state after every cluster."""
    lessons = Lessons({}, {}, {}, {})
    ops = []
    for cluster in stream:
        ops += learn(lessons, cluster)
        each(lessons)
    return ops + finish(lessons), lessons


def last_words(ops: Iterable[InsightOp]) -> dict[str, str]:
    """The sentence of each insight as it stands, by id."""
    return {op.insight_id: op.content for op in ops if op.content}
