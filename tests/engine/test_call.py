from hashlib import sha256

import anyio
import pytest

from holdfast.calls.foreign import MOST_WORDS
from holdfast.calls.line import Endpoint, Line
from holdfast.core.events import (
    InputAdded,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    ReasoningStreamed,
    RunAccepted,
    RunCompleted,
    RunWaiting,
    StopRequested,
    TextStreamed,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import (
    Asked,
    BlobRef,
    Done,
    Image,
    Reasoning,
    Said,
    Text,
    Thought,
    Unstreamed,
    plain,
)
from holdfast.core.phase import phase
from holdfast.core.plan import CallModel
from holdfast.core.secrets import MASK, Secrets
from holdfast.engine.call import MOST_CALLS, MOST_TEXT, call_model
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe
from holdfast.errors import BadReply, ModelRefused, ModelUnavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import STARTED, held
from holdfast.testing.scripted import Ack, Call, CutOff, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.stage import stage

KEY = "sk-canary-0123456789"


async def outcome(*scripts, **accepted):
    """What became of a run on this script: its state and its events."""
    async with stage(ScriptedModel(*scripts), ScriptedTool()) as play:
        run_id = await play.start(**accepted)
        return await play.ended(run_id), await play.journal(run_id)


def only(events, kind):
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


async def test_the_text_of_a_reply_is_exactly_what_was_streamed():
    state, events = await outcome(["Hel", "", "lo", Think("hm"), "!"])
    streamed = "".join(event.text for event in events if isinstance(event, TextStreamed))
    assert streamed == only(events, ModelReplied).text == state.output == "Hello!"


class Breathless:
    """Says the end with its last words."""

    def __init__(self, *chunks):
        self._chunks = chunks

    async def stream(self, request):
        for chunk in self._chunks:
            yield chunk
        yield Done()


class Commits(MemoryStore):
    """Remembers what was written together."""

    async def append(self, lease, *events, **options):
        self.last = events
        return await super().append(lease, *events, **options)


async def test_words_that_come_with_the_end_are_written_with_it():
    store = Commits(now=anyio.current_time)
    model = Breathless(Said("Hel"), Thought("hm", last=True), Said("lo", last=True))
    async with stage(model, store=store) as play:
        state = await play.ended(await play.start())
    assert state.output == "Hello"
    thought, text, reply, end = store.last
    assert (thought.text, text.text) == ("hm", "lo")
    assert (reply.text, type(end)) == ("Hello", RunCompleted)


async def test_an_acknowledgement_is_on_record_so_that_readers_know_what_is_awaited():
    _, events = await outcome([Ack(), Silence(10), "a"])
    assert only(events, ModelHeard) == ModelHeard(turn=1, attempt=1)


async def test_an_emoji_cut_in_two_arrives_whole():
    state, events = await outcome(["a\ud83d", "\ude00b", Think("\ud83d"), "c", Think("\ude00")])
    assert state.output == "a\U0001f600bc"


@pytest.mark.parametrize("text", ["\u2028\u2029\u0085", "nul \x00 in it", "\U0001f600" * 3])
async def test_odd_text_is_kept_exactly(text):
    state, _ = await outcome([text])
    assert state.output == text


@pytest.mark.parametrize(
    "script",
    [["a\ude00b"], ["\ud83db"], ["ab\ud83d"], [Think("\ud83d"), "a"]],
    ids=["second half", "first half", "at the end", "in a thought"],
)
async def test_half_a_character_fails_the_attempt_and_nothing_of_it_is_stored(script):
    state, events = await outcome(script)
    assert only(events, ModelFailed).reason == "bad_reply"
    assert "character" in state.ended.message


async def test_half_a_character_in_what_is_not_streamed_fails_the_attempt_too():
    thought = Done(reasoning=(Reasoning(text="\ud83d"),))
    _, events = await outcome([thought])
    assert "cannot be kept" in only(events, ModelFailed).message


async def test_a_reply_that_asks_for_too_many_calls_is_no_reply():
    _, events = await outcome([Done(calls=(Asked("pay", "{}"),) * (MOST_CALLS + 1))])
    assert only(events, ModelFailed).reason == "bad_reply"


@pytest.mark.parametrize(
    "script",
    [["x" * (MOST_TEXT // 4)] * 5, [Done(calls=(Asked("pay", "x" * (MOST_TEXT // 4)),) * 5)]],
    ids=["in words", "in arguments"],
)
async def test_a_reply_without_measure_is_given_up_on(script):
    _, events = await outcome(script)
    assert only(events, ModelFailed).reason == "too_large"


async def test_a_reply_that_was_cut_off_is_retracted_and_asked_for_again():
    state, events = await outcome(["half", CutOff()], ["whole"])
    assert only(events, ModelFailed).reason == "truncated"
    assert state.output == "whole"


async def test_a_call_of_a_reply_that_was_cut_off_never_runs():
    model, pay = ScriptedModel([Call("pay"), CutOff()], ["No."]), ScriptedTool()
    async with stage(model, pay) as play:
        await play.ended(await play.start())
    assert pay.effects == []


async def test_a_stop_that_is_on_record_first_means_no_call_is_made():
    model, store = ScriptedModel(["never"]), MemoryStore()
    scribe = await Scribe.open(store, await held(store))
    await scribe.record(STARTED)
    await store.wish("run_1", StopRequested())
    means = Means(store, {"model": model})
    await call_model(scribe, means, CallModel(turn=1, attempt=1, model="model"))
    assert (model.calls, scribe.state.status) == (0, Status.STOPPING)
    assert scribe.state.attempt.late


async def test_usage_and_time_of_a_call_are_on_record():
    _, events = await outcome(["a", Silence(3), "b"])
    replied = only(events, ModelReplied)
    assert (replied.usage.input, replied.seconds) == (10, 3)


async def test_the_model_that_replied_is_on_record():
    _, events = await outcome([Done(model="gpt-5.5-2026-08")])
    assert only(events, ModelReplied).model == "gpt-5.5-2026-08"


async def test_a_message_that_came_just_before_the_intent_is_in_the_request():
    model, store = ScriptedModel(["a"]), MemoryStore()
    scribe = await Scribe.open(store, await held(store))
    await scribe.record(STARTED)
    await store.wish("run_1", InputAdded(parts=(Text("and another thing"),)))
    step = CallModel(turn=1, attempt=1, model="model")
    await call_model(scribe, Means(store, {"model": model}), step)
    (shown,) = model.requests[0].messages
    assert plain(shown.parts) == "hi\nand another thing"


async def test_a_reply_in_one_piece_is_not_cut_before_its_time():
    class OnePiece(ScriptedModel):
        async def stream(self, request):
            yield Unstreamed()
            async for chunk in super().stream(request):
                yield chunk

    async with stage(OnePiece([Silence(1700), "a"])) as play:
        run_id = await play.start()
        await play.until(run_id, ModelHeard)
        waits = phase(await play.runs.state(run_id))
        assert (waits.waiting_for, waits.limit) == ("first_event", 1800.0)
        assert (await play.ended(run_id)).output == "a"
        assert (await play.journal(run_id))[3] == ModelHeard(turn=1, attempt=1, unstreamed=True)


async def test_limits_that_nobody_set_grow_with_the_conversation():
    long = "x" * 4 * 60_000
    choice = ModelChoice("model", grows=("first",))
    async with stage(ScriptedModel([Silence(80), "a"])) as play:
        run_id = await play.start(long, models=(choice,))
        assert (await play.ended(run_id)).output == "a"
        called = only(await play.journal(run_id), ModelCalled)
        assert (called.patience.first, called.patience.between) == (90.0, 120.0)


async def test_a_reply_cut_inside_a_call_is_asked_for_once_more_with_twice_the_room():
    model = ScriptedModel([BadReply("cut", reason="length")], ["a"])
    async with stage(model) as play:
        assert (await play.ended(await play.start())).output == "a"
    assert [request.stretch for request in model.requests] == [1, 2]
    again = ScriptedModel(*[[BadReply("cut", reason="length")]] * 3)
    async with stage(again) as play:
        state = await play.ended(await play.start())
    assert (again.calls, state.ended.code) == (2, "model")


async def test_a_conversation_that_is_too_long_is_an_end_of_its_own():
    state, _ = await outcome([ModelRefused("too long", reason="context_overflow", status=400)])
    told = "the conversation is longer than the model can take (too long)"
    assert (state.ended.code, state.ended.message) == ("context", told)


async def test_the_pictures_of_a_conversation_go_with_the_request():
    body = b"a picture"
    ref = BlobRef(sha256=sha256(body).hexdigest(), size=len(body))
    model = ScriptedModel(["a"])
    async with stage(model) as play:
        accepted = RunAccepted(input=(Image(blob=ref),), models=(ModelChoice("model"),))
        await play.means.store.accept("run_1", accepted, blobs={ref.sha256: body})
        await play.ended("run_1")
    assert model.requests[0].blobs == {ref.sha256: body}


async def test_a_run_that_finds_all_places_taken_says_so_and_waits():
    model = ScriptedModel([Silence(10), "a"], ["b"])
    line = Line(model, endpoint=Endpoint(concurrency=1))
    async with stage(model, lines={"model": line}) as play:
        first = await play.start()
        await play.until(first, ModelCalled)
        second = await play.start()
        await play.until(second, RunWaiting)
        assert phase(await play.runs.state(second)).waiting_for == "place"
        assert await play.tags(second) == ["run.accepted", "run.started", "run.waiting"]
        assert (await play.ended(second)).output == "b"
        assert anyio.current_time() == 10
        assert (await play.tags(second)).count("run.started") == 1


async def test_a_run_may_be_stopped_while_it_waits_for_a_place():
    model = ScriptedModel([Silence()])
    line = Line(model, endpoint=Endpoint(concurrency=1))
    async with stage(model, lines={"model": line}) as play:
        await play.until(await play.start(), ModelCalled)
        second = await play.start()
        await play.until(second, RunWaiting)
        await play.runs.stop(second)
        assert (await play.ended(second)).status is Status.CANCELLED
    assert model.calls == 1


async def test_an_endpoint_that_is_down_is_left_alone_by_all_runs_and_they_say_so():
    gone = [ModelUnavailable("gone")]
    main = ScriptedModel(*[gone] * 6, *[["back"]] * 3)
    lines = {"main": Line(main)}
    async with stage({"main": main}, lines=lines) as play:
        runs = [await play.start(attempts=9) for _ in range(3)]
        states = [await play.ended(run_id) for run_id in runs]
        assert [state.output for state in states] == ["back"] * 3
        journals = [event for run_id in runs for event in await play.journal(run_id)]
    failed = [event for event in journals if isinstance(event, ModelFailed)]
    assert main.calls == 9
    assert any("left alone" in event.message for event in failed)


async def test_while_an_endpoint_is_left_alone_the_fallback_is_asked_at_once():
    gone = [ModelUnavailable("gone")]
    main, backup = ScriptedModel(*[gone] * 5), ScriptedModel(["a"], ["b"])
    lines = {"main": Line(main), "backup": Line(backup)}
    async with stage({"main": main, "backup": backup}, lines=lines) as play:
        await play.ended(await play.start(attempts=5))
        began = anyio.current_time()
        assert (await play.ended(await play.start(attempts=5))).output == "b"
        assert (anyio.current_time(), main.calls) == (began, 5)


async def called(script):
    """The events of one attempt on this script, by a scribe that keeps a secret."""
    store, secrets = MemoryStore(now=anyio.current_time), Secrets([KEY])
    scribe = await Scribe.open(store, await held(store), secrets)
    await scribe.record(STARTED)
    means = Means(store, {"model": ScriptedModel(script)}, secrets=secrets)
    await call_model(scribe, means, CallModel(turn=1, attempt=1, model="model"))
    return [recorded.event for recorded in await store.read("run_1", after=3)]


def streamed(events, kind=TextStreamed):
    return "".join(event.text for event in events if isinstance(event, kind))


async def test_the_text_of_a_reply_is_exactly_what_was_streamed_without_its_secrets():
    events = await called(["a ", KEY[:7], Think(KEY[:3]), KEY[7:], Think(KEY[3:]), " desk"])
    assert streamed(events) == only(events, ModelReplied).text == f"a {MASK} desk"
    assert streamed(events, ReasoningStreamed) == MASK
    assert [type(event) for event in events[-2:]] == [ModelReplied, RunCompleted]


async def test_text_that_begins_like_a_secret_is_whole_when_the_reply_ends():
    events = await called(["a ", KEY[:-1]])
    assert streamed(events) == only(events, ModelReplied).text == f"a {KEY[:-1]}"


async def test_what_was_there_of_a_secret_when_the_stream_broke_is_masked():
    events = await called(["a ", KEY[:-1], CutOff()])
    assert streamed(events) == f"a {MASK}" and isinstance(events[-1], ModelFailed)


async def test_a_silence_after_words_that_are_held_back_is_a_stall_like_any_other():
    events = await called(["sk-", Silence()])
    assert (only(events, ModelFailed).reason, anyio.current_time()) == ("idle_kill", 120)
    assert isinstance(events[0], ModelHeard)


async def test_half_a_secret_at_the_end_of_an_error_that_is_cut_short_is_masked():
    events = await called([ModelUnavailable("x" * (MOST_WORDS - 10) + KEY)])
    assert only(events, ModelFailed).message == "x" * (MOST_WORDS - 10) + MASK


@pytest.mark.parametrize(
    ("recall", "known"), [(None, ["a", "1", "b", "2"]), (3, ["1", "b", "2"]), (0, [])]
)
async def test_a_run_is_told_as_much_of_its_session_as_was_asked_for(recall, known):
    model = ScriptedModel(["1"], ["2"], ["3"])
    async with stage(model) as world:
        for text, more in (("a", {}), ("b", {}), ("c", {"recall": recall})):
            sent = await world.say(text, **more)
            await world.ended(sent.run_id)
    told = [getattr(one, "text", "") or plain(one.parts) for one in model.requests[-1].messages]
    assert told[-len(known) - 1 :] == [*known, "c"]
    assert ("a" in told) == (recall is None)
