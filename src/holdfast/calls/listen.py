"""Listening to a model without waiting for ever.

One scope a call, and an alarm that cancels it. The clock runs only while we wait for the other side:
a slow disk of ours is never mistaken for their silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from math import inf
from typing import Self

import anyio
import anyio.lowlevel

from holdfast.calls.foreign import no_stray_cancel
from holdfast.core.messages import Chunk, Done, Heard, Said, Thought, Unstreamed
from holdfast.core.watchdog import Patience, Watchdog
from holdfast.errors import BadReply, ModelError, ModelUnavailable

#: Not a union, which would be made anew for each chunk.
_WORDS = (Said, Thought)

#: Seconds a model may take to hang up.
CLOSING = 5.0

#: Seconds an alarm may be late before somebody else must have had the event loop to themselves.
HELD_UP = 0.05

#: Chunks after which everyone else gets a turn, though the model never waits.
TURN = 32


async def listen(
    chunks: AsyncGenerator[Chunk, None],
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
    *,
    wire: str = "",
) -> Done:
    """Pass each chunk to `hear` and return the end marker.

    Raises StreamStalled if the line goes quiet, and ModelError as the model does, with the
    seconds of silence before it.
    """
    clock = asyncio.get_running_loop().time
    dog = Watchdog(patience, now=clock(), wire=wire)
    count, done = 0, None
    try:
        with (
            anyio.CancelScope() as line,
            no_stray_cancel(ModelUnavailable),
            _Alarm(dog, line) as alarm,
        ):
            async for chunk in chunks:
                if isinstance(chunk, Done):
                    done = chunk
                    alarm.set(CLOSING)
                    await chunks.aclose()
                    break
                came, waiting = clock(), dog.first
                if _note(chunk, dog, came):
                    alarm.off = True
                    await hear(chunk)
                    dog.excuse(clock() - came)
                    alarm.on(nearer=waiting)
                count += 1
                if count % TURN == 0:
                    await anyio.lowlevel.checkpoint()
        if done:
            return done
        if line.cancelled_caught:
            raise dog.stalled(now=clock())
        raise BadReply("the reply broke off without its end marker", reason="truncated")
    except ModelError as error:
        error.waited = dog.quiet(now=clock())
        raise
    finally:
        if done is None:
            with anyio.move_on_after(CLOSING, shield=True):
                await chunks.aclose()


def _note(chunk: Chunk, dog: Watchdog, now: float) -> bool:
    """Tell the watchdog. False if there is nothing in it to pass on."""
    if isinstance(chunk, _WORDS) and not chunk.text:
        return False
    if isinstance(chunk, Heard):
        dog.acknowledge(now=now)
    elif isinstance(chunk, Unstreamed):
        dog.expect_one_piece()
    else:
        dog.hear(now=now)
    return True


class _Alarm:
    """Cancels the scope once the watchdog's deadline has passed.

    A scope's own deadline would have to be moved with each event, which costs more than all the
    rest. The alarm lets the deadline move, and when its time comes looks where it is now.
    `off`: it is us who take our time.
    """

    def __init__(self, dog: Watchdog, scope: anyio.CancelScope) -> None:
        self._dog, self._scope = dog, scope
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.off = False

    def __enter__(self) -> Self:
        self.on()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()

    def on(self, *, nearer: bool = True) -> None:
        """`nearer`: the deadline may have come nearer, as it may with the first event, if only the
        whole had a limit before."""
        self.off = False
        if self._timer and not nearer:
            return
        deadline = self._dog.deadline
        if self._timer and deadline < self._timer.when():
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline < inf:
            self._timer = self._loop.call_at(deadline, self._look)

    def set(self, seconds: float) -> None:
        """Whatever the watchdog thinks."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._scope.cancel)

    def _look(self) -> None:
        self._timer = None
        if self.off:
            return
        late = self._loop.time() - self._dog.deadline
        if late > HELD_UP:
            # This process was: what the other side said meanwhile may be here and not yet heard.
            self._dog.excuse(late)
        elif late >= 0:
            self._scope.cancel()
            return
        self.on()
