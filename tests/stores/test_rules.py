"""Rules in real files, written by several at once."""

import fcntl
import logging
import os
import resource
import subprocess
import sys
from time import perf_counter

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text, ToolCall
from holdfast.core.state import Grant
from holdfast.errors import InvalidRequest, NotFound, StoreError, StoreUnavailable
from holdfast.ports import Rulebook
from holdfast.stores.rules import FILE, RuleFile

ACCEPTED = RunAccepted(input=(Text("hi"),), models=(ModelChoice("m"),), workspace="/w")
PUSH = ToolCall(id="c1", tool="terminal", subject="git push", key='jail ["git","push"]')
NOW = 1_800_000_000.5


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


@pytest.fixture
def book(folder):
    return RuleFile(folder, now=lambda: NOW)


async def allow(book, call=PUSH, scope="always", *, run="run_1", accepted=ACCEPTED, by="local"):
    await book.grant(run, accepted, call, scope, by=by)


def call(number):
    return replace(PUSH, key=f"k{number}")


def test_it_is_a_rulebook(book):
    found: Rulebook = book
    assert found.standing("run_1", ACCEPTED) == ()


async def test_always_covers_the_workspace(book):
    await allow(book)
    (rule,) = book.rules()
    assert book.standing("run_2", ACCEPTED) == (Grant("terminal", PUSH.key, "always", rule.id),)
    assert book.standing("run_1", replace(ACCEPTED, workspace="/w/below")) == ()
    assert book.standing("run_1", replace(ACCEPTED, workspace="")) == ()


async def test_session_covers_the_session(book):
    talk = replace(ACCEPTED, session_id="s1")
    await allow(book, scope="session", accepted=talk)
    await allow(book, replace(PUSH, key="k"))
    of_talk, always = book.rules()
    assert (of_talk.session, always.session) == ("s1", "")
    assert [each.rule for each in book.standing("run_9", talk)] == [always.id, of_talk.id]
    assert [each.scope for each in book.standing("run_9", talk)] == ["always", "session"]
    assert [each.rule for each in book.standing("run_1", ACCEPTED)] == [always.id]
    assert book.standing("run_9", replace(talk, workspace="/elsewhere")) == ()


async def test_of_a_run_without_a_session_no_dead_rule_stays(book):
    await allow(book, scope="session")
    assert book.rules() == () and not book.path.exists()
    await allow(book, scope="session", accepted=replace(ACCEPTED, session_id="run_1"))
    assert book.standing("run_1", ACCEPTED) == ()


async def test_a_rule_tells_what_was_shown_to_whom_and_when(book):
    await allow(book, by="ann")
    (rule,) = book.rules()
    assert (rule.subject, rule.by, rule.workspace) == ("git push", "ann", "/w")
    assert rule.granted.isoformat() == "2027-01-15T08:00:00+00:00"
    assert len(rule.id) == 13 and rule.id.startswith("rule_")


async def test_a_subject_is_kept_up_to_a_length(book):
    await allow(book, replace(PUSH, subject="x" * 2000))
    await allow(book, replace(PUSH, subject="y" * 2001, key="k"))
    whole, shortened = book.rules()
    assert whole.subject == "x" * 2000
    assert shortened.subject == "y" * 1999 + "…"


@pytest.mark.parametrize(
    ("call", "scope"),
    [
        (replace(PUSH, key=""), "always"),
        (replace(PUSH, key=""), "session"),
        (PUSH, "once"),
        (PUSH, "deny"),
    ],
)
async def test_what_cannot_stand_is_not_kept(book, call, scope):
    await allow(book, call, scope)
    assert not book.path.exists()


async def test_the_same_rule_is_kept_once(book):
    for scope in ("always", "session", "always", "session"):
        talk = replace(ACCEPTED, session_id="s1")
        await allow(book, replace(PUSH, subject=scope), scope, accepted=talk)
    assert [rule.session for rule in book.rules()] == ["", "s1"]


