"""From settings to lines, on real sockets."""

import sys
from dataclasses import replace

import anyio
import pytest

from holdfast.app import open_app
from holdfast.config import ModelSettings, Settings
from holdfast.core.lifecycle import Status
from holdfast.core.watchdog import Patience
from holdfast.lines import choices, open_lines
from holdfast.models.demo import DemoModel
from holdfast.testing.endpoint import Answer, open_endpoint
from holdfast.testing.scripted import Silence

pytestmark = pytest.mark.real_time


def model(name, url, **fields):
    return ModelSettings(name=name, wire="openai-chat", model="m", base_url=url, **fields)


async def opened(*models):
    settings = {one.name: one for one in models}
    async with open_lines(settings, demo=DemoModel(), clock=anyio.current_time) as lines:
        return lines


async def test_models_at_one_address_share_what_is_known_of_it():
    lines = await opened(
        model("a", "http://127.0.0.1:1/v1"),
        model("b", "http://127.0.0.1:1/v1"),
        model("c", "http://127.0.0.1:2/v1"),
    )
    assert lines["a"].endpoint is lines["b"].endpoint
    assert lines["a"].endpoint is not lines["c"].endpoint


async def test_the_lowest_limit_set_for_an_address_is_its_limit():
    lines = await opened(
        model("a", "http://127.0.0.1:1/v1", concurrency=3),
        model("b", "http://127.0.0.1:1/v1", concurrency=1),
        model("c", "http://127.0.0.1:1/v1"),
    )
    busy = []

    async def tell():
        busy.append(1)

    async with lines["c"].endpoint.place(tell):
        with anyio.move_on_after(0.01):
            async with lines["a"].endpoint.place(tell):
                pass
    assert busy == [1]


async def test_the_demo_needs_no_http():
    demo = ModelSettings(name="demo", wire="demo", model="demo")
    lines = await opened(demo)
    assert isinstance(lines["demo"].model, DemoModel)
    both = await opened(demo, model("a", "http://127.0.0.1:1/v1", hedge=0.5))
    assert isinstance(both["demo"].model, DemoModel)
    assert (both["a"].wire, both["a"].hedge) == ("openai-chat", 0.5)
    assert "holdfast.models.http" in sys.modules


async def test_a_second_connection_may_go_to_the_fallback():
    lines = await opened(
        model("a", "http://127.0.0.1:1/v1", hedge=0.5, hedge_to="b"),
        model("b", "http://127.0.0.1:2/v1", hedge=0.5),
    )
    assert lines["a"].second is lines["b"]
    assert lines["b"].second is None


def test_a_run_remembers_its_model_and_its_fallbacks_as_they_were():
    patience = Patience(first=2.0)
    settings = {
        "main": model("main", "", fallback=("b",), options={"a": 1}, patience=patience, grows=()),
        "b": model("b", ""),
    }
    main, backup = choices(settings, "main")
    assert (main.name, main.options, main.patience, main.grows) == ("main", {"a": 1}, patience, ())
    assert (backup.name, backup.grows) == ("b", ("first", "between", "whole"))


async def carried(settings, **asked):
    async with open_app(settings) as app:
        run_id = await app.runs.accept(app.prepare("hi", **asked))
        [_ async for _ in app.runs.follow(run_id)]
        return await app.runs.state(run_id)


async def test_a_run_on_a_configured_model_is_carried_to_its_end(tmp_path):
    async with open_endpoint([Answer(401)]) as main, open_endpoint(["Hello"]) as backup:
        models = {
            "main": model("main", main.url, key="sk-canary-1", fallback=("backup",)),
            "backup": model("backup", backup.url),
        }
        settings = Settings(data=tmp_path, default_model="main", models=models)
        state = await carried(settings)
        assert (state.status, state.output) == (Status.COMPLETED, "Hello")
        assert main.requests[0].headers["authorization"] == "Bearer sk-canary-1"
        assert "authorization" not in backup.requests[0].headers
        assert (await carried(settings, model="backup")).output == "Hello"


async def test_what_is_configured_is_what_a_run_gets(tmp_path):
    async with open_endpoint([Silence()], ["Hello"]) as endpoint:
        quick = Patience(first=0.1)
        main = model("main", endpoint.url, patience=quick, grows=(), attempts=2, total=7.0)
        settings = Settings(
            data=tmp_path / "data",
            workspace=tmp_path,
            default_model="main",
            models={"main": main},
        )
        settings = replace(settings, agent=replace(settings.agent, instructions="Be brief."))
        state = await carried(settings)
        assert state.output == "Hello" and len(endpoint.requests) == 2
        told = endpoint.requests[0].body["messages"][0]["content"]
        assert told.startswith("Be brief.\n\n") and f"directory {tmp_path} on" in told
    accepted = state.accepted
    assert (accepted.attempts, accepted.retry_total) == (2, 7.0)
    assert "terminal" in [tool.name for tool in accepted.tools]
    assert accepted.workspace == str(settings.workspace)
