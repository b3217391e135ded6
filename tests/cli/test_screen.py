import io
import json

import pytest

from holdfast.cli.screen import JsonLines, Screen, moment, receipt
from holdfast.cli.terminal import Terminal
from holdfast.core.codec import record
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalExpired,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Receipt,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    Unknown,
)
from holdfast.core.messages import Text, ToolCall
from holdfast.core.phase import Phase

AT = {"turn": 1, "attempt": 1}
PAY = ToolCall(id="call_1", tool="pay", arguments='{"sum":5}')
LOOK = ToolCall(id="call_2", tool="look")


def shown(*events):
    """What these events leave on one page."""
    page = io.StringIO()
    terminal = Terminal(page)
    show_all(Screen(terminal, terminal), events)
    return page.getvalue()


def show_all(screen, events):
    for seq, event in enumerate(events, 1):
        screen.show(Recorded(seq, 0.0, event, b""))


def text(words):
    return TextStreamed(**AT, text=words)


def called(*calls):
    return ModelReplied(**AT, calls=calls)


def test_a_run_reads_as_thoughts_words_tools_and_words():
    page = shown(
        ReasoningStreamed(**AT, text="Let me "),
        ReasoningStreamed(**AT, text="think."),
        ModelHeard(**AT),
        text("I will "),
        text("pay."),
        called(PAY, LOOK),
        ToolStarted(call_id="call_1"),
        ToolProgressed(call_id="call_1", text="half"),
        ToolProgressed(call_id="call_1", text=" way"),
        ToolFinished(call_id="call_1", outcome="ok", output="paid\nin full"),
        ToolStarted(call_id="call_2"),
        ToolFinished(call_id="call_2", outcome="timeout"),
        text("Done."),
        ModelReplied(**AT),
        RunCompleted(),
    )
    assert page == (
        "Let me think.\n\n"
        "I will pay.\n\n"
        '→ pay {"sum":5}\n\n'
        "half way\n"
        "✓ pay: paid in full\n"
        "→ look\n"
        "✗ look, timeout\n\n"
        "Done.\n"
    )


def test_words_and_notes_can_be_kept_apart():
    words, notes = io.StringIO(), io.StringIO()
    screen = Screen(Terminal(words), Terminal(notes))
    show_all(
        screen,
        [
            ReasoningStreamed(**AT, text="Hm."),
            text("Paying."),
            called(PAY),
            ToolStarted(call_id="call_1"),
            text("Paid."),
            RunCompleted(),
        ],
    )
    assert words.getvalue() == "Paying.\n\nPaid.\n"
    assert notes.getvalue() == 'Hm.\n\n→ pay {"sum":5}\n'


def test_words_and_notes_on_one_screen_by_two_ways_do_not_share_a_line():
    page = io.StringIO()
    screen = Screen(Terminal(page), Terminal(page))
    show_all(screen, [ReasoningStreamed(**AT, text="Hm."), text("Yes."), StopRequested()])
    assert page.getvalue() == "Hm.\nYes.\n\nstopping …\n"


def test_an_abandoned_attempt_ends_in_a_visible_break():
    stalled = ModelFailed(**AT, reason="idle_kill", message="no further event for 120 s")
    page = shown(text("Once up"), stalled, ModelRetracted(**AT, after=1), text("Once upon a time"))
    assert page == (
        "Once up\n\n"
        "! no further event for 120 s\n\n"
        "[connection lost; starting again]\n\n"
        "Once upon a time"
    )


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ModelFailed(**AT, reason="overloaded"), "! overloaded\n"),
        (ModelFailed(**AT, reason="interrupt_abort", message="cut off"), ""),
        (ApprovalAnswered(approval_id="apr_1", choice="once"), "  answered: once\n"),
        (ApprovalExpired(approval_id="apr_1"), "  nobody answered in time\n"),
        (InputAdded(parts=(Text("be quick"),)), "+ be quick\n"),
        (InputEdited(parts=(Text("be slow"),)), "asked instead: be slow\n"),
        (StopRequested(), "stopping …\n"),
        (
            RunQueued(why="rescued"),
            "! the process that carried the run is gone; it is queued again\n",
        ),
        (
            RunQueued(why="tripped", detail="oops"),
            "! the run was dropped over trouble; it is queued again: oops\n",
        ),
        (RunWaiting(what="tool", name="pay"), "! the tool pay is not here; waiting for it\n"),
        (Unknown("run.danced"), "! run.danced was written by a newer version\n"),
        (RunCompleted(incomplete="length"), "! the reply was cut short by the model's limit\n"),
        (RunCompleted(incomplete="refusal"), "! the model declined to go on\n"),
        (RunFailed(code="model", message="gave up"), "✗ the run failed: gave up\n"),
        (RunCancelled(), "stopped; nothing was cut off\n"),
    ],
)
def test_each_event_has_its_line(event, line):
    assert shown(event) == line


def test_a_receipt_names_what_was_cut_off():
    cut = Receipt(model_calls=1, tool_calls=("call_1",), may_bill=True, problems=("odd",))
    assert receipt(cut, {"call_1": PAY}) == (
        "stopped; cut off: a model call, which may still be billed;"
        " pay, which may have had effects\n! odd"
    )
    assert receipt(Receipt(model_calls=1), {}) == "stopped; cut off: a model call"


def test_a_receipt_tells_what_was_ended_and_what_goes_on():
    told = receipt(Receipt(ended=("process 7: killed",), left=("thread 8: still running",)), {})
    assert told.splitlines()[1:] == [
        "  ended: process 7: killed",
        "! goes on: thread 8: still running",
    ]


