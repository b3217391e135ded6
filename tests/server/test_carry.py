import json

import anyio
import pytest

from holdfast.app import open_app
from holdfast.testing.scripted import ScriptedModel
from tests.server.conftest import Inside, Metrics, Settings

SECRET = "hf_a_very_secret_key"


async def talk(served, text="shade?", session="ses_1"):
    run_id = await served.run(text, session_id=session)
    await served.get(f"/v1/runs/{run_id}?wait=30")
    return run_id


async def export(served, session="ses_1", format="json"):
    return await served.get(f"/v1/sessions/{session}/export?format={format}")


async def take_in(served, body, query=""):
    return await served.ask("POST", f"/v1/sessions/import{query}", body=body)


async def test_a_session_leaves_as_a_document_and_comes_in_elsewhere(inside, tmp_path):
    async with inside(ScriptedModel(["Ferns."])) as served, open_app(models={}, tools=[]) as app:
        there = Inside(app, Settings(tmp_path), Metrics())
        run_id = await talk(served)
        document = await export(served)
        assert document.status == 200
        assert document.headers["content-type"] == "application/json"
        assert document.headers["content-disposition"] == 'attachment; filename="ses_1.json"'
        assert document.json["runs"][0]["run_id"] == run_id
        assert (await served.get("/v1/sessions/ses_1/export")).body == document.body
        taken = await take_in(there, document.body)
        assert (taken.status, taken.json) == (201, {"session_id": "ses_1", "runs": 1})
        assert (await export(there)).body == document.body


async def test_a_page_can_be_read(inside):
    async with inside(ScriptedModel(["Ferns."])) as served:
        await talk(served, session="a b!")
        page = await export(served, "a b!", "markdown")
        assert page.headers["content-type"] == "text/markdown; charset=utf-8"
        assert page.headers["content-disposition"] == 'attachment; filename="a-b.md"'
        assert page.text == "# shade?\n\n## Person\n\n> shade?\n\n## Assistant\n\n> Ferns.\n"


@pytest.mark.parametrize(("session", "name"), [('"; x="', "x"), ("é" * 200, "session")])
async def test_a_file_has_a_name_that_is_one_everywhere(inside, session, name):
    async with inside(ScriptedModel(["Ferns."])) as served:
        await talk(served, session=session)
        found = (await export(served, session)).headers["content-disposition"]
        assert found == f'attachment; filename="{name}.json"'


async def test_what_is_here_already_is_a_conflict_unless_it_is_to_be_new(inside):
    async with inside(ScriptedModel(["Ferns."])) as served:
        run_id = await talk(served)
        document = (await export(served)).body
        again = await take_in(served, document)
        assert (again.status, again.error["code"]) == (409, "conflict")
        assert "ses_1" in again.error["message"]
        taken = await take_in(served, document, "?as_new=true")
        assert taken.status == 201
        other = (await export(served, taken.json["session_id"])).json
        assert other["session_id"] != "ses_1"
        assert other["runs"][0]["run_id"] != run_id


async def test_what_is_no_session_is_refused_with_what_is_wrong(inside):
    async with inside(ScriptedModel(["Ferns."])) as served:
        await talk(served)
        document = (await export(served)).json
        document["session_id"] = "ses_2"
        for body, said in (
            (b"", "this is no exported session"),
            (b"[]", "this is no exported session"),
            (json.dumps(document).encode(), "it is of another session"),
        ):
            answer = await take_in(served, body)
            assert answer.status == 400
            assert said in answer.error["message"]
        assert not await served.app.means.store.sessions(text="ses_2")


async def test_what_is_asked_for_must_be_something(inside):
    async with inside(ScriptedModel(["Ferns."])) as served:
        await talk(served)
        assert (await export(served, "ses_0")).error["code"] == "session_not_found"
        for format in ("json", "markdown"):
            assert (await export(served, "ses_0", format)).status == 404
        odd = await export(served, format="yaml")
        assert (odd.status, odd.error["param"]) == (400, "format")
        odd = await take_in(served, b"{}", "?as_new=perhaps")
        assert (odd.status, odd.error["param"]) == (400, "as_new")


async def test_a_server_that_leaves_takes_nothing_in(inside):
    async with inside(ScriptedModel(["Ferns."])) as served:
        await talk(served)
        document = (await export(served)).body
        served.service.draining.set()
        assert (await take_in(served, document, "?as_new=true")).error["code"] == "gateway_draining"
        assert (await export(served)).body == document


async def test_secrets_of_the_server_do_not_leave(inside, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    async with inside(ScriptedModel([f"It is {SECRET}."])) as served:
        await talk(served, f"my key is {SECRET}")
        for format in ("json", "markdown"):
            assert SECRET.encode() not in (await export(served, format=format)).body


async def test_both_kinds_of_answers_are_described(inside):
    async with inside(ScriptedModel()) as served:
        schema = (await served.get("/openapi.json")).json
        answer = schema["paths"]["/v1/sessions/{session_id}/export"]["get"]["responses"]["200"]
        assert set(answer["content"]) == {"application/json", "text/markdown"}


@pytest.mark.real_time
async def test_a_document_that_is_too_large_is_refused_with_the_limit(server):
    await server.start("[server]\nbody_limit = 2000\n[models.demo]\nwire = 'demo'\n")
    with anyio.fail_after(20):
        answer = await server.post("/v1/sessions/import", {"title": "x" * 3000})
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert "2000 bytes" in answer.error["message"]
