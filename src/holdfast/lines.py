"""From settings to lines: every configured model, ready to be called.

What speaks HTTP is loaded only when a model is configured that needs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from holdfast.calls.line import Endpoint, Line
from holdfast.config import ModelSettings
from holdfast.core.events import ModelChoice
from holdfast.ports import Clock, Model


@asynccontextmanager
async def open_lines(
    settings: Mapping[str, ModelSettings], *, demo: Model, clock: Clock
) -> AsyncIterator[Mapping[str, Line]]:
    """A line to each of these models, by name. Models at one address share what is known of it."""
    if all(one.wire == "demo" for one in settings.values()):
        yield _lines(settings, dict.fromkeys(settings, demo))
        return
    from holdfast.models.http import open_transport
    from holdfast.models.remote import open_remote

    async with open_transport() as transport:
        models = {
            name: demo
            if one.wire == "demo"
            else open_remote(
                one.wire,
                transport,
                base_url=one.base_url,
                model=one.model,
                key=one.key,
                headers=one.headers,
                stream=one.stream,
                price=one.price,
                clock=clock,
            )
            for name, one in settings.items()
        }
        yield _lines(settings, models)


def choices(settings: Mapping[str, ModelSettings], name: str) -> tuple[ModelChoice, ...]:
    """The model of this name and its fallbacks, as a run is to remember them."""
    wanted = [settings[name], *(settings[other] for other in settings[name].fallback)]
    return tuple(
        ModelChoice(
            name=one.name, options=dict(one.options), patience=one.patience, grows=one.grows
        )
        for one in wanted
    )


def _lines(settings: Mapping[str, ModelSettings], models: Mapping[str, Model]) -> dict[str, Line]:
    # Another key is another customer there: what befalls the one need not befall the other.
    endpoints = {
        (one.base_url, one.key): _endpoint(settings, one.base_url) for one in settings.values()
    }
    lines = {
        name: Line(
            model=models[name],
            wire=one.wire,
            endpoint=endpoints[one.base_url, one.key],
            hedge=one.hedge,
            options=one.options,
        )
        for name, one in settings.items()
    }
    hedged = {name: lines[one.hedge_to] for name, one in settings.items() if one.hedge_to}
    return lines | {name: replace(lines[name], second=other) for name, other in hedged.items()}


def _endpoint(settings: Mapping[str, ModelSettings], base_url: str) -> Endpoint:
    """One for all models at this address; the lowest of the limits they set is the endpoint's."""
    limits = [one.concurrency for one in settings.values() if one.base_url == base_url]
    return Endpoint(concurrency=min((limit for limit in limits if limit), default=0))
