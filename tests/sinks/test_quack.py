"""SQL from outside: the live server with its locks, and the snapshot where there is no server."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from msgspec import json
from support.lessons import add, apply, opened

from fluvial.sinks.extensions import load
from fluvial.sinks.insights_query import NoInsights, SqlError, Unreadable, ask
from fluvial.sinks.quack import NOTE, TOKEN, Note, Quack
from fluvial.sinks.snapshot import write_snapshot


class Live:
    """A store with its server, as keep has it."""

    def __init__(self, data: Path, port: int = 0) -> None:
        self.folder, self.snapshot = data / "keep", data / "insights.duckdb"
        self.store = opened(self.folder / "live.duckdb")
        self.scratch = self.folder / "scratch"
        self.quack = Quack(self.store.cursor(), self.folder, port, self.scratch)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        answer = ask(query, self.folder, self.snapshot)
        assert answer.source == "live"
        return answer.rows

    def write_snapshot(self) -> None:
        with self.store.cursor() as connection:
            write_snapshot(connection, self.snapshot, self.scratch)

    def close(self) -> None:
        self.quack.stop()
        self.store.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One server with one lesson, for the tests that only ask."""
    live = Live(tmp_path_factory.mktemp("served"))
    apply(live.store, [add("i1", evidence=("e1",))])
    live.write_snapshot()
    yield live
    live.close()


@pytest.fixture(scope="module")
def client() -> Iterator[duckdb.DuckDBPyConnection]:
    """A client of its own that knows Quack."""
    with duckdb.connect() as connection:
        load(connection, "httpfs", "quack")
        yield connection


def raw(client: duckdb.DuckDBPyConnection, live: Live, query: str) -> list[tuple[object, ...]]:
    """Past the check that `ask` makes itself: what the server does with it."""
    token = (live.folder / TOKEN).read_text()
    return client.execute("FROM quack_query(?, ?, token := ?)", [live.quack.address, query, token]).fetchall()


def test_the_live_insights_answer_while_they_are_written(live: Live) -> None:
    for at in range(3):
        apply(live.store, [add(f"i{at}", at)], first=at)
        assert live.ask("SELECT count(*) FROM lessons") == [(at + 1,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, claim->>'$.tool', embedding[1:2] FROM insights LIMIT 1",
        "WITH l AS (FROM lessons) SELECT count(*) FROM l",
        "FROM history LIMIT 2;",
        "DESCRIBE lessons",
        "SHOW TABLES",
        "SUMMARIZE insights",
        "SELECT unnest(evidence) FROM operations",
        "SELECT * FROM range(3), json_each('[1]')",
        """SELECT '"type":"TABLE_FUNCTION","function_name":"read_csv"'""",
    ],
)
def test_what_reads_the_tables_is_answered_alike_by_server_and_snapshot(served: Live, query: str) -> None:
    from_server = ask(query, served.folder, served.snapshot)
    from_snapshot = ask(query, served.folder / "nowhere", served.snapshot)
    assert (from_server.source, from_snapshot.source) == ("live", "snapshot")
    assert from_server.columns == from_snapshot.columns
    assert from_server.rows == from_snapshot.rows


WRITES = [
    "INSERT INTO insights SELECT * FROM insights",
    "UPDATE insights SET confidence = 1",
    "DELETE FROM insights",
    "WITH gone AS (DELETE FROM insights RETURNING id) SELECT * FROM gone",
    "DROP TABLE insights",
    "CREATE TABLE mine (i INT)",
    "CREATE OR REPLACE MACRO gate.main.reads_only(session, query) AS true",
    "COPY insights TO 'out.csv'",
    "ATTACH 'other.duckdb'",
    "EXPORT DATABASE 'out'",
    "INSTALL httpfs",
    "SET threads = 1",
    "SET GLOBAL quack_authorization_function = 'quack_nop_authorization'",
    "PRAGMA database_list",
    "CHECKPOINT",
    "CALL quack_stop('quack:localhost:9494')",
    "EXPLAIN ANALYZE DELETE FROM insights",
    "SELECT 1; DELETE FROM insights",
    "SELECT 1; SELECT 2",
    "",
]
READS_ELSEWHERE = [
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM READ_TEXT('/etc/hostname')",
    "SELECT (SELECT max(content) FROM read_text('/etc/hostname'))",
    "WITH t AS (SELECT * FROM read_csv('/etc/hostname')) SELECT * FROM t",
    'SELECT 1 AS "function_name" FROM read_text(\'/etc/hostname\') AS "range"',
    "SELECT * FROM range(1), glob('/*')",
    "FROM query('SELECT 1')",
    "FROM quack_stop('quack:localhost:9494')",
    "FROM quack_query('quack:localhost:9494', 'SELECT 1', token := 'x')",
    "FROM enable_logging('QueryLog')",
    "FROM duckdb_secrets()",
    "FROM duckdb_settings()",
    "FROM force_checkpoint()",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
]


@pytest.mark.parametrize("query", [*WRITES, *READS_ELSEWHERE])
def test_whoever_knows_the_token_can_only_read_the_tables(
    served: Live, client: duckdb.DuckDBPyConnection, query: str
) -> None:
    with pytest.raises(duckdb.Error, match="Authorization failed"):
        raw(client, served, query)
    assert raw(client, served, "SELECT count(*) FROM insights") == [(1,)]


