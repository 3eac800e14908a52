"""Log records to evaluations: the event `gen_ai.evaluation.result` says how well the work of a span was found to be."""

import math
from typing import Any

from fluvial.schemas.call_part import EvaluationPart
from fluvial.schemas.formats.cut import cut
from fluvial.schemas.formats.message import Unusable
from fluvial.schemas.formats.otlp_values import LogRecord

EVENT = "gen_ai.evaluation.result"
_LABELS = {"pass": 1.0, "fail": 0.0}


def evaluation_of(record: LogRecord, at: int) -> EvaluationPart | None:
    """The evaluation in a record, None for every other event. `at`: the message's time in µs. Raises Unusable."""
    if record.event != EVENT:
        return None
    name = cut(str(record.attributes.get("gen_ai.evaluation.name") or ""), 256)
    if record.context is None:
        raise Unusable(f"the evaluation {name!r} belongs to no span: it needs trace id and span id")
    score = _score(record.attributes)
    if score is None:
        raise Unusable(
            f"the evaluation {name!r} of {record.context.span_id} has no finite score and neither pass nor fail"
        )
    return EvaluationPart(
        trace_id=record.context.trace_id,
        span_id=record.context.span_id,
        name=name,
        score=score,
        at=record.time // 1_000 or at,
    )


def _score(attributes: dict[str, Any]) -> float | None:
    value = attributes.get("gen_ai.evaluation.score.value")
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return _LABELS.get(str(attributes.get("gen_ai.evaluation.score.label")).lower()) if value is None else None
