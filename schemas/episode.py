"""Episode: a tool call after validation and redaction, with its reflection and its place in its run."""

from msgspec import Struct

from fluvial.schemas.types import Scalar, Status


class RunContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was known of the run before this call: the calls of the same run that landed earlier."""

    calls_before: int = 0
    errors_before: int = 0
    errors_in_a_row: int = 0
    same_call_before: int = 0
    """How often the identical call (tool and arguments) was made earlier in this run."""
    same_call_failed: bool = False
    previous_tool: str | None = None
    previous_status: Status | None = None
    previous_error_type: str | None = None


class Episode(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="episode"):
    """One landed call. `id` is the call's event id; `text` is what was embedded; times in microseconds UTC.

    The vector (float32[384], unit length) is a column of the episode store only: no hop behind land needs it.
    """

    id: str
    source: str
    run_id: str
    tool: str
    status: Status
    started_at: int
    text: str
    reflection_source: str
    embedding_model: str
    log_partition: int
    log_offset: int
    ended_at: int | None = None
    time_given: bool = True
    """False where the call had no time and took that of its Kafka record."""
    task_id: str | None = None
    agent_id: str | None = None
    model: str | None = None
    seq: int | None = None
    call_id: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    chain: str | None = None
    token_pair: str | None = None
    labels: dict[str, str] = {}
    metrics: dict[str, float] = {}
    reward: float | None = None
    args_json: str = "null"
    outcome_json: str = "null"
    importance: float = 0.0
    regime: str | None = None
    redactions: int = 0
    taint: float = 0.0
    """1 - trust in the source: 0 is trusted."""
    context: RunContext = RunContext()
    features: dict[str, Scalar] = {}
    """What was known of the call before its outcome, flat: see processors/features.py."""
    schema_version: int = 1


def stream_key(tool: str, chain: str | None, token_pair: str | None) -> str:
    """The key of the `episodes` topic: tool|chain|token_pair, empty where a call has none."""
    return f"{tool}|{chain or ''}|{token_pair or ''}"
