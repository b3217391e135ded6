import io
import os
import subprocess
import sys
from importlib import import_module

import pytest

import holdfast
from holdfast.cli import _COMMANDS, main
from holdfast.errors import (
    ConfigError,
    DataInUse,
    HoldfastError,
    JournalDamaged,
    NotFound,
    StoreUnavailable,
)


def exit_code(*tokens):
    with pytest.raises(SystemExit) as exit:
        main(tokens)
    return exit.value.code


def test_help_lists_the_commands_and_teaches_with_an_example(capsys):
    assert exit_code("--help") == 0
    said = capsys.readouterr().out
    assert "Run an agent on a prompt" in said
    assert 'holdfast run "hello"' in said


def test_nothing_at_all_is_a_request_for_help(capsys):
    assert exit_code() == 0
    assert 'holdfast run "hello"' in capsys.readouterr().out


def test_no_example_is_too_wide_for_a_terminal_which_would_break_it_in_two():
    for name in _COMMANDS:
        epilogue = import_module(f"holdfast.cli.{name}").command.help_epilogue or ""
        assert [line for line in epilogue.splitlines() if len(line) > 80] == []


def test_a_command_s_help_has_an_example_and_the_exit_codes(capsys):
    assert exit_code("run", "--help") == 0
    said = capsys.readouterr().out
    assert "holdfast run - < question.txt" in said
    for line in ("0    completed", "1    the run failed", "130  stopped", "143  terminated"):
        assert line in said


def test_what_is_loaded_is_not_searched_for_garbage_over_and_over():
    """That is a tenth of the time that a server takes to start."""
    code = (
        "import atexit, gc; from holdfast.cli import main\n"
        "count = lambda: sum(each['collections'] for each in gc.get_stats())\n"
        "before = count(); atexit.register(lambda: print(count() - before))\n"
        "main(['runs', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout.split()[-1]) < 10


def test_the_version_is_said(capsys):
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["run", "hi", "--colour"], "Unknown option: --colour"),
        (["walk"], 'Unknown command "walk"'),
        (["run", "hello", "you", "there"], "too many words: 'you there'; put a prompt in quotes"),
        (["run", "hi", "--approval", "maybe"], 'Invalid value "maybe" for --approval'),
        (["run", "hi", "--\x1b[31m"], "Unknown option: --\\x1b[31m"),
        (["run", "--", "-", "you"], "too many words: 'you'"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(capsys, tokens, sentence):
    assert exit_code(*tokens) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"holdfast: {sentence}")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_trouble_of_ours_is_one_sentence_too(capsys, monkeypatch):
    def trouble(*arguments, **options):
        raise StoreUnavailable("the store is out")

    monkeypatch.setattr("holdfast.cli.run._read", trouble)
    assert exit_code("run", "hi") == 74
    assert capsys.readouterr().err == "holdfast: the store is out\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("run", "run_1"), 2),
        (JournalDamaged("run_1", 1, "it is missing"), 65),
        (StoreUnavailable("out"), 74),
        (DataInUse("/data", 7), 75),
        (ConfigError("no"), 78),
        (HoldfastError("oh"), 1),
    ],
)
def test_the_exit_code_says_who_must_act(capsys, monkeypatch, error, code):
    def trouble(*arguments, **options):
        raise error

    monkeypatch.setattr("holdfast.cli.run._read", trouble)
    assert exit_code("run", "hi") == code
    assert capsys.readouterr().err == f"holdfast: {error}\n"


def test_every_command_is_listed_in_the_order_of_its_use(capsys):
    assert exit_code("--help") == 0
    said = capsys.readouterr().out
    places = [said.index(f"│ {name} ") for name in _COMMANDS]
    assert places == sorted(places)
    for line in _COMMANDS.values():
        assert line in said


def test_ctrl_c_before_there_is_a_run_is_no_traceback(capsys, monkeypatch):
    class Interrupted(io.StringIO):
        @property
        def buffer(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert exit_code("run", "-") == 130
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_things_are_loaded_is_no_traceback(monkeypatch):
    def interrupted(tokens):
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.cli._run", interrupted)
    assert exit_code() == 130


def test_ctrl_c_where_nothing_can_be_raised_is_not_lost():
    """As in what the interpreter calls when a lock of a module that was loaded goes away."""
    program = """if True:
        from holdfast import cli

        class Loaded:
            def __del__(self):
                raise KeyboardInterrupt

        def run(tokens):
            Loaded()
            return 0

        cli._run = run
        cli.main()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_reader_that_went_away_hears_nothing_more(monkeypatch, tmp_path):
    def broken(tokens):
        raise BrokenPipeError

    monkeypatch.setattr("holdfast.cli._run", broken)
    with (tmp_path / "pipe").open("w+") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert exit_code() == 141
        pipe.write("last words")
    assert (tmp_path / "pipe").read_text() == ""


def test_streams_that_are_closed_lead_nowhere(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_code("--version") == 0
    sys.stdout.close()


def test_python_m_holdfast_is_holdfast(holdfast):
    done = holdfast("--version")
    assert done.stdout.startswith(b"holdfast ")
    assert done.returncode == 0


#: With output that is kept back until there is more of it, as it is for people.
KEPT_BACK = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # noqa: TID251


@pytest.mark.parametrize("words", [("runs", "--json"), ("journal", "verify"), ("--version",)])
def test_output_that_cannot_be_written_is_74(keep, data, words):
    keep()
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env=KEPT_BACK | {"HOLDFAST_DATA": str(data)},
            check=False,
        )
    assert done.returncode == 74
    assert done.stderr == b"holdfast: the output cannot be written: No space left on device\n"


def test_a_reader_that_went_away_is_141_though_output_was_kept_back(keep, data):
    keep()
    theirs, ours = os.pipe()
    os.close(theirs)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "runs", "--json"],
        stdout=ours,
        stderr=subprocess.PIPE,
        env=KEPT_BACK | {"HOLDFAST_DATA": str(data)},
        check=False,
    )
    os.close(ours)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "code"), [(("run", "hi", "--pace", "0"), 74), (("show", "nobody"), 2)]
)
def test_a_complaint_that_nobody_can_read_changes_nothing(words, code):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=full,
            check=False,
        )
    assert done.returncode == code


def test_trouble_with_a_file_names_the_file(capsys, monkeypatch):
    def trouble(*arguments, **options):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("holdfast.cli.run._read", trouble)
    assert exit_code("run", "hi") == 74
    assert capsys.readouterr().err == "holdfast: /some/file cannot be used: Permission denied\n"
