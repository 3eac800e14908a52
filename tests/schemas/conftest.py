"""The table of records, from the generator of their JSON Schemas."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    """docs/generate_schemas.py as a module."""
    path = Path(__file__).parents[2] / "docs" / "generate_schemas.py"
    spec = importlib.util.spec_from_file_location("generate_schemas", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
