"""Joined and the tables of the join: what it keeps and what it gives."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from msgspec import Struct

from fluvial.schemas.call_part import EvaluationPart, RequestPart, ResponsePart, SpanPart
from fluvial.schemas.tool_call import ToolCall


class Trace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The spans of a trace in the order in which they came. Times are tick times, 0 before the first tick."""

    spans: tuple[str, ...] = ()
    touched: int = 0
    """When its last part came."""
    oldest: int | None = None
    """When the first of the calls that still wait came; None where none waits."""


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one span. `part` is missing while only its evaluation has come."""

    part: SpanPart | None = None
    evaluation: EvaluationPart | None = None
    used: bool = False
    """Whether the evaluation has become the reward of a call."""
    tool: str | None = None
    """The tool of its call, also when that has gone: the part is then without it."""
    came: int = 0
    """Tick time, 0 before the first tick."""

    @property
    def call(self) -> ToolCall | None:
        """The call that waits."""
        return self.part.call if self.part else None

    @property
    def gone(self) -> bool:
        """Whether it had a call, which has been handed on."""
        return self.tool is not None and self.call is None

    @property
    def is_mcp(self) -> bool:
        return self.part is not None and self.part.is_mcp


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that waits for its response, or (`answered`) one whose call has been handed on."""

    part: RequestPart
    answered: bool = False
    came: int = 0


class Response(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response that waits for its request."""

    part: ResponsePart
    came: int = 0


@dataclass(frozen=True)
class Tables:
    """The state of the join: traces by id, nodes by `trace/span`, requests and responses by id and session."""

    traces: MutableMapping[str, Trace]
    nodes: MutableMapping[str, Node]
    requests: MutableMapping[str, Request]
    responses: MutableMapping[str, Response]


@dataclass
class Joined:
    """What a step gives. `duplicates` counts parts that say again what another has said."""

    calls: list[ToolCall] = field(default_factory=list)
    duplicates: int = 0
    late: list[EvaluationPart] = field(default_factory=list)
    """Evaluations whose call had gone, or never came."""
    orphans: list[ResponsePart] = field(default_factory=list)
    """Responses whose request never came."""
