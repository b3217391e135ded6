"""A model at the other end of a wire, on real sockets."""

from contextlib import aclosing

import anyio
import pytest

from holdfast.core.messages import (
    Calling,
    Done,
    Request,
    Said,
    Text,
    Thought,
    Unstreamed,
    UserMessage,
)
from holdfast.errors import BadReply, ConfigError, ModelRefused, ModelUnavailable
from holdfast.models.catalog import Price
from holdfast.models.http import open_transport
from holdfast.models.remote import open_model, open_remote
from holdfast.testing.contracts import ModelContract
from holdfast.testing.endpoint import (
    Answer,
    CutOff,
    Drip,
    Finish,
    Hangup,
    Pings,
    Raw,
    Reset,
    open_endpoint,
)
from holdfast.testing.scripted import Call, Silence, Think

pytestmark = pytest.mark.real_time

WIRES = ("openai-chat", "openai-responses", "anthropic")
REQUEST = Request("main", "be brief", (UserMessage(parts=(Text("hi"),)),))
SECRET = "sk-this-is-a-canary"

every_wire = pytest.mark.parametrize("wire", WIRES)


async def chunks(wire, endpoint, *, request=REQUEST, **options):
    async with (
        open_model(wire, base_url=endpoint.url, model="model", key=SECRET, **options) as model,
        aclosing(model.stream(request)) as stream,
    ):
        return [chunk async for chunk in stream]


def text(chunks):
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Said))


@every_wire
class TestContract(ModelContract):
    @pytest.fixture
    async def model(self, wire):
        async with open_endpoint(["Hello"]) as endpoint:
            async with open_model(wire, base_url=endpoint.url, model="model") as model:
                yield model


@every_wire
async def test_a_reply_arrives_as_it_was_said(wire):
    script = [Think("Hm."), "Hel", "lo", Call("pay", '{"euro": 5}', model_id="call_7")]
    async with open_endpoint(script) as endpoint:
        heard = await chunks(wire, endpoint)
    (*_, done) = heard
    assert text(heard) == "Hello"
    assert "".join(chunk.text for chunk in heard if isinstance(chunk, Thought)) == "Hm."
    assert any(isinstance(chunk, Calling) for chunk in heard)
    assert isinstance(done, Done) and len(done.calls) == 1
    assert done.calls[0].tool == "pay" and '"euro": 5' in done.calls[0].arguments
    assert done.usage.input and done.usage.output


@every_wire
async def test_what_does_not_stream_arrives_in_one_piece(wire):
    async with open_endpoint(["Hel", "lo", Call("pay", '{"euro": 5}')]) as endpoint:
        heard = await chunks(wire, endpoint, stream=False)
    assert heard[0] == Unstreamed() and text(heard) == "Hello"
    assert not endpoint.requests[0].body.get("stream")
    assert [asked.tool for asked in heard[-1].calls] == ["pay"]


@every_wire
async def test_an_endpoint_that_refuses_to_stream_is_asked_otherwise_from_then_on(wire):
    async with open_endpoint(["Hello"], refuse_stream=True) as endpoint:
        async with open_model(wire, base_url=endpoint.url, model="model") as model:
            for _ in range(2):
                async with aclosing(model.stream(REQUEST)) as stream:
                    assert text([chunk async for chunk in stream]) == "Hello"
    assert [bool(one.body.get("stream")) for one in endpoint.requests] == [True, False, False]


@every_wire
async def test_an_answer_that_is_no_stream_though_one_was_asked_for_is_read_all_the_same(wire):
    bodies = {
        "openai-chat": '{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}',
        "openai-responses": '{"status":"completed","output":[{"type":"message","id":"m",'
        '"content":[{"type":"output_text","text":"Hello"}]}]}',
        "anthropic": '{"type":"message","content":[{"type":"text","text":"Hello"}],'
        '"stop_reason":"end_turn"}',
    }
    json = {"Content-Type": "application/json"}
    async with open_endpoint([Answer(200, bodies[wire], json)]) as endpoint:
        heard = await chunks(wire, endpoint)
    assert heard[0] == Unstreamed() and text(heard) == "Hello"


@every_wire
@pytest.mark.parametrize("after", [[Silence()], [Pings()], [Reset()], [Hangup()], [CutOff()]])
async def test_a_reply_that_is_complete_is_not_lost_by_what_comes_after(wire, after, monkeypatch):
    monkeypatch.setattr("holdfast.models.remote.GRACE", 0.1)
    async with open_endpoint(["Hello", Finish(), *after]) as endpoint:
        heard = await chunks(wire, endpoint)
    assert text(heard) == "Hello" and isinstance(heard[-1], Done)


@every_wire
async def test_a_reply_that_ends_without_its_end_marker_is_truncated(wire):
    async with open_endpoint(["Hel", CutOff()]) as endpoint:
        with pytest.raises(BadReply) as failed:
            await chunks(wire, endpoint)
    assert failed.value.reason == "truncated"


