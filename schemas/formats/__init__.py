"""The formats in which agents say what their tools did: bytes and headers to tool calls and parts of them, pure."""

from fluvial.schemas.formats.message import Message, Reading
from fluvial.schemas.formats.read import read

__all__ = ["Message", "Reading", "read"]
