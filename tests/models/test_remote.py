"""A model at the other end of a wire, on real sockets."""

import asyncio
import zlib
from contextlib import aclosing, asynccontextmanager

import anyio
import msgspec
import pytest

from holdfast.calls.line import Line, attempt
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
from holdfast.core.watchdog import Patience
from holdfast.errors import (
    BadReply,
    ConfigError,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    StreamStalled,
)
from holdfast.models import remote
from holdfast.models.catalog import Price
from holdfast.models.http import open_transport
from holdfast.models.openai_chat import OpenAIChat
from holdfast.models.remote import MOST_WORDS, open_model, open_remote
from holdfast.models.sse import Decoder
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


async def test_what_came_at_once_is_told_at_once():
    pieces = b"".join(
        b'data: {"choices":[{"delta":{%s}}]}\n\n' % delta
        for delta in (
            b'"role":"assistant","content":""',
            b'"reasoning":"H"',
            b'"reasoning":"m."',
            b'"content":"Hel"',
            b'"content":"lo"',
        )
    )
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with open_endpoint([Raw(pieces), Silence(0.05), Raw(end), CutOff()]) as endpoint:
        heard = await chunks("openai-chat", endpoint)
    assert heard[:-1] == [Thought("Hm."), Said("Hello")]
    # The end included: whoever hears the words knows that they need not be told before it.
    async with open_endpoint([Raw(pieces + end), CutOff()]) as endpoint:
        heard = await chunks("openai-chat", endpoint)
    assert heard[:-1] == [Thought("Hm."), Said("Hello", last=True)]


@pytest.mark.parametrize("crowd", [True, False])
async def test_a_crowd_is_read_in_larger_pieces_and_few_are_not(crowd, monkeypatch):
    monkeypatch.setattr(remote, "FEW", 0 if crowd else 1)
    monkeypatch.setattr(remote, "SHARE", 0.05)
    script = [step for word in "abcdefghij" for step in (word, Silence(0.01))]
    async with open_endpoint([*script, Finish(), Silence(0.01)]) as endpoint:
        async with open_model("openai-chat", base_url=endpoint.url, model="model") as model:
            for _ in range(2):
                async with aclosing(model.stream(REQUEST)) as stream:
                    heard = [chunk async for chunk in stream]
                assert text(heard) == "abcdefghij" and heard[0] == Said("a")
                assert (len(heard) < 8) is crowd
        assert endpoint.connections == 1


async def test_the_end_of_a_reply_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(remote, "FEW", 0)
    monkeypatch.setattr(remote, "SHARE", 5.0)
    monkeypatch.setattr(remote, "LONGEST_PACE", 5.0)
    whole = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    count = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    script = [Raw(whole), Silence(0.02), Raw(count), Silence(0.02), Raw(b"data: [DONE]\n\n")]
    async with open_endpoint(script) as endpoint:
        began = anyio.current_time()
        heard = await chunks("openai-chat", endpoint)
        assert heard[-1].usage.output == 2 and anyio.current_time() - began < 4


def test_nothing_is_read_past_the_end():
    words = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    piece = words + b"data: [DONE]\n\n" * 2
    heard = list(remote._understood(Decoder(), OpenAIChat().reader(), piece))
    assert [type(chunk) for chunk in heard] == [Said, Done]


async def test_what_was_said_before_a_failure_is_heard_though_both_came_at_once():
    words = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    async with open_endpoint([Raw(words * 2 + b'data: {"error":"broken"}\n\n')]) as endpoint:
        async with (
            open_model("openai-chat", base_url=endpoint.url, model="model") as model,
            aclosing(model.stream(REQUEST)) as stream,
        ):
            assert await anext(stream) == Said("HelHel")
            with pytest.raises(ModelError, match="broken"):
                await anext(stream)


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
    # What a header says is no progress: the limits stay as they are.
    assert Unstreamed() not in heard and text(heard) == "Hello"


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
            assert await endpoint.hung_up() - left < 0.5


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


