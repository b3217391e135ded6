import asyncio

import anyio
import pytest

from holdfast.calls.foreign import MOST_WORDS, no_stray_cancel, told


async def test_a_cancellation_that_nobody_asked_for_becomes_an_error():
    with pytest.raises(RuntimeError, match="behind its back"), no_stray_cancel(RuntimeError):
        raise asyncio.CancelledError


async def test_a_cancellation_that_was_asked_for_passes():
    with anyio.CancelScope() as scope, no_stray_cancel(RuntimeError):
        scope.cancel()
        await anyio.sleep(1)
    assert scope.cancelled_caught


async def test_a_limit_that_passes_is_a_cancellation_that_was_asked_for():
    with anyio.move_on_after(1) as scope, no_stray_cancel(RuntimeError):
        await anyio.sleep(2)
    assert scope.cancelled_caught


async def test_after_a_cancellation_of_ours_a_stray_one_is_still_told_apart():
    with anyio.move_on_after(1):
        await anyio.sleep(2)
    with pytest.raises(RuntimeError), no_stray_cancel(RuntimeError):
        raise asyncio.CancelledError


async def test_other_errors_pass_as_they_are():
    with pytest.raises(KeyError), no_stray_cancel(RuntimeError):
        raise KeyError


def test_what_an_error_says_is_kept_within_measure():
    assert told(ValueError("plain")) == "plain"
    assert len(told(ValueError("x" * 10_000))) == MOST_WORDS
    assert told(ValueError("\ud83d")) == "\\ud83d"


def test_an_error_that_cannot_say_what_it_is():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert told(Mute()) == "an error that cannot say what it is"
