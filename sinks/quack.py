"""Quack: the live insights answer SQL on loopback, reads only, while keep goes on writing.

The server is DuckDB's own extension, in the process that holds the file. By itself it allows everything to whoever
knows the token, so it is closed: one SELECT a request, of tables and of functions that read no files; no access to
the outside; a configuration that nobody changes any more.
"""

import os
import secrets
import socket
from pathlib import Path
from typing import Final

import duckdb
from msgspec import Struct, json

from fluvial.sinks.extensions import load

HOST: Final = "127.0.0.1"
NOTE: Final = "quack.json"
TOKEN: Final = "quack.token"
TABLE_FUNCTIONS: Final = (
    "duckdb_columns",
    "duckdb_constraints",
    "duckdb_databases",
    "duckdb_schemas",
    "duckdb_tables",
    "duckdb_views",
    "generate_series",
    "json_each",
    "json_tree",
    "pragma_table_info",
    "range",
    "unnest",
)
"""Table functions that only read what is in the database; clients ask the `duckdb_` ones when they attach."""

_READS_ONLY = f"""
CREATE OR REPLACE MACRO gate.main.reads_only(session, query) AS (
    SELECT (parsed->>'$.error') = 'false'
       AND json_array_length(parsed, '$.statements') = 1
       AND list_has_all(
               {list(TABLE_FUNCTIONS)},
               regexp_extract_all(parsed::VARCHAR, '"type":"TABLE_FUNCTION".*?"function_name":"([^"]*)"', 1))
    FROM (SELECT json_serialize_sql(query::VARCHAR) AS parsed)
)"""
"""json_serialize_sql parses SELECTs only (DESCRIBE and SHOW are some); the parsed form names every table function."""


class NotServed(RuntimeError):
    """The server does not come up; the message says why."""


class Note(Struct, frozen=True):
    """Where the server is, as `quack.json` says to clients."""

    address: str
    port: int
    pid: int


class Quack:
    """A server on the database of a connection. Stop it before the database is closed, or attached clients hang."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, port: int, writable: Path) -> None:
        """Serve on `port`, or on a free one if it is 0 or in use; note the address and the token in `folder`.

        Afterwards the whole database instance reads and writes files in the folder `writable` only. Raises NotServed.
        """
        self._connection = connection
        self._folder = folder
        self.port = port if port and _is_free(port) else _free_port()
        self.address = f"quack:{HOST}:{self.port}"
        load(connection, "httpfs", "quack")
        connection.execute("ATTACH IF NOT EXISTS ':memory:' AS gate")
        connection.execute(_READS_ONLY)
        connection.execute("SET GLOBAL quack_authorization_function = 'gate.main.reads_only'")
        token = _token(folder / TOKEN)
        try:
            connection.execute("CALL quack_serve(?, token => ?)", [self.address, token])
        except duckdb.Error as error:
            raise NotServed(f"the live insights do not answer SQL: {str(error).splitlines()[0]}") from error
        connection.execute("SET GLOBAL allowed_directories = [?]", [str(writable.absolute())])
        connection.execute("SET GLOBAL enable_external_access = false")
        connection.execute("SET GLOBAL lock_configuration = true")
        note = folder / f"{NOTE}.new"
        note.write_bytes(json.encode(Note(self.address, self.port, os.getpid())))
        note.replace(folder / NOTE)

    def stop(self) -> None:
        """End the server and its clients' connections."""
        (self._folder / NOTE).unlink(missing_ok=True)
        self._connection.execute("CALL quack_stop(?)", [self.address])
        self._connection.close()


def _is_free(port: int) -> bool:
    """Whether nobody listens there. (Quack would share the port with another server and not say so.)"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _token(path: Path) -> str:
    """The token of this data folder, made at first use; only the owner of the file can read it."""
    if not path.is_file() or not path.stat().st_size:
        new = path.with_name(f"{path.name}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
        new.replace(path)
    return path.read_text()
