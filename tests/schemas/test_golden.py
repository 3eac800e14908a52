"""Bytes that were once written are read for ever: tests/golden/<record>.v<number>.json."""

import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from fluvial.schemas.codec import decode, encode

FOLDER = Path(__file__).parents[1] / "golden"
FILES = sorted(FOLDER.glob("*.json"))


def name_and_version(path: Path) -> tuple[str, int]:
    match = re.fullmatch(r"([a-z_]+)\.v(\d+)\.json", path.name)
    assert match, f"{path.name} is not <record>.v<number>.json"
    return match[1], int(match[2])


def newest() -> dict[str, Path]:
    return {name_and_version(path)[0]: path for path in sorted(FILES, key=name_and_version)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_old_bytes_are_decoded_and_encoded_to_the_same(path: Path, generator: ModuleType) -> None:
    record = generator.RECORDS[name_and_version(path)[0]]
    golden = path.read_bytes().rstrip(b"\n")
    assert encode(decode(golden, record)) == golden


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_reader_of_today_ignores_fields_of_tomorrow(path: Path, generator: ModuleType) -> None:
    record = generator.RECORDS[name_and_version(path)[0]]
    golden = path.read_bytes()
    tomorrow = msgspec.json.decode(golden) | {"field_of_tomorrow": [{"deep": 1}]}
    assert decode(msgspec.json.encode(tomorrow), record) == decode(golden, record)


def test_every_record_has_golden_bytes(generator: ModuleType) -> None:
    assert newest().keys() == generator.RECORDS.keys()


@pytest.mark.parametrize("name", newest())
def test_the_newest_golden_bytes_hold_every_field_with_another_value_than_its_default(
    name: str, generator: ModuleType
) -> None:
    """A new field needs a new golden file (`v2` beside `v1`), so that its bytes are kept too."""
    record = decode(newest()[name].read_bytes(), generator.RECORDS[name])
    for field in msgspec.structs.fields(type(record)):
        value = getattr(record, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        assert field.required or value != default, f"{name}.{field.name} is not in {newest()[name].name}"


@pytest.mark.parametrize("name", newest())
def test_golden_bytes_without_their_optional_fields_are_read_too(name: str, generator: ModuleType) -> None:
    record = generator.RECORDS[name]
    whole = msgspec.json.decode(newest()[name].read_bytes())
    required = {field.encode_name for field in msgspec.structs.fields(record) if field.required}
    least = {key: value for key, value in whole.items() if key in required}
    assert decode(msgspec.json.encode(least), record)


def test_a_time_is_microseconds_and_no_float(generator: ModuleType) -> None:
    for name, path in newest().items():
        for key, value in msgspec.json.decode(path.read_bytes()).items():
            if key == "at" or key.endswith("_at"):
                assert isinstance(value, int) and value > 10**15, f"{name}.{key} is {value!r}"
