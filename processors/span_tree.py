"""The spans of one trace as a tree: what stands above a span, and which spans tell of one and the same call."""

from collections.abc import Iterator

from fluvial.processors.joined import Node, Tables

MOST_ANCESTORS = 100
"""How far up one looks."""
_SEPARATORS = ("__", ".", "/", ":")
"""What stands between the name of a server and that of its tool."""
_UNKNOWN = Node()


class SpanTree:
    """Reads and changes the nodes of one trace."""

    def __init__(self, tables: Tables, trace_id: str) -> None:
        self._nodes = tables.nodes
        self._trace_id = trace_id

    def __getitem__(self, span_id: str) -> Node:
        """The node, an empty one where nothing is known of the span."""
        return self._nodes.get(self._key(span_id), _UNKNOWN)

    def __setitem__(self, span_id: str, node: Node) -> None:
        self._nodes[self._key(span_id)] = node

    def __delitem__(self, span_id: str) -> None:
        del self._nodes[self._key(span_id)]

    def _key(self, span_id: str) -> str:
        return f"{self._trace_id}/{span_id}"

    def upwards(self, span_id: str) -> Iterator[tuple[str, Node]]:
        """The span itself and what stands above it, the nearest first, as far as it is known."""
        seen: set[str] = set()
        above: str | None = span_id
        while above is not None and above not in seen and len(seen) <= MOST_ANCESTORS:
            node = self[above]
            yield above, node
            seen.add(above)
            above = node.part.parent_id if node.part else None

    def started_at(self, span_id: str) -> int:
        part = self[span_id].part
        return part.started_at if part else 0

    def is_whole(self, span_id: str) -> bool:
        """Whether the trace's root stands above the span: from above, nothing more can come to be known."""
        return any(node.part is not None and node.part.parent_id is None for _, node in self.upwards(span_id))

    def head(self, span_id: str) -> str:
        """The highest of the spans that tell of the same call as this one.

        A tool span and the nearest tool span above it are one call where one is of MCP and the tool is the same.
        """
        head, lower = span_id, self[span_id]
        for above, node in self.upwards(span_id):
            if node.tool is None or above == span_id:
                continue
            if not (lower.is_mcp or node.is_mcp) or not _same_tool(lower.tool or "", node.tool):
                break
            head, lower = above, node
        return head


def _same_tool(one: str, other: str) -> bool:
    """Equal, or equal but for a server's name before one of them: `search`, `web__search`, `web.search`."""
    short, long = sorted((one, other), key=len)
    return short == long or long.endswith(tuple(separator + short for separator in _SEPARATORS))
