"""The snapshot: a copy of the insights that any DuckDB client opens while the live file is being written."""

import os
from pathlib import Path

import duckdb


def write_snapshot(
    connection: duckdb.DuckDBPyConnection, target: Path, scratch: Path, finish: str | None = None
) -> None:
    """Replace `target` by a copy of the connection's database, as it was committed when this began.

    The copy is made in the folder `scratch` (of the same filesystem) and moved into place when it is whole and on the
    disk; `finish` is a statement about the copy (a database called `copy`) before that. The connection must be of this
    thread alone; others may write meanwhile. Raises duckdb.Error, OSError.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    for leftover in scratch.iterdir():
        leftover.unlink()
    copy = scratch.absolute() / target.name
    (live,) = connection.execute("SELECT current_database()").fetchall()[0]
    connection.execute(f"ATTACH {_quoted(str(copy))} AS copy")
    try:
        connection.execute(f'COPY FROM DATABASE "{live}" TO copy')
        if finish is not None:
            connection.execute(finish)
        connection.execute("CHECKPOINT copy")
    finally:
        connection.execute("DETACH copy")
    _sync(copy)
    # Whoever opened the old snapshot for writing and was killed left a log that would be replayed on the new one.
    target.with_name(f"{target.name}.wal").unlink(missing_ok=True)
    copy.replace(target)
    _sync(target.parent)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sync(path: Path) -> None:
    """Have the system write a file or the entries of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
