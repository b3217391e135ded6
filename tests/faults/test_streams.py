"""Every fault of a model's stream, in every phase, on every wire, through the whole engine.

In virtual time, so that all of it takes seconds; the same faults strike on real sockets in
`test_sockets`. Whatever happens, the second attempt is answered well, and what the run then says is
what was said there: not a word lost or doubled.
"""

from itertools import product

import anyio
import pytest

from holdfast.calls.line import Endpoint, Line
from holdfast.core.events import (
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelRetracted,
    TextStreamed,
    ToolFinished,
)
from holdfast.core.lifecycle import Status
from holdfast.core.watchdog import Patience
from holdfast.models.remote import GRACE, open_remote
from holdfast.testing.endpoint import (
    Answer,
    CutOff,
    Drip,
    Finish,
    Hangup,
    NoHeaders,
    Pings,
    Raw,
    Reset,
)
from holdfast.testing.scripted import Call, ScriptedTool, Silence, Think
from holdfast.testing.stage import stage
from holdfast.testing.transport import ScriptedTransport

WIRES = ("openai-chat", "openai-responses", "anthropic")

#: What has happened when the fault strikes.
PHASES = {
    "before headers": [NoHeaders()],
    "after headers": [],
    "after the first delta": ["Hel"],
    "in tool arguments": [Call("pay", '{"euro": ')],
    "after the finish reason": ["Hello", Finish()],
}
PATIENCE = Patience(first=45, between=120, whole=1800)

every_wire = pytest.mark.parametrize("wire", WIRES)
every_phase = pytest.mark.parametrize("phase", PHASES)


class Outcome:
    """How a run went, with these scripts at the other end."""

    def __init__(self, transport, state, journal, seconds, pay):
        self.transport, self.state, self.journal = transport, state, journal
        self.seconds, self.pay = seconds, pay

    def of(self, kind):
        return [event for event in self.journal if isinstance(event, kind)]

    @property
    def reasons(self):
        return [event.reason for event in self.of(ModelFailed)]

    @property
    def shown(self):
        """What a careful reader has on the screen in the end."""
        said = ""
        for event in self.journal:
            if isinstance(event, TextStreamed):
                said += event.text
            elif isinstance(event, ModelRetracted):
                said = ""
        return said


async def outcome(wire, *scripts, patience=PATIENCE, stop_after=None, fallback=None, **accepted):
    transport, pay = ScriptedTransport(*scripts), ScriptedTool("pay")
    models = {"main": remote(wire, transport)}
    if fallback:
        models["backup"] = remote(wire, fallback)
    lines = {name: Line(model, wire, Endpoint()) for name, model in models.items()}
    async with stage(models, pay, lines=lines) as play:
        began = anyio.current_time()
        choices = tuple(ModelChoice(name, patience=patience) for name in models)
        run_id = await play.start(models=choices, **accepted)
        if stop_after is not None:
            await play.until(run_id, ModelCalled)
            await anyio.sleep(stop_after)
            await play.runs.stop(run_id)
        state = await play.ended(run_id)
        seconds = anyio.current_time() - began
        assert transport.open == 0
        return Outcome(transport, state, await play.journal(run_id), seconds, pay)


def remote(wire, transport):
    return open_remote(wire, transport, base_url="http://model/v1", model="m", key="sk-canary-1")


def stalled(wire, phase):
    if phase in ("before headers", "after headers"):
        return "codex_ttfb_kill" if wire == "openai-responses" else "ttfb_kill"
    return "idle_kill"


def well(result, *, text="Hello", attempts=2):
    assert result.state.status is Status.COMPLETED
    assert result.state.output == result.shown == text
    assert len(result.transport.requests) == attempts
    assert result.pay.effects == []


SILENT = {
    "silence": [Silence()],
    "comments": [Pings(every=5)],
    "drip": [Drip(5.0), "word"],
}


@every_wire
@every_phase
@pytest.mark.parametrize("fault", SILENT)
async def test_a_quiet_line_costs_its_cutoff(wire, phase, fault):
    result = await outcome(wire, [*PHASES[phase], *SILENT[fault]], ["Hello"])
    if phase == "after the finish reason":
        # All had been said: only what is merely counted was missing.
        well(result, attempts=1)
        assert result.seconds <= GRACE + 0.5
        return
    well(result)
    assert result.reasons == [stalled(wire, phase)]
    limit = 45 if phase in ("before headers", "after headers") else 120
    assert result.seconds <= limit + 0.5
    if result.reasons[0] != "idle_kill":
        assert "TTFB" in result.of(ModelFailed)[0].message


@every_wire
@every_phase
async def test_events_that_say_nothing_are_no_progress(wire, phase):
    result = await outcome(wire, [*PHASES[phase], Pings(every=5, empty=True)], ["Hello"])
    if phase == "after the finish reason":
        well(result, attempts=1)
        return
    well(result)
    # The first of them may count as an acknowledgement, once.
    assert result.reasons[0] in {stalled(wire, phase), "idle_kill"}
    assert result.seconds <= 45 + 120 + 0.5


