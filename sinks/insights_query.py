"""SQL on the insights from another process: the live server if it is up, else the snapshot. Reads only."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
from msgspec import DecodeError, json

from fluvial.sinks.extensions import load
from fluvial.sinks.quack import HOST, NOTE, TABLE_FUNCTIONS, TOKEN, Note

CONNECT_SECONDS = 1.0


class SqlError(RuntimeError):
    """The query is wrong, or no query that reads; the message is DuckDB's."""


class NoInsights(RuntimeError):
    """There is neither a server nor a snapshot."""


class Unreadable(RuntimeError):
    """There is no server, and the snapshot is a file that cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Column names, and rows of Python values; `source` says who answered."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    source: Literal["live", "snapshot"]


def ask(query: str, keep_folder: Path, snapshot: Path) -> Answer:
    """Answer one SELECT. Raises SqlError, NoInsights, Unreadable."""
    _check(query)
    live = _ask_live(query, keep_folder)
    return live if live is not None else ask_snapshot(query, snapshot)


def ask_snapshot(query: str, snapshot: Path) -> Answer:
    """The same of the snapshot, whoever serves the live insights."""
    if not snapshot.exists():
        raise NoInsights(f"{snapshot} is not there yet: start `fluvial up`, or choose the data folder with --data.")
    settings: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}
    try:
        with duckdb.connect(str(snapshot), read_only=True, config=settings) as connection:
            return _answer(connection.execute(query), "snapshot")
    except duckdb.IOException as error:
        raise Unreadable(
            f"{snapshot} cannot be read ({_first_lines(error)}). If it is damaged, delete it: `fluvial up` makes a new "
            "one."
        ) from error
    except duckdb.Error as error:
        raise SqlError(_first_lines(error)) from error


def literal(text: str) -> str:
    """The text as a string in SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def _check(query: str) -> None:
    """Refuse what is no single SELECT, with the parser's words. (The server would only say that it refuses.)"""
    with duckdb.connect() as connection:
        (parsed,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)::VARCHAR", [query]).fetchall()[0]
    tree = json.decode(parsed)
    if tree["error"] and tree["error_type"] == "parser":
        raise SqlError(tree["error_message"])
    if tree["error"] or len(tree["statements"]) != 1:
        raise SqlError(
            "Only one SELECT is answered (WITH, FROM, DESCRIBE and SHOW are some): memory is not written by SQL."
        )


def _ask_live(query: str, folder: Path) -> Answer | None:
    """What the server says; None if there is none, or if it is not that of this folder."""
    try:
        note = json.decode((folder / NOTE).read_bytes(), type=Note)
        token = (folder / TOKEN).read_text()
        socket.create_connection((HOST, note.port), CONNECT_SECONDS).close()
    except (OSError, DecodeError):
        return None
    with duckdb.connect() as connection:
        load(connection, "httpfs", "quack")
        try:
            return _answer(
                connection.execute("FROM quack_query(?, ?, token := ?)", [note.address, query, token]), "live"
            )
        except duckdb.Error as error:
            reason = _first_lines(error)
    if "Authentication failed" in reason or "Failed to send message" in reason:
        return None
    if "Authorization failed" in reason:
        raise SqlError(f"Of table functions only these are answered: {', '.join(TABLE_FUNCTIONS)}.")
    raise SqlError(reason)


def _answer(result: duckdb.DuckDBPyConnection, source: Literal["live", "snapshot"]) -> Answer:
    return Answer([str(column[0]) for column in result.description or ()], result.fetchall(), source)


def _first_lines(error: duckdb.Error) -> str:
    """DuckDB's message without the place in our own query that Quack adds."""
    return str(error).partition("\nLINE 1: FROM quack_query")[0].removeprefix("Invalid Input Error: ").strip()
