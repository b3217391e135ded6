"""Listening to a model without waiting for ever.

One scope a call, whose deadline moves. The clock runs only while we wait for the other side:
a slow disk of ours is never mistaken for their silence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from math import inf

import anyio

from holdfast.core.messages import Chunk, Done, Heard, Said, Thought
from holdfast.core.watchdog import Patience, Watchdog
from holdfast.errors import BadReply, ModelError


async def listen(
    chunks: AsyncGenerator[Chunk, None],
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
) -> Done:
    """Pass each chunk to `hear` and return the end marker.

    Raises StreamStalled if the line goes quiet, and ModelError as the model does, with the
    seconds of silence before it.
    """
    dog = Watchdog(patience, now=anyio.current_time())
    try:
        async with aclosing(chunks):
            with anyio.CancelScope(deadline=dog.deadline) as line:
                async for chunk in chunks:
                    if isinstance(chunk, Done):
                        return chunk
                    line.deadline = inf
                    await _pass_on(chunk, dog, hear)
                    line.deadline = dog.deadline
        if line.cancelled_caught:
            raise dog.stalled(now=anyio.current_time())
        raise BadReply("the reply broke off without its end marker", reason="truncated")
    except ModelError as error:
        error.waited = dog.quiet(now=anyio.current_time())
        raise


async def _pass_on(chunk: Chunk, dog: Watchdog, hear: Callable[[Chunk], Awaitable[None]]) -> None:
    came = anyio.current_time()
    if isinstance(chunk, Said | Thought) and not chunk.text:
        return
    if isinstance(chunk, Heard):
        dog.acknowledge(now=came)
    else:
        dog.hear(now=came)
    await hear(chunk)
    dog.excuse(anyio.current_time() - came)
