"""Lines that somebody else wrote, taken in: no traceback, no obedience, nothing forged."""

import json
import os
import signal
import subprocess
import sys

import pytest

from holdfast.stores.reading import link

ACCEPTED = {
    "type": "run.accepted",
    "input": [{"type": "text", "text": "hi"}],
    "models": [{"name": "demo"}],
}
STARTED = {"type": "run.started", "worker": "w", "epoch": 1}
CALLED = {"type": "model.called", "turn": 1, "attempt": 1, "model": "demo"}
NOTE = {"id": "c1", "tool": "keep_note", "arguments": '{"text":"unasked"}', "gate": "auto"}
REPLIED = {"type": "model.replied", "turn": 1, "attempt": 1, "text": "x", "calls": [NOTE]}
ASKED = {"type": "approval.requested", "approval_id": "apr_1", "call_id": "c1"}
FUTURE = {"type": "from.the.future"}


def packed(run, *events, at=1.0):
    """Lines as `journal export` writes them, every sum right."""
    out, chain = [{"holdfast_journal": 1, "run": run, "events": len(events)}], b""
    lines = [json.dumps(out[0]).encode()]
    for seq, event in enumerate(events, 1):
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        chain = link(chain, seq, at, body)
        line = b'{"seq":%d,"at":%r,"body":%b,"sum":"%b"}'
        lines.append(line % (seq, at, body, chain.hex().encode()))
    return b"\n".join(lines) + b"\n"


@pytest.fixture
def take(command, tmp_path):
    def take(run, *events, how=("--trust",), **options):
        (tmp_path / "lines").write_bytes(packed(run, *events, **options))
        return command("journal", "import", str(tmp_path / "lines"), *how)

    return take


