import os

import pytest

from holdfast.tools.jail_parts import Parts
from tests.tools.corpus import git


@pytest.fixture
def workspace(tmp_path):
    git(tmp_path, "init", "-q")
    return tmp_path


def plant(workspace, name):
    (workspace / name / ".git").mkdir(parents=True)
    git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{'0' * 39}1,{name}")


def test_a_repository_that_becomes_a_part_is_told(workspace):
    before = Parts(workspace)
    assert before.told() == ()
    plant(workspace, "a\u202eb")
    (sentence,) = before.told()
    assert sentence.startswith("a\\u202eb is part of this repository")


def test_what_was_so_before_is_not_told_again(workspace):
    plant(workspace, "sub")
    assert Parts(workspace).told() == ()


def test_of_very_many_some_are_told(workspace):
    before = Parts(workspace)
    for number in range(12):
        plant(workspace, f"sub{number}")
    assert len(before.told()) == 10


def test_an_index_that_waits_for_somebody_is_not_waited_for(workspace):
    before = Parts(workspace)
    os.mkfifo(workspace / ".git/index")
    (sentence,) = before.told()
    assert "does not tell" in sentence
