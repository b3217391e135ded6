"""Listening to a model without waiting for ever.

One scope a call, whose deadline moves. The clock runs only while we wait for the other side:
a slow disk of ours is never mistaken for their silence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from math import inf

import anyio
import anyio.lowlevel

from holdfast.calls.foreign import no_stray_cancel
from holdfast.core.messages import Chunk, Done, Heard, Said, Thought, Unstreamed
from holdfast.core.watchdog import Patience, Watchdog
from holdfast.errors import BadReply, ModelError, ModelUnavailable

#: Seconds a model may take to hang up.
CLOSING = 5.0

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
    dog = Watchdog(patience, now=anyio.current_time(), wire=wire)
    count = 0
    try:
        with anyio.CancelScope(deadline=dog.deadline) as line, no_stray_cancel(ModelUnavailable):
            async for chunk in chunks:
                if isinstance(chunk, Done):
                    return chunk
                line.deadline = inf
                await _pass_on(chunk, dog, hear)
                line.deadline = dog.deadline
                count += 1
                if count % TURN == 0:
                    await anyio.lowlevel.checkpoint()
        if line.cancelled_caught:
            raise dog.stalled(now=anyio.current_time())
        raise BadReply("the reply broke off without its end marker", reason="truncated")
    except ModelError as error:
        error.waited = dog.quiet(now=anyio.current_time())
        raise
    finally:
        with anyio.move_on_after(CLOSING, shield=True):
            await chunks.aclose()


async def _pass_on(chunk: Chunk, dog: Watchdog, hear: Callable[[Chunk], Awaitable[None]]) -> None:
    came = anyio.current_time()
    if isinstance(chunk, Said | Thought) and not chunk.text:
        return
    if isinstance(chunk, Heard):
        dog.acknowledge(now=came)
    elif isinstance(chunk, Unstreamed):
        dog.expect_one_piece()
    else:
        dog.hear(now=came)
    await hear(chunk)
    dog.excuse(anyio.current_time() - came)