@pytest.mark.parametrize(
    ("events", "options"),
    [
        ([ACCEPTED], {"at": 1e300}),
        ([ACCEPTED, {**STARTED, "epoch": 2**63}], {}),
        ([ACCEPTED, {"type": "stop.requested"}, {"type": "run.cancelled"}, FUTURE], {}),
        ([{**ACCEPTED, "history": [{"sha256": "0" * 64, "size": 5}]}], {}),
        ([ACCEPTED, b'{"type":"x","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"], {}),
        ([ACCEPTED, b'{"type":"x","x":"\x1b]0;owned\x07"}'], {}),
    ],
)
def test_what_cannot_have_happened_is_refused_in_a_sentence(take, events, options):
    code, output, complaints = take("run_aa", *events, **options)
    assert (code, output) in ((65, ""), (74, ""))
    assert complaints.startswith("holdfast: ") and complaints.count("\n") == 1


def test_a_receipt_may_name_what_was_never_called(take, command):
    receipt = {"type": "run.cancelled", "receipt": {"tool_calls": ["nope"]}}
    assert take("run_aa", ACCEPTED, {"type": "stop.requested"}, receipt)[0] == 0
    code, output, _ = command("show", "aa")
    assert (code, "cut off: a tool that was not asked for" in output) == (0, True)


def test_large_numbers_and_odd_names_are_shown(take, command):
    accepted = {**ACCEPTED, "attempts": 2**70, "retry_total": 1e308, "approval_timeout": 1e308}
    used = {"usage": {"input": 2**70, "output": 2**80}, "seconds": 1e308}
    asked = {**ASKED, "tool": "\x1b[31mkeep\nnote", "expires": 1e308}
    calls = [{**NOTE, "gate": "ask"}]
    story = (accepted, STARTED, CALLED, {**REPLIED, **used, "calls": calls}, asked)
    assert take("run_aa", *story)[0] == 0
    for words in (("runs",), ("show", "aa"), ("runs", "--json"), ("show", "aa", "--json")):
        assert command(*words)[0] == 0
    code, output, _ = command("approve", "aa", "deny")
    assert (code, output.count("\n")) == (0, 1)
    assert output.startswith("\\x1b[31mkeep note: deny; ")


def test_a_reason_cannot_pass_for_what_is_asked(take, command):
    asked = {"tool": "keep_note", "reason": "harmless\n  │ ls", "subject": "rm -rf /"}
    take("run_aa", ACCEPTED, STARTED, CALLED, REPLIED, {**ASKED, **asked, "doubt": "c\n  │ ls"})
    shown = command("show", "aa")[1].splitlines()
    assert [line for line in shown if line.startswith("  │")] == ["  │ rm -rf /"]


def test_a_call_does_not_open_its_own_gate(take, holdfast):
    assert take("run_aa", ACCEPTED, STARTED, CALLED, REPLIED, how=())[0] == 0
    done = holdfast("resume", "--pace", "0")
    assert done.returncode == 0
    assert "✗ keep_note, not started" in done.stderr.decode()
    assert "✓ keep_note: kept" not in done.stderr.decode()


def test_a_standing_yes_has_to_be_trusted(take, command):
    granted = {"type": "approval.answered", "approval_id": "apr_1", "choice": "always"}
    story = (ACCEPTED, STARTED, CALLED, REPLIED, {**ASKED, "tool": "keep_note"}, granted)
    code, output, complaints = take("run_aa", *story, how=())
    assert (code, output, complaints.count("\n")) == (2, "", 1)
    assert "a yes in it stands for whatever else keep_note is asked to do; --trust" in complaints
    assert take("run_aa", *story)[:2] == (0, "1 run taken in\n")


def test_json_holds_nothing_that_a_terminal_obeys(take, at_terminal):
    text = '{"type":"model.text","turn":1,"attempt":1,"text":"\x9b31mred\x7f"}'.encode()
    ended = ({"type": "stop.requested"}, {"type": "run.cancelled"})
    assert take("run_aa", ACCEPTED, STARTED, CALLED, text, *ended)[0] == 0
    for words in (("show", "aa", "--json"), ("tail", "aa", "--json")):
        screen = at_terminal(*words)
        assert screen.end() == 0
        assert "\x9b" not in screen.raw and "\x7f" not in screen.raw
    assert "\\u009b31mred\\u007f" in screen.raw


def test_a_run_of_a_newer_version_is_not_stopped_by_this_one(take, command):
    assert take("run_aa", ACCEPTED, FUTURE)[0] == 0
    code, output, _ = command("stop", "aa")
    assert code == 3
    assert "it ends when a newer version, which understands from.the.future, takes it up" in output


# --- what comes of the lines


def test_what_is_here_already_is_no_damage(take):
    assert take("run_aa", ACCEPTED)[0] == 0
    code, output, complaints = take("run_aa", ACCEPTED)
    assert (code, output) == (2, "")
    assert complaints == "holdfast: run run_aa is here already; nothing of it was taken\n"


def test_what_is_new_is_taken_beside_what_is_here(take, command, tmp_path):
    take("run_aa", ACCEPTED)
    lines = packed("run_aa", ACCEPTED) + packed("run_bb", ACCEPTED)
    (tmp_path / "lines").write_bytes(lines)
    assert command("journal", "import", str(tmp_path / "lines"))[:2] == (0, "1 run taken in\n")


def test_what_was_taken_is_said_though_nonsense_follows(holdfast, command):
    lines = packed("run_aa", ACCEPTED) + b"nonsense\n" + packed("run_bb", ACCEPTED)
    done = holdfast("journal", "import", "-", input=lines)
    assert (done.returncode, done.stdout) == (74, b"1 run taken in\n")
    assert b"line 3 is not a line" in done.stderr
    assert command("journal", "verify")[1].startswith("1 run, 1 events")


def test_the_first_ctrl_c_ends_it_and_what_was_taken_stays(at_terminal, command, tmp_path):
    os.mkfifo(tmp_path / "lines")
    screen = at_terminal("journal", "import", str(tmp_path / "lines"))
    with (tmp_path / "lines").open("wb", buffering=0) as lines:
        lines.write(packed("run_aa", ACCEPTED))
        lines.write(b'{"holdfast_journal":1,"run":"run_bb","events":5}\n')
        while "run_aa" not in command("runs", "--json")[1]:
            pass
        assert screen.send(signal.SIGINT).end() == 130
    assert screen.seen.splitlines() == ["1 run taken in"]
    assert command("journal", "verify")[0] == 0


def test_a_line_without_end_is_refused():
    limited = ("-c", 'ulimit -v 900000; exec "$@"', "sh")
    words = [*limited, sys.executable, "-m", "holdfast", "journal", "import", "/dev/zero"]
    done = subprocess.run(["sh", *words], capture_output=True, timeout=30, check=False)
    assert done.returncode == 74
    assert done.stderr.startswith(b"holdfast: a line is longer than any")


def test_what_cannot_be_read_is_not_called_output(holdfast, tmp_path):
    handle = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    try:
        done = holdfast("journal", "import", "-", stdin=handle)
    finally:
        os.close(handle)
    assert done.returncode == 2
    assert done.stderr == b"holdfast: standard input cannot be read: Bad file descriptor\n"