@pytest.mark.parametrize("query", ["SELECT * FROM '/etc/hostname'", "FROM '/etc/passwd.csv'", "FROM live"])
def test_files_and_the_variables_of_the_process_are_no_tables(
    served: Live, client: duckdb.DuckDBPyConnection, query: str
) -> None:
    with pytest.raises(duckdb.Error, match=r"does not exist|disabled by configuration|Authorization failed"):
        raw(client, served, query)


def test_a_client_of_duckdb_attaches_and_cannot_write(served: Live, client: duckdb.DuckDBPyConnection) -> None:
    token = (served.folder / TOKEN).read_text()
    client.execute(f"ATTACH '{served.quack.address}' AS river (TOKEN '{token}')")
    assert client.execute("SELECT id FROM river.lessons").fetchall() == [("i1",)]
    assert client.execute("FROM river.query('SELECT count(*) FROM history')").fetchall() == [(1,)]
    for statement in ("CREATE TABLE river.mine (i INT)", "INSERT INTO river.meta VALUES ('a', 'b')"):
        with pytest.raises(duckdb.Error, match="Authorization failed"):
            client.execute(statement)
    client.execute("DETACH river")


def test_without_the_token_nothing_is_answered(served: Live, client: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="Authentication failed"):
        client.execute("FROM quack_query(?, 'SELECT 1', token := 'guess')", [served.quack.address])


def test_the_server_listens_on_loopback_and_its_token_is_the_owners_alone(served: Live) -> None:
    assert stat.S_IMODE((served.folder / TOKEN).stat().st_mode) == 0o600
    note = json.decode((served.folder / NOTE).read_bytes(), type=Note)
    assert note == Note(f"quack:127.0.0.1:{served.quack.port}", served.quack.port, os.getpid())
    with socket.socket() as elsewhere:
        elsewhere.settimeout(1.0)
        assert elsewhere.connect_ex(("127.0.0.2", served.quack.port)) != 0


def test_an_empty_token_that_a_crash_left_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / TOKEN).touch(0o600)
    live = Live(tmp_path)
    assert len((live.folder / TOKEN).read_text()) > 20
    assert stat.S_IMODE((live.folder / TOKEN).stat().st_mode) == 0o600
    assert live.ask("SELECT 1") == [(1,)]
    live.close()


def test_a_port_in_use_is_left_to_who_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        live = Live(tmp_path, port)
        assert live.quack.port != port
        assert live.ask("SELECT 1") == [(1,)]
        live.close()


def test_two_rivers_do_not_share_a_port(live: Live, tmp_path: Path) -> None:
    second = Live(tmp_path / "second", live.quack.port)
    apply(second.store, [add("i1")])
    assert second.quack.port != live.quack.port
    assert (live.ask("SELECT count(*) FROM insights"), second.ask("SELECT count(*) FROM insights")) == ([(0,)], [(1,)])
    second.close()


def test_a_note_that_leads_to_the_server_of_another_river_is_not_followed(live: Live, tmp_path: Path) -> None:
    apply(live.store, [add("i1")])
    live.write_snapshot()
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / NOTE).write_bytes((live.folder / NOTE).read_bytes())
    (folder / TOKEN).write_text("of another river")
    assert ask("SELECT 1", folder, live.snapshot).source == "snapshot"


def test_after_the_server_has_gone_the_snapshot_answers(live: Live, tmp_path: Path) -> None:
    other = Live(tmp_path / "other")
    apply(other.store, [add("i1")])
    other.write_snapshot()
    note = (other.folder / NOTE).read_bytes()
    other.close()
    assert not (other.folder / NOTE).exists()
    assert ask("SELECT id FROM lessons", other.folder, other.snapshot).rows == [("i1",)]
    (other.folder / NOTE).write_bytes(note)  # as a kill -9 leaves it
    assert ask("SELECT id FROM lessons", other.folder, other.snapshot).source == "snapshot"


def test_the_snapshot_is_still_written_when_everything_is_locked(live: Live) -> None:
    apply(live.store, [add("i1")])
    live.write_snapshot()
    with duckdb.connect(str(live.snapshot), read_only=True) as plain:
        assert plain.execute("SELECT id FROM insights").fetchall() == [("i1",)]


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 1; SELECT 2", "Only one SELECT is answered"),
        ("DELETE FROM insights", "Only one SELECT is answered"),
        ("", "Only one SELECT is answered"),
        ("SELECT * FROM nothing", "Table with name nothing does not exist"),
        ("SELECT nothing FROM lessons", 'Referenced column "nothing" not found'),
    ],
)
def test_a_wrong_query_is_answered_with_what_is_wrong(served: Live, query: str, message: str, up: bool) -> None:
    with pytest.raises(SqlError) as caught:
        ask(query, served.folder if up else served.folder / "nowhere", served.snapshot)
    assert message in str(caught.value)
    assert "quack_query" not in str(caught.value)


def test_where_there_is_nothing_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoInsights, match=r"insights.duckdb is not there yet: start `fluvial up`"):
        ask("SELECT 1", tmp_path / "keep", tmp_path / "insights.duckdb")


@pytest.mark.parametrize("size", [0, 20_000])
def test_a_snapshot_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, size: int) -> None:
    snapshot = tmp_path / "insights.duckdb"
    snapshot.write_bytes(b"x" * size)
    with pytest.raises(Unreadable, match=r"insights.duckdb cannot be read \(.*If it is damaged, delete it"):
        ask("SELECT 1", tmp_path / "keep", snapshot)
