import platform

import pytest

from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.tools.demo import KeepNote, LookAround


def use(arguments="{}", effect_id="call_1"):
    async def progress(text):
        raise AssertionError("the demo tools have no progress to report")

    return ToolUse(arguments=arguments, effect_id=effect_id, progress=progress)


async def test_looking_around_needs_no_approval_and_tells_where_we_are():
    tool = LookAround()
    assert tool.review("{}") == Review(gate="auto")
    assert platform.python_version() in await tool.run(use())
    assert not tool.spec.writes
    assert tool.spec.parallel


def test_keeping_a_note_needs_a_yes_to_exactly_its_words():
    review = KeepNote().review('{"text":"two\\nlines"}')
    assert (review.gate, review.subject, review.key) == ("ask", "two\nlines", "note")
    assert review.reason


async def test_notes_are_kept_and_counted():
    tool = KeepNote()
    assert await tool.run(use('{"text":"milk"}', "call_1")) == "kept; there is 1 note now"
    assert await tool.run(use('{"text":"eggs"}', "call_2")) == "kept; there are 2 notes now"
    assert tool.notes == ("milk", "eggs")


async def test_a_repeated_use_is_still_one_note():
    tool = KeepNote()
    await tool.run(use('{"text":"milk"}', "call_1"))
    assert await tool.run(use('{"text":"milk"}', "call_1")) == "kept; there is 1 note now"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (LookAround(), '{"where":"here"}', "look_around cannot use these arguments: .*where"),
        (KeepNote(), "{}", "keep_note cannot use these arguments: .*missing.*text.*its schema is"),
        (KeepNote(), '{"text":""}', "length >= 1"),
        (KeepNote(), '{"text":7}', "Expected `str`, got `int`"),
        (KeepNote(), "not json", "malformed"),
        (KeepNote(), '{"text":"\ud800"}', "surrogates"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(tool, arguments, said):
    with pytest.raises(ToolError, match=said):
        tool.review(arguments)
