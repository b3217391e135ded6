"""A file with two runs in it: one that ended, and one that has not."""

import shutil
from contextlib import aclosing

import anyio
import apsw
import pytest

from holdfast.app import open_app
from holdfast.config.places import JOURNAL
from holdfast.core.events import TextStreamed
from holdfast.core.messages import Text, UserMessage
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence

ENDED, LIVE = "run_aa11", "run_aa22"


async def paint(use):
    return "blue " * 20_000


async def make(folder):
    """An output and a history stand among the blobs, and so does a body that is long."""
    model = ScriptedModel([Call("paint")], ["All ", "done."], ["Once ", Silence()])
    tools = [ScriptedTool("paint", work=paint)]
    async with open_app(data=folder, models={"m": model}, tools=tools) as app:
        history = (UserMessage(parts=(Text("before"),)),)
        await app.runs.accept(app.prepare("x" * 70_000), run_id=ENDED, history=history)
        [_ async for _ in app.runs.follow(ENDED)]
        await app.runs.accept(app.prepare("a story"), run_id=LIVE)
        async with aclosing(app.runs.follow(LIVE)) as journal:
            async for recorded in journal:
                if isinstance(recorded.event, TextStreamed):
                    return


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "data"
    anyio.run(make, folder)
    return folder


@pytest.fixture
def journals(made, tmp_path):
    """The path of a copy."""
    (tmp_path / "data").mkdir(mode=0o700)
    return shutil.copy(made / JOURNAL, tmp_path / "data" / JOURNAL)


@pytest.fixture
def spoil(journals):
    """Change what is stored, as no part of holdfast would."""

    def spoil(statement, *values):
        connection = apsw.Connection(str(journals))
        connection.execute(statement, values)
        connection.close()

    return spoil
