import json
from hashlib import sha256

import pytest
from msgspec.structs import replace

from holdfast.core.events import RunCancelled, RunCompleted, TextStreamed
from holdfast.core.messages import BlobRef, Image, Text, UserMessage
from holdfast.core.session import SessionRenamed
from holdfast.engine.carrier import Carrier
from holdfast.engine.runs import Runs
from holdfast.errors import Conflict, InvalidRequest, NotFound
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

SECRET = "sk-a-very-secret-key"
CAT = b"\x89PNG a cat"
PICTURE = Image(blob=BlobRef(sha256=sha256(CAT).hexdigest(), size=len(CAT)), media_type="image/png")


def carrier(play, **how):
    return Carrier(play.means, workers=lambda: True, **how)


async def converse(play):
    """Two turns: one that was answered, and one that has not ended. Returns the runs."""
    first = await play.say("shade?")
    await play.ended(first.run_id)
    second = await play.say(f"sun? {SECRET}")
    await play.until(second.run_id, TextStreamed)
    return first.run_id, second.run_id


def scripted():
    return ScriptedModel([Call("pay")], ["Ferns."], ["Sunf", Silence(1000)])


async def test_a_session_is_taken_elsewhere_and_back_again():
    async with stage(scripted(), ScriptedTool("pay")) as play, stage(ScriptedModel()) as there:
        runs = await converse(play)
        await play.sessions.change("ses_1", SessionRenamed(title="Plants"))
        document = await carrier(play).export("ses_1")
        taken = await carrier(there).take_in(document)
        assert (taken.session_id, tuple(run.run_id for run in taken.runs)) == ("ses_1", runs)
        store = there.means.store
        assert list(await store.notes("ses_1")) == list(await play.means.store.notes("ses_1"))
        assert list(await store.read(runs[0])) == list(await play.means.store.read(runs[0]))
        again = await carrier(there).export("ses_1")
        assert json.loads(again)["notes"] == json.loads(document)["notes"]
        assert json.loads(again)["runs"][0] == json.loads(document)["runs"][0]


async def test_what_had_not_ended_is_not_carried_on():
    async with stage(scripted(), ScriptedTool("pay")) as play, stage(ScriptedModel()) as there:
        _, run_id = await converse(play)
        await carrier(there).take_in(await carrier(play).export("ses_1"))
        assert isinstance((await there.journal(run_id))[-1], RunCancelled)
        # The model there was given nothing to say, and would have been asked by now.
        assert (await there.sessions.entry("ses_1")).live == 0


async def test_a_session_that_was_taken_in_can_be_gone_on_with():
    model = ScriptedModel(["Sunflowers."])
    async with stage(scripted(), ScriptedTool("pay")) as play, stage(model) as there:
        await converse(play)
        await carrier(there).take_in(await carrier(play).export("ses_1"))
        sent = await there.say("go on")
        assert isinstance((await there.ended(sent.run_id)).ended, RunCompleted)
        said = [m.parts for m in model.requests[-1].messages if isinstance(m, UserMessage)]
        assert [parts[-1].text for parts in said] == ["shade?", f"sun? {SECRET}", "go on"]


async def test_what_is_there_already_is_taken_in_under_other_ids_if_at_all():
    async with stage(scripted(), ScriptedTool("pay")) as play:
        runs = await converse(play)
        document = await carrier(play).export("ses_1")
        with pytest.raises(Conflict):
            await carrier(play).take_in(document)
        taken = await carrier(play).take_in(document, as_new=True)
        assert taken.session_id != "ses_1"
        assert not {run.run_id for run in taken.runs} & set(runs)
        assert len(await play.means.store.sessions()) == 2


async def test_pictures_and_conversations_travel_along():
    async with stage(ScriptedModel(["A cat."])) as play, stage(ScriptedModel()) as there:
        asked = replace(
            (await play.means.store.read((await play.say("hi", session="x")).run_id))[0].event,
            session_id="ses_1",
            input=(Text("see"), PICTURE),
        )
        history = (UserMessage(parts=(PICTURE, Text("before"))),)
        blobs = {PICTURE.blob.sha256: CAT}
        await Runs(play.means).accept(asked, history=history, blobs=blobs)
        document = await carrier(play).export("ses_1")
        assert len(json.loads(document)["blobs"]) == 2
        await carrier(there).take_in(document)
        assert await there.means.store.blob(PICTURE.blob.sha256) == CAT


async def test_secrets_stay_here():
    async with stage(scripted(), ScriptedTool("pay")) as play:
        await converse(play)
        careful = carrier(play, hidden=[SECRET])
        assert SECRET.encode() not in await careful.export("ses_1")
        page = await careful.export_page("ses_1")
        assert page.startswith("# shade?\n")
        assert SECRET not in page
        assert "still arrive" not in page


async def test_a_session_that_was_deleted_does_not_leave():
    async with stage(scripted(), ScriptedTool("pay")) as play:
        await converse(play)
        await play.sessions.delete("ses_1")
        for asked in (carrier(play).export, carrier(play).export_page):
            with pytest.raises(NotFound):
                await asked("ses_1")
            with pytest.raises(NotFound):
                await asked("ses_0")


async def test_of_what_is_no_session_nothing_is_taken_in():
    async with stage(ScriptedModel()) as play:
        with pytest.raises(InvalidRequest):
            await carrier(play).take_in(b"{}")
        assert not await play.means.store.sessions()


class Book:
    """Knows which sessions were forgotten."""

    def __init__(self):
        self.forgotten = []

    def standing(self, run_id, accepted):
        return ()

    async def forget(self, session_id):
        self.forgotten.append(session_id)


async def test_what_was_allowed_under_its_name_is_not_allowed_to_what_is_taken_in():
    book = Book()
    async with (
        stage(scripted(), ScriptedTool("pay")) as play,
        stage(ScriptedModel(), rulebook=book) as there,
    ):
        await converse(play)
        document = await carrier(play).export("ses_1")
        await carrier(there).take_in(document)
        assert book.forgotten == ["ses_1"]
        # One that is refused takes nothing away from the one that is here.
        with pytest.raises(Conflict):
            await carrier(there).take_in(document)
        assert book.forgotten == ["ses_1"]
