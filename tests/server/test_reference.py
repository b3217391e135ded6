from html.parser import HTMLParser

import pytest
from msgspec.json import encode

from holdfast.core.messages import Text
from holdfast.errors import ModelRefused
from holdfast.server.reference import APPROVAL, RUN, STEER, STOP, page
from holdfast.server.requests import (
    ApprovalRequest,
    RunRequest,
    read_approval,
    read_run,
    read_steer,
    read_stop,
)
from holdfast.testing.scripted import ScriptedModel

SCHEMA = {
    "info": {"title": "A <title>", "version": "1", "description": "about & about"},
    "paths": {
        "/a/{id}": {
            "get": {
                "summary": "Read <b>",
                "description": "at length",
                "parameters": [{"name": "id", "in": "path", "description": "its id"}],
                "responses": {
                    "200": {"description": "there"},
                    "404": {},
                    "429": {"headers": {"Retry-After": {}, "X-<b>": {}}},
                },
            },
            "post": {
                "summary": None,
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "properties": {
                                    "input": {"description": "what to do"},
                                    "choice": {"enum": ["this", "that"]},
                                }
                            }
                        }
                    }
                },
            },
        }
    },
}


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.words.append(data)


def test_every_operation_has_its_place_with_its_parameters_and_answers():
    words = " ".join(Reader(page(SCHEMA)).words)
    for wanted in (
        "GET /a/{id}",
        "POST /a/{id}",
        "at length",
        "id (path)",
        "its id",
        "there",
        "Retry-After, X-<b>",
    ):
        assert wanted in words


def test_the_fields_of_a_body_are_told_by_their_words_or_by_what_they_may_be():
    words = " ".join(Reader(page(SCHEMA)).words)
    for wanted in ("input (body)", "what to do", "choice (body)", "this, that"):
        assert wanted in words


def test_what_a_body_is_made_of_is_what_is_read():
    """The reference may name nothing that is not heeded."""
    # What is heeded is named, too: a request is made of these, and of what comes along with them.
    read = {*RunRequest.__struct_fields__} - {"parts", "history", "blobs", "continues", "recall"}
    assert read | {"input", "conversation_history"} == RUN.keys()
    whole = {
        "input": "hi",
        "conversation_history": [{"role": "user", "content": "before"}],
        "previous_response_id": "resp_1",
        "instructions": "be kind",
        "session_id": "s",
        "message_id": "mine",
        "on_busy": "reject",
        "model": "m",
        "provider": "p",
        "reasoning_effort": "high",
        "service_tier": "flex",
        "max_turns": 3,
        "tools": ["look"],
        "approval": "deny",
        "metadata": {"for": "me"},
    }
    assert whole.keys() == RUN.keys()
    asked, plain = read_run(encode(whole)), read_run(b'{"input": "other"}')
    same = [
        name for name in asked.__struct_fields__ if getattr(asked, name) == getattr(plain, name)
    ]
    assert len(asked.__struct_fields__) - len(same) >= len(RUN)
    answers = {
        "approval_id": ("a", ApprovalRequest("deny", "a")),
        "request_id": ("a", ApprovalRequest("deny", "a")),
        "all": (True, ApprovalRequest("deny", everything=True)),
        "resolve_all": (True, ApprovalRequest("deny", everything=True)),
        "digest": ("d", ApprovalRequest("deny", digest="d")),
    }
    assert {"choice", *answers} == APPROVAL.keys()
    for name, (said, understood) in answers.items():
        assert read_approval(encode({"choice": "deny", name: said})) == understood
    assert STEER.keys() == {"input", "message_id"}
    said = read_steer(encode({"input": "and now?", "message_id": "mine"}))
    assert said == ((Text("and now?"),), "mine")
    assert STOP.keys() == {"reason"}
    assert read_stop(b'{"reason": "enough"}') == "enough"


async def test_the_fields_that_are_told_are_the_only_ones_that_are_taken(inside):
    async with inside(ScriptedModel()) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
        for method, path in (
            ("post", "/v1/sessions"),
            ("patch", "/v1/sessions/{session_id}"),
            ("patch", "/v1/sessions/{session_id}/queue/{message_id}"),
            ("patch", "/api/sessions/{session_id}"),
        ):
            where = path.format(session_id="s", message_id="m")
            refused = await served.ask(method.upper(), where, body=b'{"other": 1}')
            body = paths[path][method]["requestBody"]["content"]["application/json"]
            taken = refused.error["message"].partition("only ")[2].split(", ")
            assert {*taken} == body["schema"]["properties"].keys(), path


async def test_a_run_that_was_started_links_to_all_that_can_be_asked_about_it(inside):
    async with inside(ScriptedModel()) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
    links = paths["/v1/runs"]["post"]["responses"]["202"]["links"]
    about = {
        operation["operationId"]
        for path, methods in paths.items()
        if path.startswith("/v1/runs/{run_id}")
        for operation in methods.values()
    }
    assert {link["operationId"] for link in links.values()} == about
    whose = [link["parameters"] for link in links.values()]
    assert whose == [{"run_id": "$response.body#/run_id"}] * len(about)


STARTING = {
    "/v1/runs": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "n": 1, "tools": []},
    "/v1/responses": {"input": "hi", "tools": []},
    "/api/sessions/talk/chat": {"message": "hi"},
    "/api/sessions/talk/chat/stream": {"message": "hi"},
}


@pytest.mark.parametrize("path", STARTING)
async def test_all_that_stands_in_the_head_of_an_answer_is_described(inside, path):
    async with inside(ScriptedModel(ModelRefused("no"), *[["Hello"]] * 3)) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
        operation = paths[path.replace("talk", "{session_id}")]["post"]
        parameters = {one["name"].lower() for one in operation["parameters"]}
        sent = {"idempotency-key": "one"}
        if path.startswith("/api"):
            await served.post("/v1/sessions", {"session_id": "talk"})
        else:
            sent |= {"x-hermes-session-id": "talk", "x-hermes-session-key": "mine"}
        assert parameters >= sent.keys()
        statuses = set()
        for body in (STARTING[path], STARTING[path], {**STARTING[path], "instructions": "other"}):
            answer = await served.post(path, body, headers=sent)
            described = operation["responses"][str(answer.status)].get("headers", {})
            told = {name for name in answer.headers if not name.startswith("content-")}
            told -= {"cache-control", "x-accel-buffering"}
            assert told <= {name.lower() for name in described}, answer.status
            statuses.add(answer.status)
        assert 409 in statuses and len(statuses) > 1


async def test_what_a_client_goes_by_when_it_is_refused_is_described(inside):
    async with inside(ScriptedModel()) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
    for operation in (operation for methods in paths.values() for operation in methods.values()):
        answers = operation["responses"]
        assert answers["401"]["headers"].keys() == {"WWW-Authenticate"}
        assert answers["429"]["headers"].keys() == {"Retry-After"}
        assert answers["503"]["headers"].keys() == {"Retry-After"}


def test_what_looks_like_markup_is_shown_as_it_is():
    text = page(SCHEMA)
    assert "A &lt;title&gt;" in text and "Read &lt;b&gt;" in text and "about &amp; about" in text


async def test_the_page_runs_nothing_and_fetches_nothing(inside):
    async with inside(ScriptedModel()) as served:
        text = (await served.get("/docs")).text
    found = Reader(text)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not found.attributes & {"src", "href", "srcset", "style", "action"}
    assert not [name for name in found.attributes if name.startswith("on")]
    assert "http:" not in text and "https:" not in text
    assert "url(" not in text and "@import" not in text
