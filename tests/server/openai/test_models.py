from pathlib import Path

import msgspec
import pytest

from holdfast.config import ModelSettings, Settings
from holdfast.server.openai.models import model, models
from holdfast.server.problems import Problem


def settings(*given, default="main"):
    return Settings(data=Path("data"), default_model=default, models={m.name: m for m in given})


MAIN = ModelSettings(name="main", wire="openai-chat", model="gpt-5.5")
SPARE = ModelSettings(name="spare", wire="anthropic", model="claude")
LOCAL = ModelSettings(name="local", wire="openai-chat", model="")


def test_the_usual_model_comes_first_and_other_names_last():
    rows = models(settings(SPARE, MAIN, LOCAL), created=7).data
    assert [(row.id, row.root, row.parent) for row in rows] == [
        ("main", "gpt-5.5", None),
        ("spare", "claude", None),
        ("local", "local", None),
        ("gpt-5.5", "gpt-5.5", "main"),
        ("claude", "claude", "spare"),
    ]
    assert {row.created for row in rows} == {7}


def test_no_name_is_listed_twice():
    same = ModelSettings(name="other", wire="openai-chat", model="gpt-5.5")
    named = ModelSettings(name="gpt-5.5", wire="openai-chat", model="gpt-5.5-mini")
    rows = models(settings(MAIN, same, named)).data
    assert [row.id for row in rows] == ["main", "other", "gpt-5.5", "gpt-5.5-mini"]


def test_a_list_has_the_shape_that_clients_know():
    sent = msgspec.json.encode(models(Settings(data=Path("data"))))
    assert msgspec.json.decode(sent) == {
        "object": "list",
        "data": [
            {
                "id": "demo",
                "object": "model",
                "created": 0,
                "owned_by": "hermes",
                "permission": [],
                "root": "demo",
                "parent": None,
            }
        ],
    }


def test_one_model_is_found_by_each_of_its_names():
    assert model(settings(MAIN), "main").root == "gpt-5.5"
    assert model(settings(MAIN), "gpt-5.5").parent == "main"


def test_a_model_nobody_configured_is_not_found():
    with pytest.raises(Problem) as caught:
        model(settings(MAIN), "other")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert caught.value.complaint.param == "model"
