"""DuckDB's extensions, loaded from their Python packages: signed, and without a network."""

from importlib.util import find_spec
from pathlib import Path

import duckdb


class ExtensionUnusable(RuntimeError):
    """An extension is missing or belongs to another DuckDB; the message says what to do."""


def load(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Load extensions by name, in this order. Raises ExtensionUnusable."""
    for name in names:
        spec = find_spec(f"duckdb_extension_{name}")
        if spec is None or spec.origin is None:
            raise ExtensionUnusable(f"The package duckdb-extension-{name} is not installed: `make setup`.")
        file = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        try:
            connection.load_extension(str(file))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise ExtensionUnusable(
                f"DuckDB {duckdb.__version__} cannot load duckdb-extension-{name} ({reason}): `make setup`."
            ) from error