def test_what_a_tool_was_given_and_gave_back_is_shortened_to_a_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    long = ToolCall(id="call_3", tool="write", arguments='{"text":"' + "x" * 100 + '"}')
    page = shown(
        called(long),
        ToolStarted(call_id="call_3"),
        ToolFinished(call_id="call_3", outcome="ok", output="y\n" * 100),
    )
    assert [len(line) for line in page.splitlines()] == [29, 29]
    assert page.count("…") == 2


def test_a_failure_is_told_in_full():
    why = "because " * 50
    page = shown(called(PAY), ToolFinished(call_id="call_1", outcome="not_started", output=why))
    assert page == f"✗ pay, not started: {why}\n"


def test_waiting_is_shown_on_a_screen_until_something_happens(monkeypatch):
    class Tty(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    page = Tty()
    terminal = Terminal(page)
    screen = Screen(terminal, terminal)
    screen.wait(Phase("worker", 0.0), now=3.0)
    screen.wait(None, now=3.0)
    assert "waiting for a worker · 3 s" in page.getvalue()
    show_all(screen, [ModelHeard(**AT)])
    assert page.getvalue().endswith("\x1b[2K")


def test_json_lines_hold_the_bytes_that_were_recorded():
    page = io.BytesIO()
    lines = JsonLines(page)
    lines.begin("run_1")
    recorded = record(7, 1.5, TextStreamed(**AT, text="é\n"))
    lines.show(recorded)
    lines.show(Recorded(8, 2.0, Unknown("x"), b'{"type":"x",  "odd": 1}'))
    lines.wait(Phase("worker", 0.0), now=3.0)
    first, second = page.getvalue().splitlines()
    assert recorded.body in first
    assert json.loads(first) == {
        "run": "run_1",
        "seq": 7,
        "at": 1.5,
        "event": json.loads(recorded.body),
    }
    assert second == b'{"run":"run_1","seq":8,"at":2.0,"event":{"type":"x",  "odd": 1}}'


def journal(*events):
    return [record(seq, 0.0, event) for seq, event in enumerate(events, 1)]


ASKED = RunAccepted(input=(Text("what now?"),), models=(ModelChoice("demo"),))
CALLED = ModelCalled(turn=1, attempt=1, model="demo")


def begun(events, after=0):
    page = io.StringIO()
    terminal = Terminal(page)
    Screen(terminal, terminal).begin("run_1", events, after=after)
    return page.getvalue()


def test_a_run_that_is_there_already_begins_with_what_was_asked():
    head, asked, empty, said = begun(journal(ASKED, CALLED, text("Well"))).splitlines()
    assert head.startswith("run_1 · 19")
    assert (asked, empty, said) == ("> what now?", "", "Well")


def test_what_was_taken_back_is_not_shown_to_whoever_comes_later():
    again = TextStreamed(turn=1, attempt=2, text="Well")
    retracted = ModelRetracted(**AT, after=2)
    shown = begun(journal(ASKED, CALLED, text("We"), retracted, again))
    assert shown.endswith("> what now?\n\nWell")


def test_whoever_knows_the_beginning_is_shown_the_rest():
    events = journal(ASKED, CALLED, called(PAY), ToolStarted(call_id="call_1"))
    assert begun(events, after=3) == '→ pay {"sum":5}\n'


def test_json_lines_begin_where_they_are_told_to():
    page = io.BytesIO()
    JsonLines(page).begin("run_1", journal(ASKED, CALLED, text("Well")), after=2)
    (line,) = page.getvalue().splitlines()
    assert json.loads(line)["seq"] == 3


def test_what_is_in_the_way_is_a_line_among_the_notes():
    words, notes = io.StringIO(), io.StringIO()
    screen = Screen(Terminal(words), Terminal(notes))
    show_all(screen, [ASKED, CALLED, text("Well")])
    screen.warn("there is no space left")
    assert words.getvalue() == "Well"
    assert notes.getvalue().endswith("! there is no space left\n")


def test_what_is_in_the_way_is_no_line_of_json(capsys):
    page = io.BytesIO()
    JsonLines(page).warn("there is no space left")
    assert page.getvalue() == b""
    assert capsys.readouterr().err == "! there is no space left\n"


def test_calls_that_nobody_knows_are_shown_as_that():
    assert "a tool that was not asked for, which may" in receipt(Receipt(tool_calls=("x",)), {})
    paper = io.StringIO()
    screen = Screen(Terminal(paper), Terminal(paper))
    screen.show(record(1, 1.0, ToolStarted(call_id="x")))
    screen.show(record(2, 1.0, ToolFinished(call_id="x", outcome="ok")))
    assert paper.getvalue().count("a tool that was not asked for") == 2


def test_what_is_skipped_is_known_later():
    paper = io.StringIO()
    screen = Screen(Terminal(paper), Terminal(paper))
    screen.skip(record(1, 1.0, ModelReplied(**AT, calls=(PAY,))))
    screen.skip(record(2, 1.0, ToolStarted(call_id="call_1")))
    assert paper.getvalue() == ""
    screen.show(record(3, 1.0, ToolFinished(call_id="call_1", outcome="ok", output="paid")))
    assert "✓ pay: paid" in paper.getvalue()


def test_a_time_that_no_calendar_has_is_shown_all_the_same():
    assert moment(0.0).startswith("19")
    assert moment(1e300) == "1e+300 s since 1970"
