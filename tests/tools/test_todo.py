import json

import pytest

from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.tools.todo import todo


class TestTodo(ToolContract):
    @pytest.fixture
    def tool(self):
        return todo


async def run(*items):
    async def progress(text):
        raise AssertionError("there is no progress to report")

    arguments = json.dumps({"items": [{"text": text, "state": state} for text, state in items]})
    assert todo.review(arguments).gate == "auto"
    return await todo.run(ToolUse(arguments=arguments, effect_id="call_1", progress=progress))


async def test_the_list_is_shown_with_how_far_it_has_come():
    told = await run(("look", "done"), ("mend\nit", "in_progress"), ("test", "pending"))
    assert told == "1 of 3 done, 1 in progress, 1 pending\n[x] look\n[>] mend it\n[ ] test"


async def test_an_empty_list_is_said_to_be_empty():
    assert await run() == "the list is empty"


async def test_a_step_is_pending_unless_it_says_otherwise():
    assert todo.review('{"items":[{"text":"look"}]}') == Review(
        subject='todo\nitems: [{"text":"look","state":"pending"}]',
        key='{"items":[{"state":"pending","text":"look"}]}',
    )


async def test_two_things_at_a_time_are_told_to_be_one_too_many():
    with pytest.raises(ToolError, match="2 items are in_progress; work on one"):
        await run(("look", "in_progress"), ("mend", "in_progress"))


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([("a", "pending")] * 101, "length <= 100"),
        ([("", "pending")], "length >= 1"),
        ([("a" * 1001, "pending")], "length <= 1000"),
        ([("a", "begun")], r"Invalid enum value 'begun' - at `\$\.items\[0\]\.state`"),
    ],
)
async def test_a_list_that_is_none_is_refused(items, said):
    with pytest.raises(ToolError, match=said):
        await run(*items)


async def test_nothing_is_kept_between_two_calls():
    await run(("look", "done"))
    assert await run(("mend", "pending")) == "0 of 1 done, 0 in progress, 1 pending\n[ ] mend"


def test_it_reads_only_and_bears_repeating():
    spec = todo.spec
    assert (spec.writes, spec.network, spec.repeatable, spec.parallel) == (
        False,
        False,
        True,
        False,
    )
    assert "$" not in spec.schema
