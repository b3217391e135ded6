import io
import sys

import pytest

from holdfast.cli import desk
from holdfast.cli.desk import Desk


class Tty(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stdin", "stdout", "stderr", "json", "person"),
    [
        (Tty, Tty, Tty, False, True),
        (Tty, io.StringIO, Tty, False, True),
        (Tty, Tty, io.StringIO, False, True),
        (Tty, Tty, io.StringIO, True, False),
        (Tty, io.StringIO, io.StringIO, False, False),
        (io.StringIO, Tty, Tty, False, False),
        (lambda: None, Tty, Tty, False, False),
    ],
)
def test_a_person_is_there_who_can_read_the_question_and_type_an_answer(
    monkeypatch, tmp_path, stdin, stdout, stderr, json, person
):
    output = stdout()
    output.buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", stdin())
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", stderr())
    assert Desk(tmp_path, json=json).person is person


@pytest.mark.parametrize("kind", [Tty, io.StringIO])
def test_leaving_waits_for_nothing_and_says_how_to_come_back(monkeypatch, tmp_path, kind):
    left = []
    monkeypatch.setattr(sys, "stdout", kind())
    monkeypatch.setattr(sys, "stderr", kind())
    monkeypatch.setattr(desk.os, "_exit", left.append)
    monkeypatch.setattr(desk.os, "write", lambda fd, data: left.append(data))
    here = Desk(tmp_path, json=False)
    here._run_id = "run_0123456789abcdef"
    here._leave(130)
    said = b"\nleft; holdfast resume run_01234567 takes it up\n"
    assert left == ([said, 130] if kind is Tty else [130])
