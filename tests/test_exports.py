import subprocess
import sys

import pytest

import holdfast
from holdfast import errors


def test_every_public_name_can_be_had():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


def test_the_public_names_are_exactly_those_that_can_be_had():
    homes = [name for names in holdfast._HOMES.values() for name in names.split()]
    assert sorted([*homes, "__version__"]) == sorted(holdfast.__all__)
    assert sorted(dir(holdfast)) == sorted(holdfast.__all__)


def test_every_error_is_public():
    ours = {name for name, thing in vars(errors).items() if isinstance(thing, type)}
    assert ours - {"Sequence"} <= set(holdfast.__all__)


def test_the_docstring_says_what_each_name_is_for():
    said = set(holdfast.__doc__.replace(",", " ").split())
    assert {name for name in holdfast.__all__ if not hasattr(errors, name)} - said == {
        "__version__"
    }


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Nonsense'"):
        holdfast.Nonsense  # noqa: B018


def test_importing_holdfast_loads_none_of_its_parts():
    code = "import sys, holdfast; print([m for m in sys.modules if m.startswith('holdfast.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
