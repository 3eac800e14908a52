"""Fluvial: memory for agents that learns from what their tools did."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluvial.publish import Publisher
    from fluvial.schemas.tool_call import ToolCall

__version__ = "0.1.0"
__all__ = ["Publisher", "ToolCall", "__version__"]

_HOMES = {"Publisher": "fluvial.publish", "ToolCall": "fluvial.schemas.tool_call"}


def __getattr__(name: str) -> Any:
    """Import the front door's names at first use: the command line starts without Kafka's client."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fluvial' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
