"""Two connections, one ear. All in virtual time."""

import anyio
import pytest

from holdfast.calls.line import Endpoint, Line, attempt
from holdfast.core.breaker import FAILURES
from holdfast.core.messages import Done, Request, Said, Text, Unstreamed, UserMessage
from holdfast.core.usage import Usage
from holdfast.core.watchdog import Patience
from holdfast.errors import ModelUnavailable, StoreError, StreamStalled
from holdfast.testing.scripted import Ack, CutOff, ScriptedModel, Silence

REQUEST = Request("main", "", (UserMessage(parts=(Text("x" * 400),)),))


async def hedging(*scripts, hedge=2.0, second=None, endpoint=None, patience=Patience(), hear=None):  # noqa: B008
    model = ScriptedModel(*scripts)
    heard = []

    async def remember(chunk):
        heard.append(chunk)

    line = Line(model, hedge=hedge, second=second, endpoint=endpoint or Endpoint())
    done = await attempt(line, REQUEST, patience, hear or remember)
    return model, heard, done


async def test_a_line_that_answers_in_time_is_alone():
    model, heard, done = await hedging([Silence(1), "a", Silence(60), "b"])
    assert (model.calls, heard) == (1, [Said("a"), Said("b")])
    assert done.usage.estimated == 0


async def test_a_silent_line_is_joined_by_another_and_the_first_to_speak_is_heard():
    model, heard, done = await hedging([Silence(), "never"], [Silence(0.5), "a", "b"])
    assert (model.calls, model.open, heard) == (2, 0, [Said("a"), Said("b")])
    assert anyio.current_time() == 2.5


async def test_the_first_may_still_win():
    model, heard, done = await hedging([Silence(3), "a"], [Silence(5), "b"])
    assert (model.calls, model.open, heard) == (2, 0, [Said("a")])


async def test_what_the_loser_read_is_booked_as_estimated():
    _, _, done = await hedging([Silence()], ["a"])
    assert (done.usage.estimated, done.usage.input) == (100, 110)


async def test_a_known_price_stays_known_and_covers_the_loser():
    used = Usage(input=100, output=0, cost=1.0)
    _, _, done = await hedging([Silence()], ["a", Done(usage=used)])
    assert done.usage.cost == pytest.approx(2.0)
    _, _, done = await hedging([Silence()], ["a", Done(usage=Usage(cost=None))])
    assert done.usage.cost is None


async def test_a_backend_that_is_there_and_thinks_is_not_hedged():
    model, heard, _ = await hedging([Ack(), Silence(100), "a"])
    assert (model.calls, heard[-1]) == (1, Said("a"))


async def test_an_acknowledgement_does_not_win_the_race_but_ends_the_wait_for_it():
    model, heard, _ = await hedging(
        [Silence(60), "slow"], [Ack(), Silence()], patience=Patience(first=45, between=120)
    )
    assert (model.calls, heard[-1]) == (2, Said("slow"))


async def test_a_lost_race_is_no_failure():
    _, heard, _ = await hedging([Silence(2.5), ModelUnavailable("gone")], [Silence(2), "a"])
    assert heard == [Said("a")]


async def test_a_failure_before_the_second_was_asked_is_the_failure():
    with pytest.raises(ModelUnavailable, match="gone"):
        await hedging([Silence(1), ModelUnavailable("gone")], ["never"])
    assert anyio.current_time() == 1


async def test_if_both_fail_it_is_for_the_first_reason():
    with pytest.raises(ModelUnavailable, match="one"):
        await hedging([Silence(3), ModelUnavailable("one")], [Silence(2), ModelUnavailable("two")])
    assert anyio.current_time() == 4


async def test_a_winner_that_breaks_off_is_truncated():
    with pytest.raises(ModelUnavailable) as failed:
        await hedging([Silence()], ["a", CutOff()])
    assert failed.value.reason == "truncated"


async def test_two_silent_lines_are_one_stall():
    model = ScriptedModel([Silence()], [Silence()])
    with pytest.raises(StreamStalled, match="TTFB"):
        await attempt(Line(model, hedge=2.0), REQUEST, Patience(first=45), ignore)
    assert (anyio.current_time(), model.calls, model.open) == (45, 2, 0)


async def test_the_second_may_be_another_model():
    other = ScriptedModel(["from elsewhere"])
    elsewhere = Line(other, options={"effort": "low"})
    model, heard, _ = await hedging([Silence()], second=elsewhere)
    assert (model.calls, other.calls, heard) == (1, 1, [Said("from elsewhere")])
    assert other.requests[0].options == {"effort": "low"}


async def test_who_never_answered_is_not_praised_for_the_others_answer():
    endpoint, gone = Endpoint(), [ModelUnavailable("gone")]
    for _ in range(FAILURES - 1):
        with pytest.raises(ModelUnavailable):
            await hedging(gone, endpoint=endpoint)
    await hedging([Silence()], second=Line(ScriptedModel(["a"])), endpoint=endpoint)
    assert endpoint.breaker.failures == FAILURES - 1


async def test_there_is_no_second_call_where_there_is_no_place_for_one():
    endpoint = Endpoint(concurrency=1)
    async with endpoint.place(ignore):
        model, heard, _ = await hedging([Silence(10), "a"], ["never"], endpoint=endpoint)
    assert model.calls == 1
    model, heard, _ = await hedging([Silence(10), "a"], ["b"], endpoint=endpoint)
    assert model.calls == 2
    assert endpoint.take_place() and not endpoint.take_place()


async def test_a_second_that_does_not_stream_is_no_reason_to_wait_longer_for_the_first():
    class OnePiece(ScriptedModel):
        async def stream(self, request):
            yield Unstreamed()
            async for chunk in super().stream(request):
                yield chunk

    second = Line(OnePiece([Silence()]))
    with pytest.raises(StreamStalled, match="TTFB"):
        await hedging([Silence()], second=second, patience=Patience(first=45))
    assert anyio.current_time() == 45


async def test_being_stopped_hangs_up_on_both():
    model = ScriptedModel([Silence()], [Silence()])
    with anyio.move_on_after(10) as scope:
        await attempt(Line(model, hedge=2.0), REQUEST, Patience(), ignore)
    assert scope.cancelled_caught and (model.calls, model.open) == (2, 0)


async def test_what_goes_wrong_with_hearing_is_not_the_lines_fault():
    async def full(_):
        raise StoreError("full")

    with pytest.raises(StoreError):
        await hedging(["a"], hear=full)


async def ignore(_):
    pass
