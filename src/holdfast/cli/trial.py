"""One short call to a model, to see whether it answers and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import time  # noqa: TID251 - dates in answers are compared with it

import anyio
from msgspec import Struct

from holdfast.calls.line import attempt
from holdfast.config import ModelSettings
from holdfast.core.messages import Chunk, Request, Said, Text, UserMessage, mend, storable
from holdfast.errors import ModelError
from holdfast.lines import open_lines
from holdfast.models.demo import DemoModel

_PROMPT = "Say hello in one short sentence."


class Listed(Struct, frozen=True, omit_defaults=True):
    """A model as `holdfast models --json` lists it."""

    name: str
    wire: str
    model: str
    base_url: str
    key_env: str
    fallback: tuple[str, ...]
    default: bool


class Trial(Struct, frozen=True, omit_defaults=True):
    """What came of it. Seconds count from the start of the call."""

    name: str
    ok: bool
    first_event: float = 0.0
    whole: float = 0.0
    text: str = ""
    model: str = ""
    input: int = 0
    output: int = 0
    cost: float | None = 0.0
    reason: str = ""
    error: str = ""


async def try_model(settings: Mapping[str, ModelSettings], name: str) -> Trial:
    """Ask once, without a second attempt and without anyone else to turn to."""
    one = replace(settings[name], hedge=0.0, hedge_to="")
    said: list[str] = []
    first = began = 0.0

    async def hear(chunk: Chunk) -> None:
        nonlocal first
        first = first or anyio.current_time() - began
        if isinstance(chunk, Said):
            said.append(chunk.text)

    request = Request(
        name,
        "",
        (UserMessage(parts=(Text(_PROMPT),)),),
        options=dict(one.options),
        connect=one.patience.connect,
    )
    async with open_lines({name: one}, demo=DemoModel(), clock=time) as lines:
        began = anyio.current_time()
        try:
            done = await attempt(lines[name], request, one.patience, hear)
        except ModelError as error:
            return Trial(name, ok=False, reason=error.reason, error=storable(str(error)))
        whole = anyio.current_time() - began
    return Trial(
        name,
        ok=True,
        first_event=round(first or whole, 6),
        whole=round(whole, 6),
        # Whatever it is made of, it can be printed.
        text=storable("".join(mend("".join(said))).strip()),
        model=storable(done.model or one.model),
        input=done.usage.input,
        output=done.usage.output,
        cost=done.usage.cost,
    )
