import os
import termios

import anyio
import pytest

from holdfast.cli.keyboard import Keyboard

pytestmark = pytest.mark.real_time


@pytest.fixture
def terminal():
    ours, theirs = os.openpty()
    yield ours, theirs
    for number in (ours, theirs):
        try:
            os.close(number)
        except OSError:
            pass


@pytest.mark.parametrize(
    ("typed", "heard"),
    [
        (b"once\n", "once"),
        (b"onr\x7fce\n", "once"),
        (b"\n", ""),
        (b"\x04", None),
        (b"on\x04", None),
        (b"\x1b", None),
        (b"\xff\n", "\ufffd"),
    ],
)
async def test_a_line_is_what_was_typed_before_enter(terminal, typed, heard):
    ours, theirs = terminal
    keyboard = Keyboard(theirs)
    with keyboard.attention():
        os.write(ours, typed)
        assert await keyboard.line() == heard


async def test_a_key_that_sends_an_escape_leaves_nothing_behind(terminal):
    ours, theirs = terminal
    keyboard = Keyboard(theirs)
    with keyboard.attention():
        os.write(ours, b"\x1b[A")
        assert await keyboard.line() is None
        os.write(ours, b"deny\n")
        assert await keyboard.line() == "deny"


async def test_what_was_typed_before_does_not_count(terminal):
    ours, theirs = terminal
    os.write(ours, b"always\n")
    keyboard = Keyboard(theirs)
    with keyboard.attention():
        os.write(ours, b"deny\n")
        assert await keyboard.line() == "deny"


async def test_waiting_for_a_line_can_be_given_up(terminal):
    _, theirs = terminal
    with anyio.move_on_after(0.01) as wait:
        await Keyboard(theirs).line()
    assert wait.cancelled_caught


async def test_the_terminal_is_left_as_it_was(terminal):
    _, theirs = terminal
    before = termios.tcgetattr(theirs)
    keyboard = Keyboard(theirs)
    with keyboard.attention():
        assert termios.tcgetattr(theirs) != before
        keyboard.restore()
        assert termios.tcgetattr(theirs) == before
    assert termios.tcgetattr(theirs) == before


async def test_a_terminal_that_goes_away_says_nothing_more(terminal):
    ours, theirs = terminal
    keyboard = Keyboard(theirs)
    with keyboard.attention():
        os.close(ours)
        assert await keyboard.line() is None
    with keyboard.attention():
        assert await keyboard.line() is None
