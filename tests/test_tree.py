"""The shape of the source tree is part of the design; these tests keep it."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")

#: Past this a module probably holds two.
MOST_LINES = 450

FILES = sorted(SOURCE.rglob("*.py"))


def test_a_module_opens_with_a_sentence_about_itself():
    for module in MODULES:
        docstring = ast.get_docstring(ast.parse(module.read_text()))
        assert docstring, f"{module.name} needs an opening sentence"
        first = docstring.splitlines()[0]
        assert first.endswith((".", ":")), f"{module.name} opens with half a sentence: {first}"
        assert not first.lower().startswith(("this module", "module ", "contains ", "todo")), (
            f"{module.name} should say what it is about, not that it is a module"
        )


def test_a_module_has_a_test_file_of_its_own():
    for module in MODULES:
        folder = ROOT / "tests" / module.parent.relative_to(SOURCE)
        expected = folder / f"test_{module.stem.strip('_')}.py"
        assert expected.exists(), f"{module.relative_to(ROOT)} wants {expected.relative_to(ROOT)}"


def test_a_module_fits_in_the_head():
    for file in FILES:
        lines = len(file.read_text().splitlines())
        assert lines <= MOST_LINES, f"split {file.name}: {lines} lines do more than one thing"


def test_a_module_keeps_no_state():
    """State at module level has no owner; constants, in capitals, are fine."""
    for file in FILES:
        for statement in ast.parse(file.read_text()).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    pass
                case _:
                    continue
            constant = name.strip("_").isupper() or (name.startswith("__") and name.endswith("__"))
            assert constant or not is_mutable(value), f"{file.name}:{statement.lineno}: {name}"


def is_mutable(value):
    match value:
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in {"list", "dict", "set", "deque", "defaultdict", "Counter"}
    return False


def test_a_layer_is_optional_only_until_it_is_written():
    """And then each contract that should bind it has to name it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {c["name"]: c for c in settings["tool"]["importlinter"]["contracts"]}
    for layer in contracts["Layers point down"]["layers"]:
        for name in (part.strip() for part in layer.split("|")):
            if name.startswith("("):
                assert not list(SOURCE.glob(f"{name.strip('()')}*")), f"{name} exists: no brackets"


@pytest.mark.parametrize(
    ("package", "contract"),
    [
        ("server", "Only the wiring knows the adapters"),
        ("client", "Only the wiring knows the adapters"),
        ("server", "Only stores speak SQL"),
    ],
)
def test_a_contract_binds_a_package_as_soon_as_there_is_one(package, contract):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {c["name"]: c for c in settings["tool"]["importlinter"]["contracts"]}
    written = bool(list(SOURCE.glob(f"{package}*")))
    assert (f"holdfast.{package}" in contracts[contract]["source_modules"]) == written