@every_wire
@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (Answer(200, "<h1>Welcome</h1>", {"Content-Type": "text/html"}), BadReply, "bad_reply"),
        (Answer(204), BadReply, "bad_reply"),
        (Answer(302, "", {"Location": "http://127.0.0.1:1/"}), BadReply, "bad_reply"),
        (Answer(400, '{"error":{"message":"no"}}'), ModelRefused, "refused"),
        (Answer(429, "", {"Retry-After": "7"}), ModelUnavailable, "overloaded"),
        (Answer(529, ""), ModelUnavailable, "overloaded"),
    ],
)
async def test_an_answer_that_is_no_reply_says_what_it_is(wire, answer, kind, reason):
    async with open_endpoint([answer]) as endpoint:
        with pytest.raises(kind) as failed:
            await chunks(wire, endpoint)
    assert (failed.value.reason, len(endpoint.requests)) == (reason, 1)
    if answer.status == 429:
        assert failed.value.retry_after == 7.0


@every_wire
@pytest.mark.parametrize("status", [400, 401, 500])
async def test_an_endpoint_that_repeats_our_key_does_not_make_us_repeat_it(wire, status):
    body = f'{{"error": {{"message": "wrong key {SECRET} or {SECRET}"}}}}'
    async with open_endpoint([Answer(status, body)]) as endpoint:
        with pytest.raises(ModelUnavailable if status == 500 else ModelRefused) as failed:
            await chunks(wire, endpoint)
    assert SECRET not in str(failed.value) and "[secret]" in str(failed.value)
    assert SECRET in str(endpoint.requests[0].headers)


@every_wire
async def test_a_reply_of_single_bytes_is_a_reply(wire):
    async with open_endpoint([Drip(0.0001), "Hello"]) as endpoint:
        assert text(await chunks(wire, endpoint)) == "Hello"


@every_wire
async def test_an_endless_line_is_given_up_on_before_it_fills_the_memory(wire):
    async with open_endpoint([Raw(b"data: " + b"x" * 9_000_000), Silence()]) as endpoint:
        with pytest.raises(BadReply) as failed:
            await chunks(wire, endpoint)
        assert failed.value.reason == "too_large"
        await endpoint.hung_up()


async def test_an_endless_document_is_given_up_on():
    json = {"Content-Type": "application/json"}
    async with open_endpoint([Answer(200, b" " * 65 * 1024 * 1024, json)]) as endpoint:
        with pytest.raises(BadReply) as failed:
            await chunks("openai-chat", endpoint, stream=False)
    assert failed.value.reason == "too_large"


async def test_an_endless_explanation_is_cut():
    async with open_endpoint([Answer(400, "x" * 1_000_000)]) as endpoint:
        with pytest.raises(ModelRefused) as failed:
            await chunks("openai-chat", endpoint)
    assert len(str(failed.value)) < 2000


@every_wire
async def test_the_next_call_uses_the_same_connection(wire):
    async with open_endpoint(["Hello"]) as endpoint:
        async with open_model(wire, base_url=endpoint.url, model="model") as model:
            for _ in range(3):
                async with aclosing(model.stream(REQUEST)) as stream:
                    async for chunk in stream:
                        if isinstance(chunk, Done):
                            break
        assert (len(endpoint.requests), endpoint.connections) == (3, 1)


@every_wire
async def test_closing_hangs_up_at_once(wire):
    async with open_endpoint(["Hel", Silence()]) as endpoint:
        async with open_model(wire, base_url=endpoint.url, model="model") as model:
            async with aclosing(model.stream(REQUEST)) as stream:
                async for chunk in stream:
                    if isinstance(chunk, Said):
                        break
            left = anyio.current_time()
            assert await endpoint.hung_up() - left < 0.05


async def test_what_it_cost_is_told_where_the_price_is_known():
    async with open_endpoint(["Hello"]) as endpoint, open_transport() as transport:
        for price, known in ((Price(1e6, 1e6, 1e6), True), (None, False)):
            model = open_remote(
                "openai-chat", transport, base_url=endpoint.url, model="odd", price=price
            )
            async with aclosing(model.stream(REQUEST)) as stream:
                (*_, done) = [chunk async for chunk in stream]
            assert (done.usage.cost == float(done.usage.total)) is known
            assert (done.usage.cost is None) is not known


async def test_without_a_name_the_first_model_the_endpoint_has_is_asked():
    async with open_endpoint(["Hello"], models=("llama", "qwen")) as endpoint:
        async with open_model("openai-chat", base_url=endpoint.url, model="") as model:
            assert list(await model.offered(5.0)) == ["llama", "qwen"]
            async with aclosing(model.stream(REQUEST)) as stream:
                assert text([chunk async for chunk in stream]) == "Hello"
    assert endpoint.requests[-1].body["model"] == "llama"


async def test_an_endpoint_that_has_no_model_says_so():
    async with open_endpoint(["Hello"], models=()) as endpoint:
        async with open_model("openai-chat", base_url=endpoint.url, model="") as model:
            async with aclosing(model.stream(REQUEST)) as stream:
                with pytest.raises(ModelRefused, match="has no model"):
                    await anext(stream)


async def test_a_wire_that_nobody_speaks_is_refused():
    with pytest.raises(ConfigError, match="'smoke' is no wire; there are: openai-chat,"):
        async with open_model("smoke", base_url="http://127.0.0.1", model="m"):
            pass