async def test_the_file_is_for_its_owner_alone(book, folder):
    await allow(book)
    assert {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()} == {
        FILE: 0o600,
        "rules.lock": 0o600,
    }


async def test_another_sees_it_at_once(book, folder):
    other = RuleFile(folder)
    assert other.standing("run_1", ACCEPTED) == ()
    await allow(book)
    assert len(other.standing("run_1", ACCEPTED)) == 1
    other.revoke(book.rules()[0].id)
    assert book.standing("run_1", ACCEPTED) == ()


async def test_a_person_s_edit_is_seen_at_once(book):
    await allow(book)
    assert len(book.standing("run_1", ACCEPTED)) == 1
    book.path.write_text(book.path.read_text().replace('"/w"', '"/v"'))
    assert book.standing("run_1", ACCEPTED) == ()
    book.path.unlink()
    assert book.rules() == ()


async def test_what_is_unchanged_is_not_read_again(book):
    for number in range(20):
        await allow(book, call(number))
    assert len(book.standing("run_1", ACCEPTED)) == 20
    best = min(timed(book) for _ in range(20))
    assert best < 50e-6, f"{best * 1e6:.1f} µs"


def timed(book, times=50):
    begun = perf_counter()
    for _ in range(times):
        book.standing("run_1", ACCEPTED)
    return (perf_counter() - begun) / times


# --- several at once


@pytest.mark.real_time
async def test_rules_granted_at_once_are_all_kept(book, folder):
    other = RuleFile(folder)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(allow, (book, other)[number % 2], call(number))
    assert {rule.key for rule in book.rules()} == {f"k{number}" for number in range(20)}


WRITER = """
import sys, anyio
from pathlib import Path
from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text, ToolCall
from holdfast.stores.rules import RuleFile
accepted = RunAccepted(input=(Text("hi"),), models=(ModelChoice("m"),), workspace="/w")
async def main(folder, name):
    book = RuleFile(Path(folder))
    for number in range(10):
        call = ToolCall(id="c", tool="terminal", key=f"{name}{number}")
        await book.grant("run_1", accepted, call, "always", by="")
        if number % 2:
            book.revoke(next(rule.id for rule in book.rules() if rule.key == call.key))
anyio.run(main, *sys.argv[1:])
"""


def start(folder, name):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), name])


@pytest.mark.real_time
async def test_processes_that_write_at_once_lose_nothing(book, folder):
    writers = [start(folder, name) for name in ("a", "b")]
    for number in range(5):
        await allow(book, call(number))
    for writer in writers:
        assert await anyio.to_thread.run_sync(writer.wait) == 0
    kept = {f"k{number}" for number in range(5)}
    kept |= {f"{name}{number}" for name in ("a", "b") for number in range(0, 10, 2)}
    assert {rule.key for rule in book.rules()} == kept


