"""The gravest faults of a model's stream once more, on real sockets and in real time."""

from contextlib import asynccontextmanager

import anyio
import pytest

from holdfast.calls.line import Endpoint, Line
from holdfast.core.events import ModelCalled, ModelChoice, ModelFailed, TextStreamed
from holdfast.core.lifecycle import Status
from holdfast.core.watchdog import Patience
from holdfast.models.http import open_transport
from holdfast.models.remote import open_remote
from holdfast.testing.endpoint import (
    Answer,
    CutOff,
    Drip,
    Hangup,
    NoHeaders,
    Pings,
    Reset,
    open_endpoint,
)
from holdfast.testing.scripted import Silence
from holdfast.testing.stage import stage

pytestmark = pytest.mark.real_time

WIRES = ("openai-chat", "openai-responses", "anthropic")
PATIENCE = Patience(first=0.25, between=0.25, whole=20)

every_wire = pytest.mark.parametrize("wire", WIRES)


@asynccontextmanager
async def playing(wire, *scripts, patience=PATIENCE, stream=True, hedge=0.0):
    """An endpoint with these scripts, and a stage with a model that calls it."""
    async with open_endpoint(*scripts) as endpoint, open_transport() as transport:
        model = open_remote(
            wire, transport, base_url=endpoint.url, model="m", key="sk-canary-1", stream=stream
        )
        line = Line(model, wire, Endpoint(), hedge=hedge)
        async with stage(model, lines={"model": line}, clock=anyio.current_time) as play:
            yield endpoint, play, ModelChoice("model", patience=patience)


async def carried(play, choice, **accepted):
    run_id = await play.start(models=(choice,), **accepted)
    return await play.ended(run_id), await play.journal(run_id)


def failures(journal):
    return [event for event in journal if isinstance(event, ModelFailed)]


FAULTS = {
    "silent before headers": ([NoHeaders(), Silence()], "ttfb_kill"),
    "silent after headers": ([Silence()], "ttfb_kill"),
    "silent in the middle": (["Hel", Silence()], "idle_kill"),
    "keep-alives only": ([Pings(every=0.02)], "ttfb_kill"),
    "keep-alives after a word": (["Hel", Pings(every=0.02)], "idle_kill"),
    "one byte at a time": (["Hel", Drip(0.05), "lo, there"], "idle_kill"),
    "reset": (["Hel", Reset()], "reset"),
    "hang-up": (["Hel", Hangup()], "reset"),
    "no end marker": (["Hel", CutOff()], "truncated"),
}


@every_wire
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_costs_its_cutoff_and_no_word(wire, fault):
    script, reason = FAULTS[fault]
    if (wire, reason) == ("openai-responses", "ttfb_kill"):
        reason = "codex_ttfb_kill"
    async with playing(wire, script, ["Hello"]) as (endpoint, play, choice):
        state, journal = await carried(play, choice)
        assert (state.output, state.status) == ("Hello", Status.COMPLETED)
        (failed,) = failures(journal)
        assert failed.reason == reason
        if "kill" in reason:
            # The end of the call is the end of the connection, and the other side sees it.
            assert failed.seconds < 0.25 + 0.5
            await endpoint.hung_up(0)
            assert endpoint.open == 0


@every_wire
async def test_on_expiry_the_connection_is_really_closed(wire):
    async with playing(wire, ["Hel", Silence()], ["Hello"]) as (endpoint, play, choice):
        run_id = await play.start(models=(choice,))
        await play.until(run_id, ModelFailed)
        recorded = anyio.current_time()
        assert await endpoint.hung_up(0) - recorded < 0.5


@every_wire
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "in one piece"])
@pytest.mark.parametrize(
    "script", [[NoHeaders(), Silence()], [Silence()], ["Hel", Silence()]], ids=str
)
async def test_a_stop_is_a_stop_at_once(wire, stream, script):
    patience = Patience(first=30, between=30)
    async with playing(wire, script, patience=patience, stream=stream) as (endpoint, play, choice):
        run_id = await play.start(models=(choice,))
        await play.until(run_id, ModelCalled)
        await endpoint.received()
        await anyio.sleep(0.05)
        stopped = anyio.current_time()
        await play.runs.stop(run_id)
        state = await play.ended(run_id)
        assert anyio.current_time() - stopped < 5
        assert await endpoint.hung_up(0) - stopped < 5
        assert (state.status, len(endpoint.requests)) == (Status.CANCELLED, 1)
        assert [event.reason for event in failures(await play.journal(run_id))] == [
            "interrupt_abort"
        ]


@every_wire
async def test_a_real_failure_without_a_stop_always_shows(wire):
    async with playing(wire, ["Hel", Reset()]) as (endpoint, play, choice):
        state, journal = await carried(play, choice, attempts=1)
    assert state.status is Status.FAILED and "lost the connection" in state.ended.message
    assert [event.reason for event in failures(journal)] == ["reset"]


@every_wire
async def test_a_stop_leaves_nothing_to_the_next_call(wire):
    async with playing(wire, ["Hel", Silence()], ["Hel", Reset()], ["Hello"]) as made:
        endpoint, play, choice = made
        first = await play.start(models=(choice,))
        await play.until(first, TextStreamed)
        await play.runs.stop(first)
        assert (await play.ended(first)).status is Status.CANCELLED
        state, journal = await carried(play, choice)
        assert state.output == "Hello"
        assert [event.reason for event in failures(journal)] == ["reset"]
        assert len(endpoint.requests) == 3


@every_wire
async def test_nothing_we_hold_is_on_record_or_in_a_log(wire, caplog):
    body = '{"error": {"message": "who is sk-canary-1?"}}'
    with caplog.at_level(0):
        async with playing(wire, [Answer(403, body)]) as (endpoint, play, choice):
            state, journal = await carried(play, choice)
    assert "sk-canary-1" in repr(endpoint.requests[0].headers)
    assert "sk-canary-1" not in repr(journal) + repr(state) + caplog.text


@every_wire
async def test_a_hedge_answers_where_the_first_is_dead(wire):
    patience = Patience(first=10, between=10)
    async with playing(wire, [NoHeaders(), Silence()], ["Hello"], patience=patience, hedge=0.2) as (
        endpoint,
        play,
        choice,
    ):
        state, journal = await carried(play, choice)
        assert (state.output, failures(journal)) == ("Hello", [])
        assert await endpoint.hung_up(0) and len(endpoint.requests) == 2
        assert state.usage.estimated > 0
