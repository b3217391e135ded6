import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.tools.gate import LONGEST, SAFE_ENVIRONMENT, Ruling, judge, safe_environment
from tests.tools.corpus import (
    ASKED,
    BEYOND_A_JAIL,
    EVERYDAY,
    READING,
    REFUSED,
    furnish,
    git,
    lure,
)

PID = 4242


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    return Path(os.path.realpath(tmp_path_factory.mktemp("gate")))


@pytest.fixture(scope="module")
def workspace(beside):
    workspace = beside / "workspace"
    workspace.mkdir()
    furnish(workspace, beside)
    lure(workspace)
    return workspace


@pytest.fixture
def ruled(workspace, beside):
    def ruled(command, *, jailed=False, directory=None, **more):
        return judge(
            command.replace("@OURS@", str(beside / "ours")),
            jailed=jailed,
            workspace=workspace,
            directory=directory or workspace,
            ours=[beside / "ours"],
            pid=PID,
            **more,
        )

    return ruled


def test_the_corpus_is_as_large_as_it_is_meant_to_be():
    assert len({*REFUSED, *ASKED}) >= 300
    assert len(READING) >= 30 and len(EVERYDAY) >= 50


@pytest.mark.parametrize("jailed", [False, True], ids=["free", "jailed"])
def test_what_nobody_can_want_is_refused_jail_or_not(ruled, jailed):
    for command in REFUSED:
        ruling = ruled(command, jailed=jailed)
        assert ruling.gate == "refuse", (command, ruling)
        assert ruling.reason.startswith("it ") and not ruling.words


def test_without_a_jail_nothing_doubtful_runs_unasked(ruled):
    for command in ASKED:
        ruling = ruled(command)
        assert ruling.gate == "ask", (command, ruling)
        assert ruling.reason.startswith("it ")


def test_of_what_only_reads_hardly_anything_is_asked_about(ruled):
    asked = {command: ruling for command in READING if (ruling := ruled(command)).gate != "auto"}
    assert set(asked) == {"ls *.md", 'grep -rin "to\\|do" src --include=*.py'}, asked


def test_in_a_jail_everyday_work_runs_unasked(ruled):
    for command in EVERYDAY:
        found = ruled(command, jailed=True)
        assert (found.gate, found.reason) == ("auto", ""), command


def test_even_in_a_jail_some_things_are_asked_about(ruled):
    for command in BEYOND_A_JAIL:
        ruling = ruled(command, jailed=True)
        assert ruling.gate == "ask", (command, ruling)
        assert ruling.reason.startswith("it ")
        assert ruled(command).gate != "auto"


# --- reasons and standing answers ------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls > out.txt", "it writes to a file (> out.txt)"),
        ("A=1 ls", "it sets a variable (A=1)"),
        ("ls *.py", "it cannot be read with certainty: *.py"),
        (
            "ls $(id)",
            "it cannot be read with certainty: there is a command in place of a word in it",
        ),
        ("ls 'x", "it cannot be read with certainty: the shell's grammar does not fit it"),
        ("python3 x.py", "it runs python3, which is not on the list of programs that only read"),
        ("cat ../x", "it reads ../x, which is outside the workspace"),
        ("cat .env", "it reads .env, which looks like a secret"),
        ("", "it says nothing to run"),
    ],
)
def test_a_reason_names_the_cause(ruled, command, reason):
    assert ruled(command).reason == reason


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("touch x", ("touch", "x")),
        ("git push origin main", ("git", "push", "origin", "main")),
        ("mv 'a b' c", ("mv", "a b", "c")),
        ("find . -delete -name x", ("find", ".", "-delete", "-name", "x")),
    ],
)
def test_a_standing_yes_may_cover_one_command_of_literal_words(ruled, command, words):
    assert ruled(command).words == words


def test_no_standing_yes_is_possible_for_what_may_run_anything(ruled):
    for command in ("python3 x.py", "pwsh x", "npm test", "git bisect run ./x", "touch x; touch y"):
        for jailed in (False, True):
            assert ruled(command, jailed=jailed).words == (), command


def test_a_standing_yes_may_be_given_to_what_is_asked_about_in_a_jail(ruled):
    assert ruled("git push origin main", jailed=True).words == ("git", "push", "origin", "main")


# --- places ----------------------------------------------------------------------------


def test_a_path_counts_from_where_the_command_runs(ruled, workspace):
    assert ruled("cat ../README.md", directory=workspace / "src").gate == "auto"
    assert ruled("cat ../README.md").gate == "ask"
    assert ruled(f"cat {workspace}/README.md").gate == "auto"


def test_a_workspace_that_is_reached_by_a_link_is_the_same_workspace(workspace, beside):
    (beside / "alias").symlink_to(workspace)
    ruling = judge(
        "cat README.md", jailed=False, workspace=beside / "alias", directory=beside / "alias"
    )
    assert ruling.gate == "auto"


