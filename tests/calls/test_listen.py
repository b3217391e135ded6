import asyncio
import socket
import time

import anyio
import pytest

from holdfast.calls.listen import CLOSING, listen
from holdfast.core.messages import Calling, Done, Request, Said
from holdfast.core.watchdog import Patience
from holdfast.errors import BadReply, ModelUnavailable, StreamStalled
from holdfast.testing.scripted import Ack, Call, CutOff, ScriptedModel, Silence, Think

REQUEST = Request("model", "", ())


async def ignore(_):
    pass


async def hearing(model, patience, hear=ignore):
    return await listen(model.stream(REQUEST), patience, hear)


async def test_every_chunk_is_passed_on_and_the_end_marker_returned():
    heard = []

    async def hear(chunk):
        heard.append(chunk)

    done = await hearing(ScriptedModel(["a", Call("pay"), "b"]), Patience(), hear)
    assert heard == [Said("a"), Calling("pay"), Said("b")]
    assert isinstance(done, Done) and done.calls[0].tool == "pay"


async def lingering(*chunks):
    """Says these, and takes for ever to hang up."""
    try:
        for chunk in chunks:
            yield chunk
    finally:
        await anyio.sleep_forever()


@pytest.mark.parametrize("limit", [1.0, 1000.0])
async def test_a_reply_is_not_held_up_or_lost_by_a_model_that_takes_its_time_to_hang_up(limit):
    whole = await listen(lingering(Said("a"), Done()), Patience(between=limit), ignore)
    assert (whole, anyio.current_time()) == (Done(), CLOSING)


async def test_nor_is_a_failure():
    async def refuse(_):
        raise BadReply("no")

    with pytest.raises(BadReply):
        await listen(lingering(Said("a")), Patience(), refuse)
    assert anyio.current_time() == CLOSING


async def test_a_line_that_never_speaks_is_hung_up_on():
    model = ScriptedModel([Silence()])
    with pytest.raises(StreamStalled, match="TTFB") as stalled:
        await hearing(model, Patience(first=45))
    assert (anyio.current_time(), model.open) == (45, 0)
    assert (stalled.value.reason, stalled.value.waited) == ("ttfb_kill", 45)
    assert isinstance(stalled.value, TimeoutError)


async def test_a_line_that_goes_quiet_later_has_its_own_limit():
    model = ScriptedModel(["a", Silence(80), "b", Silence()])
    with pytest.raises(StreamStalled) as stalled:
        await hearing(model, Patience(first=45, between=90))
    assert (anyio.current_time(), stalled.value.reason) == (170, "idle_kill")


async def test_a_call_that_never_comes_to_an_end_is_cut_at_the_whole():
    model = ScriptedModel([*["word", Silence(10)] * 100])
    with pytest.raises(StreamStalled) as stalled:
        await hearing(model, Patience(whole=305))
    assert (anyio.current_time(), stalled.value.reason) == (305, "stale_kill")


async def test_zero_switches_a_limit_off():
    patient = Patience(first=0, between=0, whole=0)
    await hearing(ScriptedModel([Silence(1e6), "a", Silence(1e6)]), patient)
    with pytest.raises(StreamStalled):
        await hearing(ScriptedModel([Silence()]), Patience(first=0, whole=100))
    assert anyio.current_time() == 2e6 + 100


async def test_an_acknowledgement_ends_the_wait_for_a_first_event_once():
    model = ScriptedModel([Silence(40), Ack(), Silence(80), Ack(), Silence()])
    with pytest.raises(StreamStalled) as stalled:
        await hearing(model, Patience(first=45, between=90))
    assert (anyio.current_time(), stalled.value.reason) == (130, "idle_kill")


async def test_empty_chunks_are_no_progress_and_are_not_passed_on():
    heard = []

    async def hear(chunk):
        heard.append(chunk)

    model = ScriptedModel(["a", *[Silence(10), "", Think("")] * 20])
    with pytest.raises(StreamStalled):
        await hearing(model, Patience(between=90), hear)
    assert (anyio.current_time(), heard) == (90, [Said("a")])


async def test_reasoning_and_tool_calls_are_progress_too():
    model = ScriptedModel([*[Silence(80), Think("hm")] * 5, *[Silence(80), Call("pay")] * 5])
    done = await hearing(model, Patience(first=90, between=90, whole=0))
    assert len(done.calls) == 5


async def test_our_own_slowness_is_not_their_silence():
    async def slow_disk(_):
        await anyio.sleep(300)

    model = ScriptedModel(["a", Silence(1), "b", Silence(1), "c"])
    await hearing(model, Patience(first=1, between=2, whole=4), slow_disk)
    assert anyio.current_time() == 902


async def test_a_reply_without_its_end_marker_is_truncated():
    with pytest.raises(BadReply, match="end marker") as broken:
        await hearing(ScriptedModel(["half", CutOff()]), Patience())
    assert broken.value.reason == "truncated"


async def test_an_error_carries_the_silence_before_it():
    model = ScriptedModel(["a", Silence(7), ModelUnavailable("hung up")])
    with pytest.raises(ModelUnavailable) as broken:
        await hearing(model, Patience())
    assert broken.value.waited == 7


async def test_a_cancelled_caller_sees_cancellation_and_not_a_stall():
    model = ScriptedModel([Silence()])
    with anyio.move_on_after(10) as scope:
        await hearing(model, Patience(first=45))
    assert scope.cancelled_caught
    assert (anyio.current_time(), model.open) == (10, 0)


async def test_what_goes_wrong_while_hearing_is_not_the_model_s_fault():
    async def broken_disk(_):
        raise OSError("no space")

    model = ScriptedModel(["a", Silence()])
    with pytest.raises(OSError, match="no space"):
        await hearing(model, Patience(), broken_disk)
    assert model.open == 0


@pytest.mark.real_time
async def test_what_was_said_while_this_process_was_held_up_is_heard():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)

        class Far:
            async def stream(self, request):
                while data := await asyncio.get_running_loop().sock_recv(ours, 10):
                    yield Said(data.decode())
                yield Done()

        async def talk():
            theirs.send(b"a")
            await anyio.sleep(0.05)
            # The answer arrives, and nobody here has time to take it before its limit.
            theirs.send(b"b")
            time.sleep(0.6)  # noqa: ASYNC251, TID251 (it is what the test is about)
            await anyio.sleep(0.1)
            theirs.shutdown(socket.SHUT_WR)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk)
            await hearing(Far(), Patience(first=0.3, between=0.3))


async def test_a_limit_that_comes_nearer_with_the_first_event_counts():
    with pytest.raises(StreamStalled) as stalled:
        await hearing(ScriptedModel([Silence(50), "a", Silence()]), Patience(first=0, between=10))
    assert (anyio.current_time(), stalled.value.reason) == (60, "idle_kill")


async def test_our_own_slowness_past_every_limit_is_not_their_silence():
    async def slowly(_):
        await anyio.sleep(5000)

    await hearing(ScriptedModel(["a", Silence(9), "b"]), Patience(between=10, whole=100), slowly)


async def test_a_model_that_says_nothing_very_fast_leaves_time_for_others():
    class Babble:
        async def stream(self, request):
            while True:
                yield Said("")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hearing, Babble(), Patience(whole=0))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
