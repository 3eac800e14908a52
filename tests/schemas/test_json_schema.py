"""docs/schemas: what agents in other languages read."""

from pathlib import Path
from types import ModuleType

import jsonschema
import msgspec
import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.json"))


def test_the_schemas_in_docs_are_those_of_the_records(generator: ModuleType) -> None:
    pages = generator.pages()
    assert sorted(pages) == sorted((ROOT / "docs" / "schemas").glob("*.json"))
    for path, text in pages.items():
        assert path.read_bytes() == text, f"{path.name} is out of date: python docs/generate_schemas.py"


def test_every_schema_is_valid_json_schema(generator: ModuleType) -> None:
    for record in generator.RECORDS.values():
        jsonschema.Draft202012Validator.check_schema(generator.schema_of(record))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_bytes_meet_the_schema(path: Path, generator: ModuleType) -> None:
    schema = generator.schema_of(generator.RECORDS[path.name.split(".")[0]])
    jsonschema.validate(msgspec.json.decode(path.read_bytes()), schema)


def test_the_least_tool_call_meets_the_schema_without_a_tag(generator: ModuleType) -> None:
    schema = generator.schema_of(generator.RECORDS["tool_call"])
    jsonschema.validate({"source": "shop", "run_id": "1", "tool": "search"}, schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "shop", "run_id": "1"},
        {"source": "", "run_id": "1", "tool": "search"},
        {"source": "shop", "run_id": "1", "tool": "t" * 257},
        {"source": "shop", "run_id": "1", "tool": "search", "status": "maybe"},
        {"source": "shop", "run_id": "1", "tool": "search", "started_at": "2023-08-17"},
        {"source": "shop", "run_id": "1", "tool": "search", "metrics": {"gas_gwei": "many"}},
    ],
)
def test_what_the_reader_refuses_the_schema_refuses_too(wrong: dict[str, object], generator: ModuleType) -> None:
    record = generator.RECORDS["tool_call"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, generator.schema_of(record))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(wrong), type=record)
