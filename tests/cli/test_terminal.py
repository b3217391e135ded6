import io

import pytest

from holdfast.cli.terminal import Terminal


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def on_paper():
    file = io.StringIO()
    return Terminal(file), file


def on_screen():
    file = Screen()
    return Terminal(file), file


def test_pieces_are_written_as_they_are_however_long():
    terminal, paper = on_paper()
    pieces = ["word " * 40, "[bold]not markup[/]", "\ttab :smile: ", "", "end "]
    for piece in pieces:
        terminal.write(piece)
    assert paper.getvalue() == "".join(pieces)


def test_styles_are_for_screens_only():
    terminal, paper = on_paper()
    terminal.write("quiet", "dim")
    assert paper.getvalue() == "quiet"
    terminal, screen = on_screen()
    terminal.write("quiet", "dim")
    assert screen.getvalue() == "\x1b[2mquiet\x1b[0m"


def test_harmful_characters_do_not_get_through():
    terminal, screen = on_screen()
    terminal.write("\x1b[2J")
    assert screen.getvalue() == "\\x1b[2J"


def test_a_line_starts_where_a_line_starts():
    terminal, paper = on_paper()
    terminal.line("one")
    terminal.write("two")
    assert not terminal.fresh_line
    terminal.line("three")
    terminal.fresh()
    assert terminal.fresh_line
    assert paper.getvalue() == "one\ntwo\nthree\n"


def test_a_gap_is_one_empty_line_whatever_came_before():
    terminal, paper = on_paper()
    terminal.gap()
    terminal.write("one")
    terminal.gap()
    terminal.write("two\n")
    terminal.gap()
    terminal.write("three\n\n\n")
    terminal.gap()
    terminal.write("\n")
    assert paper.getvalue() == "one\n\ntwo\n\nthree\n\n\n\n"


def test_after_enter_the_line_is_fresh():
    terminal, paper = on_paper()
    terminal.write("answer: ")
    terminal.returned()
    terminal.line("thanks")
    assert paper.getvalue() == "answer: thanks\n"


def test_a_waiting_line_stands_alone_and_is_wiped_out():
    terminal, screen = on_screen()
    terminal.wait("waiting · 1 s")
    terminal.wait("waiting · 1 s")
    terminal.wait("waiting · 2 s")
    terminal.write("word")
    assert screen.getvalue() == (
        "\x1b[2mwaiting · 1 s\x1b[0m\r\x1b[2K\x1b[2mwaiting · 2 s\x1b[0m\r\x1b[2Kword"
    )


def test_a_waiting_line_stands_below_an_unfinished_line():
    terminal, screen = on_screen()
    terminal.write("word ")
    terminal.wait("waiting")
    terminal.write("by word")
    assert screen.getvalue() == (
        "word \x1bD\x1b[A\x1b7\x1b[B\r\x1b[2mwaiting\x1b[0m\x1b8\x1b7\x1b[B\r\x1b[2K\x1b8by word"
    )


def test_a_waiting_line_is_one_line():
    terminal, screen = on_screen()
    terminal.wait("a very long line about\nwhat is being waited for")
    shown = screen.getvalue().removeprefix("\x1b[2m").removesuffix("\x1b[0m")
    assert shown == "a very long line about what is being w…"
    assert len(shown) < 40


@pytest.mark.parametrize("terminal", ["paper", "dumb"])
def test_where_no_cursor_can_be_moved_nothing_is_said_of_waiting(monkeypatch, terminal):
    monkeypatch.setenv("TERM", "dumb")
    terminal, file = on_paper() if terminal == "paper" else on_screen()
    terminal.wait("waiting")
    assert file.getvalue() == ""


def test_a_broken_pipe_is_an_error():
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Terminal(Broken()).write("word")
