"""A supervised call without a journal: heard out, retried, passed on to another model, or given up.

reply = await call(model, "Say hello")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import random

import anyio
from msgspec import Struct
from msgspec.structs import replace

from holdfast.calls.line import Line, attempt
from holdfast.core.messages import (
    Chunk,
    Done,
    Request,
    Said,
    Text,
    Thought,
    UserMessage,
    lone,
    mend,
)
from holdfast.core.retry import CUT_SHORT, Failure, GiveUp, RetryRules, Wait, next_attempt
from holdfast.core.watchdog import Patience
from holdfast.errors import BadReply, ModelError
from holdfast.ports import Model

PATIENCE = Patience()


class Retracted(Struct, frozen=True):
    """The attempt is abandoned: forget what was said since the last of these."""

    failure: Failure


class Reply(Struct, frozen=True):
    """A whole reply. `failures` are the attempts before it."""

    text: str
    done: Done
    failures: tuple[Failure, ...] = ()


Hear = Callable[[Chunk | Retracted], Awaitable[None]]


async def ignore(_chunk: Chunk | Retracted) -> None:
    """For whoever only wants the reply."""


async def call(
    models: Model | Mapping[str, Line],
    request: Request | str,
    *,
    patience: Patience = PATIENCE,
    rules: RetryRules | None = None,
    hear: Hear = ignore,
) -> Reply:
    """Ask the first of these models, and the others as `rules` say. Raises the last ModelError.

    `hear` is given each chunk as it comes, and Retracted where an attempt was given up on.
    """
    lines = models if isinstance(models, Mapping) else {"model": Line(models)}
    if isinstance(request, str):
        request = Request("", "", (UserMessage(parts=(Text(request),)),))
    rules = rules or RetryRules(models=tuple(lines))
    spread = random()
    history: list[Failure] = []
    while True:
        coming = next_attempt(history, rules, spread=spread)
        assert not isinstance(coming, GiveUp)
        await anyio.sleep(coming.seconds if isinstance(coming, Wait) else 0.0)
        ear = _Ear(hear)
        cut_short = bool(history) and history[-1].reason == CUT_SHORT
        asked = replace(
            request,
            model=coming.model,
            connect=patience.connect,
            stretch=2 if cut_short else request.stretch,
        )
        line = lines[coming.model]
        try:
            async with line.endpoint.place(_wait):
                done = await attempt(line, asked, patience, ear.hear)
            return Reply(ear.text(), done, tuple(history))
        except ModelError as error:
            history.append(_failure(coming.model, error, spoke=ear.spoke))
            if isinstance(next_attempt(history, rules, spread=spread), GiveUp):
                raise
            await hear(Retracted(history[-1]))


class _Ear:
    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._texts: list[str] = []
        self.spoke = False

    def text(self) -> str:
        """All of it. Raises BadReply if it is not made of whole characters."""
        text, held = mend("".join(self._texts))
        if held or lone(text) is not None:
            raise BadReply("the model sent half a character")
        return text

    async def hear(self, chunk: Chunk) -> None:
        self.spoke = self.spoke or isinstance(chunk, Said | Thought)
        if isinstance(chunk, Said):
            self._texts.append(chunk.text)
        await self._hear(chunk)


async def _wait() -> None:
    """Nobody to tell that all places are taken."""


def _failure(model: str, error: ModelError, *, spoke: bool) -> Failure:
    return Failure(
        model=model,
        reason=error.reason,
        message=str(error),
        status=error.status,
        retry_after=error.retry_after,
        waited=error.waited,
        spoke=spoke,
    )
