"""No stall costs more than its cutoff, and nothing that is merely slow is taken for one."""

import asyncio
import random

import anyio
import pytest

from holdfast.calls.alone import call
from holdfast.calls.line import Endpoint, Line, attempt
from holdfast.config import read_settings
from holdfast.core.messages import Request, Text, UserMessage
from holdfast.core.retry import RetryRules
from holdfast.core.watchdog import Patience
from holdfast.errors import ModelUnavailable, StreamStalled
from holdfast.models.http import open_transport
from holdfast.models.remote import open_remote
from holdfast.testing.endpoint import NoHeaders, open_endpoint
from holdfast.testing.scripted import Ack, Call, ScriptedModel, Silence, Think
from holdfast.testing.transport import ScriptedTransport

WIRES = ("openai-chat", "openai-responses", "anthropic")
REQUEST = Request("main", "", (UserMessage(parts=(Text("hi"),)),))
DEAD = [NoHeaders(), Silence()]

every_wire = pytest.mark.parametrize("wire", WIRES)


def line(wire, transport, *, url="http://model/v1", hedge=0.0):
    model = open_remote(wire, transport, base_url=url, model="m")
    return Line(model, wire, Endpoint(), hedge=hedge)


async def ignore(_):
    pass


# --- a first event that never comes


@every_wire
async def test_no_event_at_all_is_cut_off_at_the_cutoff_and_may_be_tried_again(wire):
    with pytest.raises(TimeoutError, match="TTFB") as stalled:
        await attempt(line(wire, ScriptedTransport(DEAD)), REQUEST, Patience(first=1), ignore)
    assert anyio.current_time() == 1
    codex = wire == "openai-responses"
    assert stalled.value.reason == ("codex_ttfb_kill" if codex else "ttfb_kill")
    reply = await call(
        {"main": line(wire, ScriptedTransport(DEAD, ["Hello"]))}, "hi", patience=Patience(first=1)
    )
    assert reply.text == "Hello" and anyio.current_time() == 2


@every_wire
async def test_events_that_flow_past_the_cutoff_are_never_cut(wire):
    words = ScriptedTransport(["word ", Silence(2)] * 10)
    await attempt(line(wire, words), REQUEST, Patience(first=1), ignore)
    assert anyio.current_time() == 20


@every_wire
async def test_an_acknowledgement_and_silent_thinking_are_not_a_stall(wire):
    thinking = ScriptedTransport([Ack(), Silence(119), "Hello"])
    await attempt(line(wire, thinking), REQUEST, Patience(first=1, between=120), ignore)


@every_wire
async def test_an_acknowledgement_counts_once(wire):
    thinking = ScriptedTransport([Ack(), Silence(121), "never"])
    with pytest.raises(StreamStalled) as stalled:
        await attempt(line(wire, thinking), REQUEST, Patience(first=1, between=120), ignore)
    assert stalled.value.reason == "idle_kill"


@every_wire
async def test_zero_switches_the_cutoff_off(wire):
    slow = ScriptedTransport([Silence(1000), "Hello"])
    await attempt(line(wire, slow), REQUEST, Patience(first=0), ignore)


@pytest.mark.parametrize(("value", "first"), [("1", 1.0), ("0", 0.0), ("2.5", 2.5)])
def test_the_variable_of_old_sets_the_cutoff_of_the_one_wire(value, first, tmp_path):
    file = tmp_path / "holdfast.toml"
    file.write_text(
        "default_model = 'a'\n"
        + "".join(
            f"[models.{name}]\nwire = '{wire}'\nmodel = 'm'\nbase_url = 'http://model.test/v1'\n"
            for name, wire in zip("abc", WIRES, strict=True)
        )
    )
    environ = {"HERMES_CODEX_TTFB_TIMEOUT_SECONDS": value, "HOME": str(tmp_path)}
    models = read_settings(config=str(file), environ=environ).models
    assert models["b"].patience.first == first and "first" not in models["b"].grows
    assert models["a"].patience.first == models["c"].patience.first == 45.0


# --- one connection in five is dead on arrival


def one_in_five():
    return [script for _ in range(4) for script in (["a"], ["a"], DEAD, ["a"], ["a"], ["a"])]


async def twenty(line, patience):
    """Twenty calls, one after the other: how long each took."""
    took = []
    for _ in range(20):
        began = anyio.current_time()
        reply = await call({"main": line}, "hi", patience=patience)
        assert reply.text == "a"
        took.append(anyio.current_time() - began)
    return took


@every_wire
async def test_a_dead_connection_costs_its_cutoff(wire):
    took = await twenty(line(wire, ScriptedTransport(*one_in_five())), Patience(first=2))
    assert max(took) <= 2.5 and sum(took) <= 4 * 2.5


@every_wire
async def test_with_a_hedge_it_costs_less(wire):
    transport = ScriptedTransport(*one_in_five())
    took = await twenty(line(wire, transport, hedge=0.5), Patience(first=2))
    assert max(took) <= 1.0 and sum(took) <= 4 * 1.0


@pytest.mark.real_time
@pytest.mark.parametrize(("hedge", "most"), [(0.0, 0.9), (0.1, 0.5)])
async def test_so_it_is_on_real_sockets(hedge, most):
    async with open_endpoint(*one_in_five()) as endpoint, open_transport() as transport:
        real = line("openai-responses", transport, url=endpoint.url, hedge=hedge)
        took = await twenty(real, Patience(first=0.4))
    assert max(took) <= most


# --- slow, and well


def slow_script(chance, patience):
    """A healthy stream whose every gap is just under its limit."""
    total = chance.uniform(0, patience.first - 0.01)
    script = [Silence(total)]
    if chance.random() < 0.3:
        script.append(Ack())
    kinds = chance.choice(
        [("word ",), (Think("hm "),), (Call("look", '{"a": 1}'),), ("a", Think("b"), Call("c"))]
    )
    for _ in range(chance.randint(1, 12)):
        gap = min(patience.between - 0.01, patience.whole - 0.02 - total)
        if gap <= 0:
            break
        script += [chance.choice(kinds), Silence(gap)]
        total += gap
    return script


@pytest.mark.parametrize("seed", range(20))
async def test_of_ten_thousand_slow_and_healthy_streams_none_is_cut(seed):
    patience = Patience(first=45, between=120, whole=1800)
    chance = random.Random(seed)
    finished = 0

    async def one(script):
        nonlocal finished
        await attempt(Line(ScriptedModel(script)), REQUEST, patience, ignore)
        finished += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(500):
            tasks.start_soon(one, slow_script(chance, patience))
    assert finished == 500


async def test_a_gap_just_over_its_limit_is_cut_so_the_test_before_this_one_can_fail():
    with pytest.raises(StreamStalled):
        script = ["word", Silence(120.01), "word"]
        await attempt(Line(ScriptedModel(script)), REQUEST, Patience(between=120), ignore)


# --- one call and the next


async def test_a_stop_behind_a_call_is_not_mistaken_for_the_calls_failure():
    model = ScriptedModel(["a", Silence()], [ModelUnavailable("gone")])
    with anyio.move_on_after(1) as scope:
        await call(model, "hi")
    assert scope.cancelled_caught
    with pytest.raises(ModelUnavailable, match="gone"):
        await call(model, "hi", rules=RetryRules(models=("model",), attempts=1))
    assert asyncio.current_task().cancelling() == 0
