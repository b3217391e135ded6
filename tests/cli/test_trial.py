import json

import pytest

from holdfast.cli.trial import try_model
from holdfast.config import ModelSettings
from holdfast.core.watchdog import Patience
from holdfast.testing.endpoint import Raw, open_endpoint
from holdfast.testing.scripted import Call, Silence

pytestmark = pytest.mark.real_time


def settings(url, wire="anthropic", **fields):
    one = ModelSettings(name="main", wire=wire, model="m", base_url=url, **fields)
    return {"main": one}


async def test_the_first_event_is_timed_from_the_start_of_the_call():
    async with open_endpoint([Silence(0.1), "a", Silence(0.1), "b"]) as endpoint:
        trial = await try_model(settings(endpoint.url), "main")
    assert trial.ok and 0.1 <= trial.first_event < trial.whole
    assert trial.whole >= 0.2 and trial.text == "ab"


async def test_a_reply_without_words_is_a_reply():
    async with open_endpoint([Call("pay")]) as endpoint:
        assert (await try_model(settings(endpoint.url), "main")).ok


def sent(*events):
    return Raw(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))


async def test_halves_of_characters_are_joined_or_spelled_out():
    halves = sent(*({"choices": [{"delta": {"content": half}}]} for half in "\ud83d\ude00\ud83d"))
    end = sent({"model": "\ud83d", "choices": [{"delta": {}, "finish_reason": "stop"}]})
    async with open_endpoint([halves, end, Raw(b"data: [DONE]\n\n")]) as endpoint:
        trial = await try_model(settings(endpoint.url, wire="openai-chat"), "main")
    assert (trial.text, trial.model) == ("😀\\ud83d", "\\ud83d")


async def test_a_failure_can_be_told_whatever_it_is_made_of():
    error = sent({"error": {"type": "server_error", "message": "no \ud83d"}})
    async with open_endpoint([error]) as endpoint:
        trial = await try_model(settings(endpoint.url, wire="openai-chat"), "main")
    assert not trial.ok and trial.error.endswith("no \\ud83d")


async def test_there_is_one_attempt():
    async with open_endpoint([Silence()]) as endpoint:
        patience = Patience(first=0.1)
        trial = await try_model(settings(endpoint.url, patience=patience), "main")
        assert (trial.ok, trial.reason, len(endpoint.requests)) == (False, "ttfb_kill", 1)
