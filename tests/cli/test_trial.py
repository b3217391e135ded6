import pytest

from holdfast.cli.trial import try_model
from holdfast.config import ModelSettings
from holdfast.core.watchdog import Patience
from holdfast.testing.endpoint import open_endpoint
from holdfast.testing.scripted import Call, Silence

pytestmark = pytest.mark.real_time


def settings(url, **fields):
    one = ModelSettings(name="main", wire="anthropic", model="m", base_url=url, **fields)
    return {"main": one}


async def test_the_first_event_is_timed_from_the_start_of_the_call():
    async with open_endpoint([Silence(0.1), "a", Silence(0.1), "b"]) as endpoint:
        trial = await try_model(settings(endpoint.url), "main")
    assert trial.ok and 0.1 <= trial.first_event < trial.whole
    assert trial.whole >= 0.2 and trial.text == "ab"


async def test_a_reply_without_words_is_a_reply():
    async with open_endpoint([Call("pay")]) as endpoint:
        assert (await try_model(settings(endpoint.url), "main")).ok


async def test_there_is_one_attempt():
    async with open_endpoint([Silence()]) as endpoint:
        patience = Patience(first=0.1)
        trial = await try_model(settings(endpoint.url, patience=patience), "main")
        assert (trial.ok, trial.reason, len(endpoint.requests)) == (False, "ttfb_kill", 1)