async def test_whoever_holds_the_lock_for_ever_is_not_waited_for_that_long(book, folder):
    with (folder / "rules.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match=r"rules.toml is being written by another"):
            await allow(book)
    await allow(book)
    assert len(book.rules()) == 1


async def test_what_a_dead_writer_left_is_no_hindrance(book, folder):
    (folder / "rules.toml.new").write_text("half a fi")
    await allow(book)
    assert len(book.rules()) == 1
    assert not (folder / "rules.toml.new").exists()


# --- what is not to be trusted


async def spoiled_by_syntax(path):
    path.write_text(path.read_text() + "\n[[rule]\n")


async def spoiled_by_mode(path):
    path.chmod(0o620)


async def spoiled_by_a_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


async def spoiled_by_a_folder(path):
    path.unlink()
    path.mkdir()


async def spoiled_by_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


async def spoiled_by_size(path):
    path.write_text(path.read_text() + "#" * 1_000_000)


async def spoiled_by_bytes(path):
    path.write_bytes(b"# \xe9\n" + path.read_bytes())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (spoiled_by_syntax, r"rules.toml cannot be read: .* \(at line 22, column"),
        (spoiled_by_mode, "others may write to it; look through it, then close it with: chmod 600"),
        (spoiled_by_a_link, "it is a link"),
        (spoiled_by_a_folder, "it is no file"),
        (spoiled_by_a_pipe, "it is no file"),
        (spoiled_by_size, "more than 1,000,000 bytes"),
        (spoiled_by_bytes, "line 1: this is not text in UTF-8"),
    ],
)
async def test_a_file_that_is_not_to_be_trusted_allows_nothing(book, caplog, spoil, why):
    await allow(book)
    (rule,) = book.rules()
    await spoil(book.path)
    before = book.path.read_bytes() if book.path.is_file() else None
    for _ in range(3):
        assert book.standing("run_1", ACCEPTED) == ()
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert warning.getMessage().endswith("; no rule in it stands")
    assert [warning.getMessage()] == list(book.problems())
    with pytest.raises(StoreError, match=why):
        await allow(book, call(2))
    with pytest.raises(StoreError, match=why):
        book.revoke(rule.id)
    assert (book.path.read_bytes() if book.path.is_file() else None) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_of_another_user_allows_nothing(book):
    await allow(book)
    assert book.standing("run_1", ACCEPTED)
    os.chown(book.path, 12345, -1)
    assert book.standing("run_1", ACCEPTED) == ()
    assert "it belongs to another user, whose number is 12345" in book.problems()[0]


async def test_a_change_of_mode_alone_is_noticed_both_ways(book):
    await allow(book)
    assert book.standing("run_1", ACCEPTED)
    book.path.chmod(0o602)
    assert book.standing("run_1", ACCEPTED) == ()
    book.path.chmod(0o644)
    assert book.standing("run_1", ACCEPTED)


async def test_a_bad_rule_hides_no_other_and_is_told_once_a_change(book, caplog):
    await allow(book)
    good = book.path.read_text()
    book.path.write_text(f"{good}\n[[rule]]\nid = 'rule_x'\n")
    for _ in range(3):
        assert len(book.standing("run_1", ACCEPTED)) == 1
    assert len(caplog.records) == 1
    with pytest.raises(StoreError, match=r"no rule was added: .*rules.toml, line 22: "):
        await allow(book, call(2))
    book.path.write_text(f"{good}\n\n[[rule]]\nid = 'rule_x'\n")
    book.standing("run_1", ACCEPTED)
    assert len(caplog.records) == 2
    book.path.write_text(good)
    await allow(book, call(2))
    assert len(book.standing("run_1", ACCEPTED)) == 2
    assert len(caplog.records) == 2


async def test_what_is_asked_for_first_by_somebody_else_is_still_told(book, caplog):
    book.path.write_text("oh dear")
    assert len(book.problems()) == 1
    assert caplog.records == []
    book.standing("run_1", ACCEPTED)
    assert len(caplog.records) == 1


def test_a_place_that_cannot_be_looked_at_allows_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    book = RuleFile(tmp_path / "file")
    assert book.standing("run_1", ACCEPTED) == ()
    assert "Not a directory" in book.problems()[0]


# --- bounds and trouble


async def test_there_are_at_most_so_many_rules(book):
    await allow(book, call(0))
    first = book.path.read_text()
    id, table = book.rules()[0].id, first[first.index("\n[[rule]]") :]
    more = (table.replace(id, f"rule_{n}").replace("k0", f"k{n}") for n in range(1, 1000))
    book.path.write_text(first + "".join(more))
    with pytest.raises(StoreError, match="holds 1000 rules, and no more are kept"):
        await allow(book, call(1000))
    await allow(book, call(999))
    assert len(book.standing("run_1", ACCEPTED)) == 1000


async def test_the_file_does_not_grow_past_its_bound(book):
    await allow(book, call(1))
    text = book.path.read_text()
    book.path.write_text(text + "#" * (999_900 - len(text)))
    with pytest.raises(StoreError, match="would grow past 1,000,000 bytes"):
        await allow(book, call(2))
    assert len(book.standing("run_1", ACCEPTED)) == 1


