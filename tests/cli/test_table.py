import io

import pytest
from rich.cells import cell_len

from holdfast.cli.table import show_table
from holdfast.cli.terminal import Terminal

HEAD = ("ID", "WHEN", "ASKED")
ROWS = [("run_1", "today", "a rather long question"), ("run_22", "yesterday", "short")]


class Page(io.StringIO):
    def isatty(self):
        return True


def shown(width=None, rows=ROWS, spare=(), monkeypatch=None):
    page = Page() if width else io.StringIO()
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "dumb")
    show_table(Terminal(page), HEAD, rows, spare=spare)
    return page.getvalue().splitlines()


def test_what_a_program_reads_is_not_cut():
    assert shown() == [
        "ID      WHEN       ASKED",
        "run_1   today      a rather long question",
        "run_22  yesterday  short",
    ]


def test_the_last_column_is_cut_to_fit(monkeypatch):
    assert shown(32, monkeypatch=monkeypatch)[1] == "run_1   today      a rather lo…"


def test_a_column_that_can_be_spared_goes_before_the_last_gets_too_narrow(monkeypatch):
    lines = shown(24, spare=["WHEN"], monkeypatch=monkeypatch)
    assert lines == ["ID      ASKED", "run_1   a rather long…", "run_22  short"]


@pytest.mark.parametrize("width", [3, 8, 12, 20])
def test_a_very_narrow_terminal_is_no_trouble(monkeypatch, width):
    lines = shown(width, spare=["WHEN", "ASKED"], monkeypatch=monkeypatch)
    assert lines[0].startswith("ID"[: width - 1])


def test_wide_and_harmful_characters_keep_their_place(monkeypatch):
    lines = shown(30, rows=[("日本", "x\x1b[2J", "語" * 20)], monkeypatch=monkeypatch)
    assert "\\x1b[2J" in lines[1]
    assert all(cell_len(line) < 30 for line in lines)