def test_ours_in_a_home_directory_is_known_by_its_end(workspace, beside):
    for command in ("cat ~/workspace/src/key", "cat $HOME/src/key", 'cat "${HOME}/src"'):
        ours = [workspace / "src"]
        ruling = judge(command, jailed=True, workspace=workspace, directory=workspace, ours=ours)
        assert ruling.gate == "refuse", command
    for command in ("cat ~/notes", "cat ~", "cat ~/sr"):
        ours = [workspace / "src"]
        ruling = judge(command, jailed=True, workspace=workspace, directory=workspace, ours=ours)
        assert ruling.gate == "auto", command


def test_reading_through_a_tree_with_ours_in_it_is_asked_about(workspace):
    ours = [workspace / "src"]
    ruling = judge("grep -r x .", jailed=False, workspace=workspace, directory=workspace, ours=ours)
    assert ruling.gate == "ask" and "ours" in ruling.reason


def test_outside_the_workspace_nothing_runs_unasked(workspace, beside):
    ruling = judge("ls", jailed=False, workspace=workspace, directory=beside)
    assert ruling == Ruling("ask", "it would run outside the workspace", ("ls",))


def test_without_our_pid_only_names_are_known(workspace):
    ruling = judge("kill 0", jailed=True, workspace=workspace, directory=workspace)
    assert ruling.gate == "auto"


def test_a_list_of_signals_ends_nobody(ruled):
    assert ruled("kill -l holdfast", jailed=True).gate == "auto"


# --- hostile texts ---------------------------------------------------------------------


def test_without_a_jail_many_commands_in_one_are_asked_about(ruled):
    assert ruled("ls;" * 200).gate == "auto"
    ruling = ruled("ls;" * 201)
    assert ruling.gate == "ask" and "200 commands" in ruling.reason
    for jailed in (False, True):
        assert ruled("ls;" * 201 + "rm -rf /", jailed=jailed).gate == "refuse"


def test_what_is_too_much_to_look_at_is_asked_about(ruled):
    for jailed in (False, True):
        names = " ".join(map(str, range(2000)))
        ruling = ruled(f"cd src; cd build; cat {names}", jailed=jailed)
        assert ruling == Ruling("ask", "it names more files than can be looked at")
        ruling = ruled("a b" * 10_000, jailed=jailed)
        assert ruling == Ruling("ask", "it is too much to look through")
        # What is ours is found in any text.
        assert ruled("@OURS@ " + "a b" * 10_000, jailed=jailed).gate == "refuse"


def test_a_document_is_not_taken_for_commands_nor_for_harmless(ruled):
    text = "cat <<'E'\nreboot\nE"
    assert ruled(text, jailed=True).gate == "auto"
    assert ruled(text).gate == "ask"
    assert ruled(f"{text}\nreboot", jailed=True).gate == "refuse"
    assert ruled("cat <<E\n$(reboot)\nE", jailed=True).gate == "refuse"


def test_commands_within_commands_are_followed_so_far_and_no_further(ruled):
    assert ruled("env " * 4 + "rm -rf /", jailed=True).gate == "refuse"
    ruling = ruled("env " * 8 + "true", jailed=True)
    assert ruling.gate == "ask" and "deeper" in ruling.reason


PIECES = (
    *("(", "$(", "`", '"', "${a", "a;", "a|", "<<E\n", "a=(", "a\n", "$'", "\\", "sh -c ", "env "),
    *("cd a;", "rm ", "find ", "$IFS", ":(){", "find -exec ", "a ", "eval ", "<<'E'\nE\n", "'a'"),
    *("rm -r many;", "cat many/deep/1;", "grep -r x .;", "git log;", "sh -c 'a|a|a';"),
)


@pytest.mark.real_time
@pytest.mark.parametrize("jailed", [False, True], ids=["free", "jailed"])
def test_the_longest_text_is_judged_in_bounded_time(ruled, jailed):
    """It is judged in the event loop: everybody waits meanwhile."""
    # The first ones are as much as the parser is given to do.
    numbers = " ".join(map(str, range(11_000)))
    costly = (
        *("a|" * 700, "${a" * 600, "a=(" * 180, "<<E\n" * 33 + "x" * 30_000, "a " * 3900),
        *("rm -rf " + "many " * 1000, "find " + "many " * 1000 + "-name x -delete"),
        *(f"cd a;cd b;cd c;cd d;rm {numbers}", f"cd a;cd b;cd c;cd d;rm -r {numbers}"),
        *("cat README.md;" * 190, "git log;" * 190, "grep -r x .;" * 190),
        "".join(f"cat {' '.join(f'{a}/{b}' for b in range(50))};" for a in range(190)),
    )
    ruled("ls")
    for text in (*((piece * LONGEST)[:LONGEST] for piece in PIECES), *costly):
        # A tenth of this where nobody traces it; and one attempt of several, for machines are busy.
        assert any(spent(ruled, text, jailed) < 0.5 for _ in range(5)), text[:20]


