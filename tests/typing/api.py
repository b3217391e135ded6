"""Checked by mypy and never run: the public types fit together as a user would expect."""

from collections.abc import AsyncGenerator
from typing import assert_type

import holdfast
from holdfast import (
    App,
    Chunk,
    HoldfastError,
    Means,
    MemoryStore,
    Model,
    ModelChoice,
    NotFound,
    Patience,
    Phase,
    Recorded,
    Request,
    Review,
    RunAccepted,
    Runs,
    RunState,
    Status,
    Text,
    Tool,
    ToolSpec,
    ToolUse,
    Worker,
    open_app,
    phase,
    replay,
)
from holdfast.core.messages import Done, Said
from holdfast.models.demo import DemoModel
from holdfast.tools.demo import KeepNote, LookAround


class Parrot:
    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        yield Said("hello")
        yield Done()


class Clap:
    spec = ToolSpec(name="clap", writes=False)

    def review(self, arguments: str) -> Review:
        return Review(gate="ask", reason="it is loud")

    async def run(self, use: ToolUse) -> str:
        await use.progress("clap")
        return "clapped"


a_model: Model = Parrot()
a_tool: Tool = Clap()
demo: Model = DemoModel(pace=0.1)
demo_tools: list[Tool] = [LookAround(), KeepNote()]


async def use_an_app() -> None:
    async with open_app(models={"parrot": Parrot()}, tools=[Clap()]) as app:
        assert_type(app, App)
        assert_type(app.runs, Runs)
        run_id = await app.runs.accept(app.prepare("hello", approval="deny"))
        assert_type(run_id, str)
        async for recorded in app.runs.follow(run_id):
            assert_type(recorded, Recorded)
        state = await app.runs.state(run_id)
        assert_type(state, RunState)
        assert_type(state.status, Status)
        assert_type(phase(state), Phase | None)
        await app.runs.answer(run_id, "maybe")  # type: ignore[arg-type]
        await app.runs.stop(run_id, by="me")


async def use_the_parts() -> None:
    store = MemoryStore()
    means = Means(store, {"parrot": Parrot()}, {"clap": Clap()})
    assert_type(Worker(means, name="w"), Worker)
    accepted = RunAccepted(
        input=(Text("hello"),),
        models=(ModelChoice("parrot", patience=Patience(first=10)),),
        tools=(Clap.spec,),
    )
    assert_type(await store.accept("run_1", accepted), Recorded)
    assert_type(replay(await store.read("run_1")), RunState)


def use_the_errors(error: HoldfastError) -> str:
    if isinstance(error, NotFound):
        assert_type(error.id, str)
    return str(error)


assert_type(holdfast.__version__, str)
holdfast.Nonsense  # type: ignore[attr-defined]  # noqa: B018