async def test_what_cannot_be_stored_is_refused_or_spelled_out(book):
    with pytest.raises(StoreError, match="half a character"):
        await allow(book, replace(PUSH, key="\ud83d"))
    await allow(book, replace(PUSH, subject="\ud83d"), by="\udcff")
    (rule,) = book.rules()
    assert (rule.subject, rule.by) == ("\\ud83d", "\\udcff")


async def test_a_folder_that_is_not_there_keeps_nothing(tmp_path):
    book = RuleFile(tmp_path / "nowhere")
    assert book.standing("run_1", ACCEPTED) == ()
    with pytest.raises(StoreError, match=r"rules.lock cannot be used: No such file"):
        await allow(book)
    with pytest.raises(NotFound, match="there is no rule rule_1"):
        book.revoke("rule_1")


async def test_a_lock_that_is_a_link_is_refused(book, folder, tmp_path):
    (folder / "rules.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"rules.lock cannot be used"):
        await allow(book)
    assert not (tmp_path / "elsewhere").exists()


async def test_what_cannot_be_written_whole_loses_nothing(book):
    await allow(book)
    before = book.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(StoreError, match=r"rules.toml cannot be written: File too large"):
            await allow(book, call(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert book.path.read_bytes() == before
    assert not book.path.with_name("rules.toml.new").exists()


async def test_a_draft_that_cannot_be_replaced_is_trouble_told(book, folder):
    (folder / "rules.toml.new").mkdir()
    with pytest.raises(StoreError, match=r"rules.toml cannot be written"):
        await allow(book)


# --- revoking


async def test_a_revoked_rule_is_gone_and_the_rest_is_as_it_was(book):
    await allow(book, call(1))
    before = book.path.read_bytes()
    await allow(book, call(2))
    rule = book.rules()[1]
    assert book.revoke(rule.id) == rule
    assert book.path.read_bytes() == before
    with pytest.raises(NotFound):
        book.revoke(rule.id)


async def test_the_beginning_of_an_id_is_enough_if_it_says_which(book):
    await allow(book)
    table = book.path.read_text()
    id = book.rules()[0].id
    one, two, three = (table.replace(id, f"rule_{name}") for name in ("a1c", "a1d", "a1cd"))
    book.path.write_text("".join(text[text.index("\n[[rule]]") :] for text in (one, two, three)))
    with pytest.raises(
        InvalidRequest, match="3 rules begin with a1: rule_a1c, rule_a1d, rule_a1cd"
    ):
        book.revoke("a1")
    for word in ("", "rule_", "x"):
        with pytest.raises(NotFound):
            book.revoke(word)
    assert book.revoke("a1c").id == "rule_a1c"
    assert book.revoke("rule_a1c").id == "rule_a1cd"
    assert book.revoke("a").id == "rule_a1d"


async def test_many_that_begin_alike_are_not_all_named(book):
    await allow(book)
    table = book.path.read_text()
    id = book.rules()[0].id
    tables = [table[table.index("\n[[rule]]") :].replace(id, f"rule_a{n}") for n in range(6)]
    book.path.write_text("".join(tables))
    with pytest.raises(
        InvalidRequest, match=r"6 rules begin with a: .*rule_a4, …; type more of it"
    ):
        book.find("a")


async def test_what_was_allowed_in_a_session_that_is_gone_is_forgotten(book):
    gone, other = (replace(ACCEPTED, session_id=id) for id in ("s1", "s2"))
    for number, talk in enumerate((gone, gone, other)):
        await allow(book, call(number), "session", accepted=talk)
    await allow(book, call(9))
    await book.forget("s1")
    assert [rule.session for rule in book.rules()] == ["s2", ""]
    await book.forget("s3")
    assert len(book.rules()) == 2
