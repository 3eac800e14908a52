"""Keyed state of one partition: tables of records, which remember what changed until it is written to the log."""

from collections.abc import Iterator, MutableMapping
from typing import Any, Generic, TypeVar

from fluvial.schemas.codec import decode, encode

T = TypeVar("T")

_SEPARATOR = "\x1f"


def _log_key(table: str, key: str) -> bytes:
    return f"{table}{_SEPARATOR}{key}".encode()


class Table(MutableMapping[str, T], Generic[T]):
    """A mapping of key to an immutable record. To change a record, assign a new one: assignment marks it changed."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._rows: dict[str, T | bytes] = {}
        self._changed: set[str] = set()

    def __getitem__(self, key: str) -> T:
        row = self._rows[key]
        if isinstance(row, bytes):
            row = self._rows[key] = decode(row, self._kind)
        return row

    def __setitem__(self, key: str, row: T) -> None:
        self._rows[key] = row
        self._changed.add(key)

    def __delitem__(self, key: str) -> None:
        del self._rows[key]
        self._changed.add(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def load(self, key: str, data: bytes | None) -> None:
        """Take a row as the log has it (None: deleted) without marking it changed."""
        if data is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = data

    def forget(self) -> None:
        """Drop every row and what is known of changes."""
        self._rows.clear()
        self._changed.clear()

    def changes(self) -> Iterator[tuple[str, bytes | None]]:
        """Keys changed since `settle`, in sorted order, with the row's bytes (None: deleted)."""
        for key in sorted(self._changed):
            row = self._rows.get(key)
            yield key, None if row is None else row if isinstance(row, bytes) else encode(row)

    def settle(self) -> None:
        """The changes are durable."""
        self._changed.clear()


class State:
    """All tables of one partition, as (table, key) -> record."""

    def __init__(self) -> None:
        self._tables: dict[str, Table[Any]] = {}
        self._unread: dict[str, dict[str, bytes]] = {}
        self._erased: set[bytes] = set()

    def table(self, name: str, kind: type[T]) -> Table[T]:
        """The table of this name; its records are of one kind for ever."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(kind)
            for key, data in self._unread.pop(name, {}).items():
                table.load(key, data)
        return table

    def load(self, key: bytes, data: bytes | None) -> None:
        """Take one record of the state topic."""
        name, _, row_key = key.decode().partition(_SEPARATOR)
        if name in self._tables:
            self._tables[name].load(row_key, data)
        elif data is None:
            self._unread.get(name, {}).pop(row_key, None)
        else:
            self._unread.setdefault(name, {})[row_key] = data

    def clear(self) -> None:
        """Forget every row, here and (with the next changes) in the log."""
        for name, table in self._tables.items():
            self._erased.update(_log_key(name, key) for key in table)
            table.forget()
        for name, rows in self._unread.items():
            self._erased.update(_log_key(name, key) for key in rows)
        self._unread.clear()

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What the state topic has to learn: (key, record or None for a tombstone)."""
        yield from ((key, None) for key in sorted(self._erased))
        for name, table in self._tables.items():
            for key, data in table.changes():
                yield _log_key(name, key), data

    def settle(self) -> None:
        """The changes are durable."""
        self._erased.clear()
        for table in self._tables.values():
            table.settle()