@every_wire
async def test_an_error_in_the_middle_of_a_stream_is_never_a_reason_to_ask_again(wire):
    error = {"type": "invalid_request_error", "message": "streaming is not supported upstream"}
    failed = {"type": "response.failed", "response": {"error": {**error, "code": error["type"]}}}
    event = failed if wire == "openai-responses" else {"type": "error", "error": error}
    raw = Raw(b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n")
    async with open_endpoint(["Pay 5 ", raw], ["Pay 5 euro."]) as endpoint:
        with pytest.raises(ModelRefused):
            await chunks(wire, endpoint)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "words",
    [
        "upstream rejected the request: bad image",
        "stream_options: extra inputs are not permitted",
        "the stream of your request was malformed",
    ],
)
async def test_a_refusal_that_merely_mentions_a_stream_is_a_refusal(words):
    refusal = Answer(400, msgspec.json.encode({"error": {"message": words}}))
    async with open_endpoint([refusal], ["Hello"]) as endpoint:
        async with open_model("openai-chat", base_url=endpoint.url, model="m") as model:
            async with aclosing(model.stream(REQUEST)) as stream:
                with pytest.raises(ModelRefused):
                    await anext(stream)
            async with aclosing(model.stream(REQUEST)) as stream:
                assert Unstreamed() not in [chunk async for chunk in stream]


async def test_streaming_is_given_up_only_once_it_is_seen_to_work_without():
    refusal = Answer(400, '{"error": {"message": "streaming is not supported"}}')
    async with open_endpoint([refusal], [Answer(500)], ["Hello"]) as endpoint:
        async with open_model("openai-chat", base_url=endpoint.url, model="m") as model:
            async with aclosing(model.stream(REQUEST)) as stream:
                with pytest.raises(ModelUnavailable):
                    [chunk async for chunk in stream]
            async with aclosing(model.stream(REQUEST)) as stream:
                assert text([chunk async for chunk in stream]) == "Hello"
    assert endpoint.requests[-1].body["stream"]


@asynccontextmanager
async def saying(*parts, hold=True):
    """A server that says these bytes to anybody, and holds the line."""

    async def serve(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.writelines(parts)
            await writer.drain()
            while hold and await reader.read(65536):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def asked(url, patience):
    async with open_model("openai-chat", base_url=url, model="m") as model:
        return await attempt(Line(model), REQUEST, patience, ignore)


async def ignore(_):
    pass


JSON = b"Content-Type: application/json\r\n"


async def test_a_header_that_says_json_is_no_progress():
    head = b"HTTP/1.1 200 OK\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    async with saying(head) as url:
        with pytest.raises(StreamStalled, match="TTFB"):
            await asked(url, Patience(first=0.2, whole=5))


@pytest.mark.parametrize("status", [401, 429])
@pytest.mark.parametrize("hold", [True, False], ids=["never ends", "is cut"])
async def test_a_refusal_is_one_though_its_explanation_never_ends_or_is_cut(status, hold):
    head = b"HTTP/1.1 %d X\r\nContent-Length: 500\r\n" % status + JSON + b"\r\n{"
    async with saying(head, hold=hold) as url:
        with pytest.raises(ModelError) as failed:
            await asked(url, Patience(first=5))
    assert failed.value.status == status


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
@pytest.mark.parametrize(
    "junk",
    [
        b"data: {oops\n\n",
        b'event: error\ndata: {"error":{"type":"api_error","message":"late"}}\n\n',
        b'data: {"usage": 7, "choices": []}\n\n',
    ],
    ids=["junk", "error", "usage"],
)
async def test_nonsense_after_a_complete_reply_costs_nothing(wire, junk):
    async with open_endpoint(["Hello", Finish(), Raw(junk)]) as endpoint:
        heard = await chunks(wire, endpoint)
    assert text(heard) == "Hello" and heard[-1].stop == "stop"


@every_wire
async def test_a_key_at_the_edge_of_what_is_passed_on_is_not_shown(wire):
    words = "x" * (MOST_WORDS - len(SECRET) + 1 - len("the endpoint answered 401: ")) + SECRET
    refusal = Answer(401, msgspec.json.encode({"error": {"message": words}}))
    async with open_endpoint([refusal]) as endpoint:
        with pytest.raises(ModelRefused) as failed:
            await chunks(wire, endpoint)
    assert SECRET[:-1] not in str(failed.value)


@pytest.mark.parametrize("event", [b":\n\n", b"data: {}\n\n"], ids=["comments", "empty"])
async def test_an_answer_that_unpacks_to_very_much_leaves_time_for_others(event):
    pack, block = zlib.compressobj(9, zlib.DEFLATED, 31), event * (1_000_000 // len(event))
    packed = b"".join(pack.compress(block) for _ in range(20)) + pack.flush(zlib.Z_SYNC_FLUSH)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n"
    worst = 0.0

    async def beat():
        nonlocal worst
        while True:
            began = anyio.current_time()
            await anyio.sleep(0.01)
            worst = max(worst, anyio.current_time() - began)

    async with saying(head + packed) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        with anyio.move_on_after(0.5):
            await asked(url, Patience(first=20))
        tasks.cancel_scope.cancel()
    assert worst < 2