@every_wire
@pytest.mark.parametrize(
    "script",
    [
        [*["word ", Silence(119)] * 6],
        [*[Think("hm "), Silence(119)] * 6, "word"],
        [*[Call("look", '{"a": 1}'), Silence(119)] * 6],
        [Silence(44), "word", Silence(119), "word"],
    ],
    ids=["text", "reasoning", "tool calls", "just in time"],
)
async def test_a_slow_line_that_says_something_is_never_cut(wire, script):
    result = await outcome(wire, script, ["Done"])
    assert result.reasons == [] and result.state.status is Status.COMPLETED


@every_wire
@every_phase
@pytest.mark.parametrize("fault", [Reset(), Hangup()], ids=["reset", "hang-up"])
async def test_a_line_that_breaks_is_tried_again(wire, phase, fault):
    result = await outcome(wire, [*PHASES[phase], fault], ["Hello"])
    if phase == "after the finish reason":
        well(result, attempts=1)
        return
    well(result)
    assert result.reasons == ["reset"]
    assert bool(result.of(ModelRetracted)) == (phase == "after the first delta")


@every_wire
@every_phase
async def test_a_reply_without_its_end_marker_is_never_taken_for_one(wire, phase):
    result = await outcome(wire, [*PHASES[phase], CutOff()], ["Hello"])
    if phase == "after the finish reason":
        well(result, attempts=1)
        return
    well(result)
    assert result.reasons == ["truncated"]


@every_wire
@pytest.mark.parametrize("arguments", ['{"euro": 5', "five", "[5]", '"5"'])
async def test_arguments_that_cannot_be_read_are_never_executed(wire, arguments):
    script = [Call("pay", '{"euro": 5}', "c1"), Call("pay", arguments, "c2"), Finish("tools")]
    result = await outcome(wire, script, ["Sorry"])
    if result.reasons:
        assert set(result.reasons) <= {"bad_reply", "truncated"}
    else:
        told = [event.outcome for event in result.of(ToolFinished)]
        assert told == ["error", "error"] and result.state.output == "Sorry"
    assert result.pay.effects == []


@every_wire
async def test_a_call_cut_by_the_limit_is_asked_for_once_more_with_twice_the_room(wire):
    cut = [Call("pay", '{"euro": '), Finish("length")]
    options = {"max_tokens": 100}
    transport = ScriptedTransport(cut, ["Hello"])
    line = Line(remote(wire, transport), wire)
    async with stage(line.model, ScriptedTool("pay")) as play:
        run_id = await play.start(models=(ModelChoice("model", options=options),))
        state = await play.ended(run_id)
    assert (state.output, state.status) == ("Hello", Status.COMPLETED)
    limits = [
        next(value for name, value in request.body.items() if "max" in name and "tokens" in name)
        for request in transport.requests
    ]
    assert limits == [100, 200]


@every_wire
async def test_a_text_cut_by_the_limit_completes_and_says_so(wire):
    result = await outcome(wire, ["Hello", Finish("length")])
    assert (result.state.ended.incomplete, result.state.output) == ("length", "Hello")


@every_wire
@every_phase
@pytest.mark.parametrize(
    "flood",
    [
        [Raw(b"data: " + b"x" * (1024 * 1024 + 1) + b"\n\n")],
        [Raw(b": " + b"x" * (8 * 1024 * 1024 + 1))],
        [Raw(b": " + b"x" * 1_000_000 + b"\n")] * 70,
    ],
    ids=["event", "line", "all"],
)
async def test_a_flood_is_given_up_on(wire, phase, flood):
    result = await outcome(wire, [*PHASES[phase], *flood, Silence()], ["never"])
    if phase == "after the finish reason":
        well(result, attempts=1)
        return
    assert result.reasons == ["too_large"] and result.state.status is Status.FAILED
    assert len(result.transport.requests) == 1


@every_wire
@pytest.mark.parametrize(
    "odd",
    [
        b"\xef\xbb\xbf",
        b": \xff\xfe\x00\r\n\r\n",
        b"event\r\rid: 7\nretry: 10\r\nunknown: \x00\n\n",
        b"data\n\n\n\n",
    ],
    ids=["BOM", "no text", "CR", "empty"],
)
async def test_odd_bytes_that_the_rules_allow_are_let_pass(wire, odd):
    well(await outcome(wire, [Raw(odd), "Hello"]), attempts=1)


@every_wire
@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, "<h1>Hello</h1>", {"Content-Type": "text/html"}),
        Answer(204),
        Answer(301, "", {"Location": "http://elsewhere/"}),
        Answer(302, "", {"Location": "http://elsewhere/"}),
        Answer(307, "", {"Location": "http://elsewhere/"}),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_what_is_no_reply_is_not_asked_for_again(wire, answer):
    result = await outcome(wire, [answer], ["never"])
    assert result.reasons == ["bad_reply"] and result.state.status is Status.FAILED
    assert len(result.transport.requests) == 1


