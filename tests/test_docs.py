"""Every command, option and setting is documented."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from fluvial.cli import COMMANDS
from fluvial.settings import Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_command_line_is_what_the_commands_say(generator: ModuleType) -> None:
    assert (DOCS / "cli.md").read_text() == generator.page(), "out of date: python docs/generate_cli.py"


def test_every_command_and_every_option_has_a_help_text(generator: ModuleType) -> None:
    import typer

    from fluvial.cli import app

    for path, command, _ in generator.commands(typer.main.get_command(app)):
        assert command.help, f"{path} has no help"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{path} does not say what {parameter.opts} is"


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"fluvial {name}" not in text] == []


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `FLUVIAL_(\w+)` \| (.+?) \|", (DOCS / "settings.md").read_text(), re.MULTILINE))
    shown = {
        name.upper(): {None: "none", "": "empty"}.get(field.default, f"`{field.default}`")
        for name, field in Settings.model_fields.items()
    }
    assert rows == shown


def test_every_link_inside_the_docs_leads_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.name} -> {target}")
    assert broken == []