def spent(ruled, text, jailed):
    """Seconds of this thread: the machine has other things to do."""
    began = time.thread_time()
    ruled(text, jailed=jailed)
    return time.thread_time() - began


def test_an_environment_for_git_is_complete():
    count = int(SAFE_ENVIRONMENT["GIT_CONFIG_COUNT"])
    for number in range(count):
        assert SAFE_ENVIRONMENT[f"GIT_CONFIG_KEY_{number}"]
        assert SAFE_ENVIRONMENT[f"GIT_CONFIG_VALUE_{number}"]
    assert f"GIT_CONFIG_KEY_{count}" not in SAFE_ENVIRONMENT


OBEDIENT = {"PATH": SAFE_ENVIRONMENT["PATH"], "HOME": "/nonexistent"}


@pytest.fixture
def repository(tmp_path):
    """A repository in a folder beside a program, which leaves a file if anybody runs it."""
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/obeyed\n")
    (tmp_path / "evil").chmod(0o755)
    for folder in (tmp_path / "work", tmp_path / "work/sub"):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "file").write_text("one\n")
        git(folder, "add", "file")
        git(folder, "commit", "-q", "-m", "one")
    return tmp_path / "work"


def evil(repository):
    return str(repository.parent / "evil")


def watcher(repository):
    git(repository, "config", "core.fsmonitor", evil(repository))
    return ("status",)


def hook(repository):
    (repository / ".git/hooks/pre-commit").symlink_to(evil(repository))
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return (*who, "commit", "-q", "--allow-empty", "-m", "two")


def signature(repository):
    git(repository, "config", "gpg.program", evil(repository))
    signed = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n"
    signed += "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\none\n"
    words = ("git", "hash-object", "-t", "commit", "-w", "--stdin")
    made = subprocess.run(
        words, cwd=repository, input=signed, capture_output=True, text=True, check=True
    )
    return ("log", "-1", "--show-signature", made.stdout.strip())


def part(repository):
    git(repository, "add", "sub")
    git(repository / "sub", "config", "filter.evil.clean", evil(repository))
    (repository / "sub/.git/info/attributes").write_text("* filter=evil\n")
    (repository / "sub/file").write_text("two\n")
    return ("status",)


@pytest.mark.parametrize("planted", [watcher, hook, signature, part])
def test_git_obeys_nobody_in_the_environment_of_what_runs_unasked(repository, planted):
    """Should a repository pass that names a program all the same."""
    words, obeyed = ("git", *planted(repository)), repository.parent / "obeyed"
    safe = safe_environment(repository)
    subprocess.run(words, cwd=repository, env=safe, capture_output=True, check=False)
    assert not obeyed.exists()
    subprocess.run(words, cwd=repository, env=OBEDIENT, capture_output=True, check=False)
    assert obeyed.exists()


@pytest.mark.parametrize("words", [("ls-remote", "."), ("-C", ".git", "rev-parse", "HEAD")])
def test_git_goes_to_no_other_repository_in_that_environment(repository, words):
    git(repository, "config", "core.bare", "true")
    for environment, refused in ((safe_environment(repository), True), (OBEDIENT, False)):
        done = subprocess.run(
            ("git", *words), cwd=repository, env=environment, capture_output=True, check=False
        )
        assert (done.returncode != 0) == refused, done.stderr


def test_git_reads_no_settings_of_this_machine_in_that_environment(repository, tmp_path):
    (tmp_path / "settings").write_text("[alias]\nls = !evil\n")
    system = {"GIT_CONFIG_SYSTEM": str(tmp_path / "settings")}
    for environment, there in ((safe_environment(repository), False), (OBEDIENT, True)):
        words = ("git", "config", "alias.ls")
        done = subprocess.run(
            words, cwd=repository, env={**environment, **system}, capture_output=True, check=False
        )
        assert (done.stdout == b"!evil\n") == there


@pytest.mark.parametrize("word", ["status", "diff"])
def test_git_writes_nothing_in_that_environment(repository, word):
    os.utime(repository / "file", (1, 1))
    index = repository / ".git/index"
    before = index.read_bytes()
    for environment, same in ((safe_environment(repository), True), (OBEDIENT, False)):
        subprocess.run(
            ("git", word), cwd=repository, env=environment, capture_output=True, check=True
        )
        assert (index.read_bytes() == before) == same


def test_nothing_heavy_is_loaded_before_it_is_needed():
    program = "import sys, holdfast.tools.gate; sys.exit('tree_sitter' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
