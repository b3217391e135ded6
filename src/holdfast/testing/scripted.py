"""A model that follows a script, and a tool that remembers what was done with it.

    model = ScriptedModel([Silence()], ["Hel", "lo"])

Each list is one call: a string is said, Think is thought, Call asks for a tool, Silence waits,
an exception is raised, and Ack is the backend's bare acknowledgement. A list without an
end of its own ends with Done; CutOff ends the stream without.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Self, TypeAlias

import anyio
import anyio.lowlevel

from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Chunk,
    Done,
    Heard,
    Request,
    Said,
    Thought,
    ToolSpec,
)
from holdfast.core.usage import Usage
from holdfast.errors import ModelRefused
from holdfast.ports import Review, ToolUse


@dataclass(frozen=True)
class Silence:
    seconds: float = inf


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class Call:
    """Ask for a tool. `model_id` is the model's own name for the call; models reuse theirs."""

    tool: str
    arguments: str = "{}"
    model_id: str = "call_0"


@dataclass(frozen=True)
class Ack:
    """What only the backend can send, and says nothing."""


@dataclass(frozen=True)
class CutOff:
    """The stream ends here, politely and without its end marker."""


Line: TypeAlias = str | Think | Call | Silence | Ack | CutOff | Done | Exception
Script: TypeAlias = Sequence[Line]


class ScriptedModel:
    """Counts what a test may ask: `calls` made, streams `open`, and the `requests` it was given."""

    def __init__(self, *calls: Script) -> None:
        self._scripts = list(calls)
        self.calls = 0
        self.open = 0
        self.requests: list[Request] = []

    @classmethod
    def by_turn(cls, *turns: Script) -> Self:
        """Chooses by how many replies the conversation holds, so that a crash loses no lines."""
        model = cls()
        model._choose = lambda request: turns[_replies(request)]  # type: ignore[method-assign]
        return model

    def _choose(self, request: Request) -> Script:
        if not self._scripts:
            return [ModelRefused("the script has no further call")]
        return self._scripts.pop(0)

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        self.open += 1
        self.requests.append(request)
        try:
            async for chunk in _perform(self._choose(request)):
                yield chunk
        finally:
            self.open -= 1


async def _perform(script: Script) -> AsyncGenerator[Chunk, None]:
    asked: list[Asked] = []
    for line in script:
        await anyio.lowlevel.checkpoint()
        match line:
            case str():
                yield Said(line)
            case Think(text):
                yield Thought(text)
            case Call(tool, arguments, model_id):
                asked.append(Asked(tool, arguments, model_id))
                yield Calling(tool)
            case Silence(seconds):
                await anyio.sleep(seconds)
            case Ack():
                yield Heard()
            case CutOff():
                return
            case Done():
                yield line
                return
            case Exception():
                raise line
    yield Done(calls=tuple(asked), usage=Usage(input=10, output=len(script)))


def _replies(request: Request) -> int:
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


UNASKED = Review()


class ScriptedTool:
    """Remembers the `effects` it had, by effect id and in order.

    `work` is what it does once it has begun; it may sleep, raise, or return the output.
    `review` is what it makes of any call beforehand, or a function of the arguments.
    """

    def __init__(
        self,
        name: str = "pay",
        *,
        work: Callable[[ToolUse], Awaitable[str]] | None = None,
        review: Review | Callable[[str], Review] = UNASKED,
        writes: bool = True,
        repeatable: bool = False,
        parallel: bool = False,
        timeout: float = 600.0,
    ) -> None:
        self.spec = ToolSpec(
            name=name,
            description=f"{name}, in a script",
            writes=writes,
            repeatable=repeatable,
            parallel=parallel,
            timeout=timeout,
        )
        self._work, self._review = work, review
        self.effects: list[str] = []

    def review(self, arguments: str) -> Review:
        return self._review(arguments) if callable(self._review) else self._review

    async def run(self, use: ToolUse) -> str:
        self.effects.append(use.effect_id)
        if self._work is None:
            await anyio.lowlevel.checkpoint()
            return "ok"
        return await self._work(use)
