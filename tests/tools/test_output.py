import json
import re
from hashlib import sha256

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import NotFound, ToolError
from holdfast.ports import ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.tools.output import _part, _search, read_output

pytestmark = pytest.mark.real_time


class Shelf(dict):
    """Blobs in memory."""

    def put(self, body):
        name = sha256(body).hexdigest()
        self[name] = body
        return name

    async def blob(self, name):
        if name not in self:
            raise NotFound("blob", name)
        return self[name]


class TestReadOutput(ToolContract):
    @pytest.fixture
    def tool(self):
        return read_output(Shelf().blob)


async def read(body, **arguments):
    shelf = Shelf()
    made = read_output(shelf.blob)
    return await made.run(use(output=shelf.put(body), **arguments))


def use(**arguments):
    async def progress(text):
        raise AssertionError("there is no progress to report")

    return ToolUse(arguments=json.dumps(arguments), effect_id="call_1", progress=progress)


def test_it_reads_only_and_may_run_beside_others():
    spec = read_output(Shelf().blob).spec
    assert (spec.name, spec.writes, spec.repeatable, spec.parallel) == (
        "read_output",
        False,
        True,
        True,
    )
    # What it shows is never shortened in its turn.
    most = json.loads(spec.schema)["properties"]["limit"]["maximum"]
    assert most + 200 < spec.output


async def test_a_part_is_shown_with_how_to_read_on():
    assert await read(b"0123456789", offset=2, limit=3) == (
        "234\n[characters 2 to 5 of 10; 5 are left: read on with offset=5]"
    )
    assert await read(b"0123456789", offset=5) == ("56789\n[characters 5 to 10 of 10; that is all]")
    assert await read(b"") == "\n[characters 0 to 0 of 0; that is all]"


async def test_characters_are_counted_not_bytes():
    assert await read("äöü€😀".encode(), offset=3, limit=1) == (
        "€\n[characters 3 to 4 of 5; 1 are left: read on with offset=4]"
    )


async def test_reading_past_the_end_is_told():
    with pytest.raises(ToolError, match="has 3 characters; there are none past 7"):
        await read(b"abc", offset=7)


async def test_an_output_that_is_none_is_told():
    with pytest.raises(ToolError, match=f"there is no output {'0' * 64}"):
        await read_output(Shelf().blob).run(use(output="0" * 64))


@pytest.mark.parametrize(
    "arguments",
    [
        {"output": "../journal.db"},
        {"output": "0" * 64, "offset": -1},
        {"output": "0" * 64, "limit": 0},
        {"output": "0" * 64, "limit": 50_001},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ToolError):
        read_output(Shelf().blob).review(json.dumps(arguments))


async def test_bytes_that_are_no_text_are_shown_as_far_as_they_can_be():
    assert (await read(b"a\xffb\xe2")).startswith("a\ufffdb\ufffd\n[characters 0 to 4 of 4")


async def test_places_are_named_by_offset_and_line():
    assert await read(b"one\ntwo\nthree two", find="two") == (
        "found 2 times\noffset 4, line 2: one two three two\noffset 14, line 3: one two three two"
    )
    assert (await read(b"one\ntwo\nthree two", find="two", offset=5)).startswith("found 1 time\n")
    assert await read(b"one", find="two") == (
        "that text does not stand in this output from character 0 on"
    )


async def test_of_many_places_the_first_are_named_and_how_to_find_more():
    told = await read(b"ab" * 60, find="b")
    assert told.startswith("found 60 times; the first 50, find more with offset=100\n")
    assert len(told.splitlines()) == 51
    assert (await read(b"ab" * 60, find="b", offset=100)).startswith("found 10 times\noffset 101,")


@given(
    text=st.text("ab\né", max_size=40),
    find=st.text("ab\né", min_size=1, max_size=4),
    size=st.integers(1, 7),
)
def test_pieces_change_nothing(text, find, size):
    found = [(at, line) for at, line, _ in _search(text.encode(), find, size=size)]
    # Places that overlap another may be named or not, all others are.
    every = {match.start() for match in re.finditer(f"(?={re.escape(find)})", text)}
    named = {at for at, _ in found}
    assert named <= every and len(named) == len(found)
    assert {at for at in every if not every & set(range(at - len(find) + 1, at))} <= named
    assert all(line == text.count("\n", 0, at) + 1 for at, line in found)
    for offset in range(len(text)):
        shown = _part(text.encode(), offset, 3, size=size).rpartition("\n[")[0]
        assert shown == text[offset : offset + 3]


async def test_a_large_output_keeps_nobody_waiting():
    """By how much of the time is the longest wait, which is the same on a slow machine."""
    body = "wörter und zeilen, 1 € das stück\n".encode() * 1_000_000
    shelf = Shelf()
    made, name = read_output(shelf.blob), shelf.put(body)

    async def longest_wait():
        began = last = anyio.current_time()
        longest = 0.0
        async with anyio.create_task_group() as tasks:

            async def look():
                await made.run(use(output=name, offset=20_000_000))
                tasks.cancel_scope.cancel()

            tasks.start_soon(look)
            while not tasks.cancel_scope.cancel_called:
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
                longest = max(longest, anyio.current_time() - last)
                last = anyio.current_time()
        return longest / (last - began)

    # One of three: the machine has other things to do.
    assert min([await longest_wait() for _ in range(3)]) < 0.45
