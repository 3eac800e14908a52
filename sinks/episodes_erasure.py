"""Erasure in LanceDB: rows leave data files, older versions, deletion vectors and the index of the text.

A deleted row stays in its data file until compaction rewrites the fragment, which LanceDB 0.40 does with fragments that
have neighbours to be merged with (of the same indexes) or have lost a tenth of their rows. So the index goes first, one
row that stays is written anew, which gives the last fragment a neighbour, and where a deletion is left after all (in
fragments of a million rows) every row is written anew. Then the index is made again, and what no version but the newest
refers to is deleted, what killed writers left included; writers wait for that (`Files`).
"""

import fcntl
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from lancedb.expr import Expr, col, lit
from lancedb.index import FTS

from fluvial.schemas.erasure import Erasure

AT_ONCE = timedelta(milliseconds=1)
"""How young a version must be to be kept beside the newest; LanceDB warns of 0."""
PATIENCE_SECONDS = 20.0
TRIES = 5
_TEXTS = ("id", "run_id", "task_id", "agent_id", "call_id", "error_type", "error_message", "text", "regime")
_JSON = ("labels", "context", "features", "args_json", "outcome_json")


class Files:
    """Who may write and delete files of the table, over processes: locks on two files in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While this lasts no file is deleted that no version refers to yet."""
        with self._locked(".writing.lock", fcntl.LOCK_SH):
            yield

    @contextmanager
    def maintaining(self) -> Iterator[None]:
        """One at a time compacts, indexes and deletes rows."""
        with self._locked(".maintaining.lock", fcntl.LOCK_EX):
            yield

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """While nobody writes; False where somebody does for longer than it can be waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with (self._folder / ".writing.lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield False
                        return
                    time.sleep(0.02)
            yield True

    @contextmanager
    def _locked(self, name: str, how: int) -> Iterator[None]:
        with (self._folder / name).open("a") as file:
            fcntl.flock(file, how)
            yield


def erase(table: Any, files: Files, ids: Sequence[str]) -> None:
    """Delete these rows and everything that is left of them in the files. Raises RuntimeError, OSError.

    Repeated without ids it finishes what an earlier call has begun.
    """
    with files.maintaining():
        for start in range(0, len(ids), 1_000):
            _again(lambda some=ids[start : start + 1_000]: table.delete(col("id").isin(list(some))))  # type: ignore[misc]
        indexed = [index.name for index in table.list_indices()]
        for name in indexed:
            table.drop_index(name)
        _again(lambda: _nudge(table))
        _again(lambda: table.optimize(cleanup_older_than=AT_ONCE))
        if _deletions(table):
            _again(lambda: table.update(values_sql={"seq": "seq"}))
        if indexed:
            _again(lambda: table.create_index("text", config=FTS()))
        with files.alone() as alone:
            time.sleep(2 * AT_ONCE.total_seconds())
            _again(lambda: table.optimize(cleanup_older_than=AT_ONCE, delete_unverified=alone))


def may_concern(erasure: Erasure) -> Expr | str | None:
    """A condition that holds for every row an erasure concerns, and for few others; None where there is none such."""
    if erasure.what != "subject":
        return col(f"{erasure.what}_id") == lit(erasure.value)
    words = re.findall(r"[0-9a-z]+", erasure.value.lower())  # the same within JSON, and within quotes of SQL
    if not words or not erasure.value.isascii():
        return None
    word = max(words, key=len)
    return " OR ".join(f"contains(lower({column}), '{word}')" for column in (*_TEXTS, *_JSON))


def _nudge(table: Any) -> None:
    rows = table.search().select(["id"]).limit(1).to_arrow()
    if rows.num_rows:
        table.update(where=col("id") == lit(rows["id"][0].as_py()), values_sql={"seq": "seq"})


def _deletions(table: Any) -> bool:
    """Whether a file says of rows that they are deleted: then their bytes are still in a data file."""
    folder = Path(table.uri) / "_deletions"
    return folder.is_dir() and any(folder.iterdir())


def _again(step: Callable[[], object]) -> None:
    """Other writers' commits may come in between: LanceDB then refuses ours, and it has to be made on top of theirs."""
    for left in reversed(range(TRIES)):
        try:
            step()
            return
        except RuntimeError as error:
            if not left or "onflict" not in str(error):
                raise
            time.sleep(0.05)
