from holdfast.core.messages import Text
from holdfast.server.cors import PREFLIGHT, SHARED
from holdfast.server.openai.chat_object import Incomplete
from holdfast.server.openai.ending import Ending
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.openai.taking import Taken
from holdfast.server.problems import draining
from holdfast.server.requests import RunRequest


def test_what_clients_send_is_taken():
    taken = dict(PREFLIGHT)[b"access-control-allow-headers"].split(b", ")
    for name in (b"Authorization", b"Last-Event-ID", b"X-OpenWebUI-Chat-Id", b"X-Stainless-lang"):
        assert name in taken
    assert len(set(taken)) == len(taken)


def test_what_a_client_goes_by_can_be_seen():
    """Of what is not listed a page sees nothing, and a client there would ask for a failed run again."""
    end = Ending("error", "length", "cut off")
    run = RunRequest(parts=(Text("hi"),), session_id="s")
    taken = Taken("run_1", OpenAIRequest(run=run, ignored=("tools",)), replayed=True)
    told = {**taken.headers, **Incomplete(end).headers, **draining().headers}
    seen = dict(SHARED)[b"access-control-expose-headers"].decode().split(", ")
    assert told.keys() <= set(seen)
    assert "X-Should-Retry" in told