@every_wire
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_a_refusal_ends_it_at_once_without_our_key_in_it(wire, status):
    body = '{"error": {"message": "sk-canary-1 is no good"}}'
    result = await outcome(wire, [Answer(status, body)], ["never"])
    assert result.reasons == ["refused"] and result.state.status is Status.FAILED
    assert (len(result.transport.requests), result.seconds) == (1, 0)
    assert "sk-canary-1" not in repr(result.journal) and "[secret]" in result.state.ended.message


@every_wire
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
@pytest.mark.parametrize(
    ("after", "seconds"), [("7", 7.0), ("Thu, 01 Jan 1970 00:00:50 GMT", None), ("", None)]
)
async def test_what_may_pass_is_waited_for_as_long_as_it_says(wire, status, after, seconds):
    headers = {"Retry-After": after} if after else {}
    result = await outcome(wire, [Answer(status, "", headers)], ["Hello"])
    well(result)
    if seconds:
        assert result.seconds == pytest.approx(seconds)
    assert result.seconds <= 60.0


@every_wire
async def test_a_wait_of_more_than_a_minute_is_not_waited_for(wire):
    later = [Answer(429, "", {"Retry-After": "61"})]
    result = await outcome(wire, later, ["never"])
    assert (result.state.status, len(result.transport.requests)) == (Status.FAILED, 1)
    backup = ScriptedTransport(["Hello"])
    result = await outcome(wire, later, fallback=backup)
    assert (result.state.output, result.seconds) == ("Hello", 0)


@every_wire
@pytest.mark.parametrize(
    ("fault", "moves"),
    [
        ([Answer(401)], True),
        ([Answer(402)], True),
        ([Answer(403)], True),
        ([Answer(404)], True),
        ([Answer(429)], True),
        ([Answer(500)], True),
        ([Reset()], True),
        ([CutOff()], True),
        ([Silence()], True),
        ([Answer(400)], False),
        ([Answer(413)], False),
        ([Answer(422)], False),
        (["No.", Finish("refusal")], False),
    ],
    ids=str,
)
async def test_the_fallback_is_asked_where_it_may_help(wire, fault, moves):
    backup = ScriptedTransport(["Hello"])
    result = await outcome(wire, fault, fallback=backup)
    assert len(backup.requests) == int(moves)
    assert (result.state.output == "Hello") is moves


@pytest.mark.parametrize(
    ("wire", "phase"),
    # On the one wire nothing comes after the finish reason, so there is nothing left to cancel.
    sorted({*product(WIRES, PHASES)} - {("openai-responses", "after the finish reason")}),
)
async def test_our_own_cancel_is_a_cancel_and_nothing_else(wire, phase):
    after = GRACE / 2 if phase == "after the finish reason" else 3.0
    result = await outcome(wire, [*PHASES[phase], Silence()], ["never"], stop_after=after)
    assert result.state.status is Status.CANCELLED
    assert result.reasons == ["interrupt_abort"] and len(result.transport.requests) == 1
    assert result.seconds == pytest.approx(after)


@every_wire
async def test_the_whole_call_has_its_limit_however_much_is_said(wire):
    script = ["word ", Silence(100)] * 30
    patience = Patience(first=45, between=120, whole=1800)
    result = await outcome(wire, script, ["Hello"], patience=patience)
    well(result)
    assert result.reasons == ["stale_kill"] and result.seconds <= 1800.5


@every_wire
async def test_zero_switches_the_first_limit_off(wire):
    patience = Patience(first=0, between=120, whole=1800)
    well(await outcome(wire, [Silence(1700), "Hello"], patience=patience), attempts=1)


@every_wire
async def test_the_next_turn_begins_with_the_first_model_again(wire):
    backup = ScriptedTransport([Call("pay", '{"euro": 5}')])
    result = await outcome(wire, [Answer(401)], ["Paid"], fallback=backup)
    assert result.state.output == "Paid" and len(result.pay.effects) == 1
    assert [event.model for event in result.of(ModelCalled)] == ["main", "backup", "main"]


@every_wire
async def test_a_conversation_that_is_too_long_has_its_own_end(wire):
    body = '{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}'
    backup = ScriptedTransport(["never"])
    result = await outcome(wire, [Answer(400, body)], fallback=backup)
    assert (result.state.ended.code, backup.requests) == ("context", [])


@every_wire
async def test_nothing_but_what_was_said_is_in_the_conversation_afterwards(wire):
    call = [Call("pay", '{"euro": 5}')]
    result = await outcome(wire, ["Hel", Reset()], ["Hel", CutOff()], call, ["Hello"])
    roles = [type(message).__name__ for message in result.state.conversation]
    assert roles == ["UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage"]
