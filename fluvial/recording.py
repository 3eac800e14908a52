"""Recording: a run of an agent, and a call in it that measures itself."""

import inspect
import time
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fluvial.plain import HEAD_CHARACTERS, plain, text
from fluvial.schemas.tool_call import ToolCall

if TYPE_CHECKING:
    from fluvial.publish import Publisher

RESULT_BYTES = 1_048_576
"""A result that is longer as JSON is recorded as its size and its beginning."""

current_run: ContextVar["Run | None"] = ContextVar("fluvial_run", default=None)
current_call: ContextVar["Call | None"] = ContextVar("fluvial_call", default=None)


class Run:
    """One run of an agent: its calls carry its names and are numbered in the order in which they begin."""

    def __init__(
        self,
        publisher: "Publisher",
        run_id: str,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        task_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.publisher = publisher
        self.run_id = run_id
        self.labels = dict(labels or {})
        self._names = {"run_id": run_id, "agent_id": agent_id, "model": model, "task_id": task_id}
        self._seq = count()

    def call(
        self,
        tool: str,
        args: Any = None,
        *,
        chain: str | None = None,
        token_pair: str | None = None,
        call_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> "Call":
        """A call of this run, to be used with `with`, from any thread."""
        known = {**self._names, "seq": next(self._seq), "chain": chain, "token_pair": token_pair, "call_id": call_id}
        return Call(self.publisher, tool, args, self.labels | dict(labels or {}), known)


class Call:
    """A call under way. Set `result`, `metrics`, `labels`, `reward`, `reflection`; the rest it measures itself.

    An exception that leaves the block is recorded with its type and message and goes on unchanged. `latency_ms` is
    added to the metrics unless given.
    """

    def __init__(
        self, publisher: "Publisher", tool: str, args: Any, labels: dict[str, Any], known: dict[str, Any]
    ) -> None:
        self.tool = tool
        self.args = args
        self.labels = labels
        self.metrics: dict[str, Any] = {}
        self.result: Any = None
        self.reward: float | None = None
        self.reflection: str | None = None
        self.error_type: str | None = None
        self.error_message: str | None = None
        self.event_id: str | None = None
        """The id to look the call up with (`fluvial trace`); None until the block ends, or if it was not taken."""
        self._publisher = publisher
        self._known = known
        self._outer: Call | None = None
        self._started_at = 0
        self._clock = 0.0

    def fail(self, error_type: str, message: str = "") -> None:
        """Record an error that the tool returned instead of raising it."""
        self.error_type, self.error_message = error_type, message

    def __enter__(self) -> "Call":
        self.args = plain(self.args)  # as they were: a tool may change them
        self._outer = current_call.get()
        current_call.set(self)
        self._started_at = time.time_ns() // 1_000
        self._clock = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._clock
        current_call.set(self._outer)
        if error is not None:
            self.fail(type(error).__name__, text(error, str))
        raw = ToolCall(
            **self._known,
            source=self._publisher.source,
            tool=self.tool,
            args=self.args,
            result=_bounded(plain(self.result)),
            status="ok" if self.error_type is None else "error",
            error_type=self.error_type,
            error_message=self.error_message,
            started_at=self._started_at,
            ended_at=self._started_at + int(seconds * 1_000_000),
            labels=self.labels,
            metrics=self.metrics,
            reward=self.reward,
            reflection=self.reflection,
        )
        self.event_id = self._publisher.take(raw, lambda: _finished(raw, seconds * 1_000))


def _finished(raw: ToolCall, latency_ms: float) -> ToolCall:
    """The call in the types of its fields; raises whatever the agent's values raise."""
    return replace(
        raw,
        error_message=raw.error_message and raw.error_message[:HEAD_CHARACTERS],
        labels={str(name): str(value) for name, value in raw.labels.items()},
        metrics={"latency_ms": latency_ms, **raw.metrics},
    )


def _bounded(value: Any) -> Any:
    data = msgspec.json.encode(value)
    if len(data) <= RESULT_BYTES:
        return value
    return {"cut": True, "bytes": len(data), "head": data[:HEAD_CHARACTERS].decode(errors="replace")}


def arguments_of(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without the object a method belongs to; wrong ones as they came (the call will raise)."""
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {"args": args, "kwargs": kwargs}
    return {name: value for name, value in bound.items() if name not in ("self", "cls")}
