"""Conversations from the command line, in a data directory that nobody else owns."""

import json

import apsw
import pytest


def listed(command, *options):
    _, output, _ = command("sessions", "--json", *options)
    return [json.loads(line) for line in output.splitlines()]


def shown(command, session="ses_aa1", *options):
    return json.loads(command("sessions", "show", session, "--json", *options)[1])


# --- the list


@pytest.mark.parametrize("how", ["idle", "failed"])
def test_a_session_is_listed_with_how_it_is(command, talk, how):
    talk(how)
    code, output, complaints = command("sessions")
    assert (code, complaints) == (0, "")
    head, row = output.splitlines()
    assert head.split() == ["SESSION", "MOVED", "STATUS", "RUNS", "TITLE"]
    assert row.split()[0] == "ses_aa1"
    assert row.split()[3:] == [how, "1", "shade?"]


def test_one_whose_run_nobody_carries_is_interrupted_and_one_that_asks_waits(command, talk):
    talk("cut off", more=["rain?"])
    talk("asking", session="ses_bb1")
    told = {row["session_id"]: row for row in listed(command)}
    assert told["ses_aa1"]["status"] == "interrupted"
    assert (told["ses_aa1"]["queued"], told["ses_aa1"]["runs"]) == (1, 2)
    assert told["ses_bb1"]["status"] == "waiting"
    _, output, _ = command("sessions")
    assert "interrupted, 1 waiting" in output


def test_those_that_are_put_away_or_deleted_are_listed_when_asked_for(command, talk):
    for session in ("ses_aa1", "ses_bb1", "ses_cc1"):
        talk(session=session)
    assert command("sessions", "archive", "aa")[0] == 0
    assert command("sessions", "delete", "bb", "--yes")[0] == 0
    assert command("sessions", "pin", "cc")[0] == 0

    def ids(*options):
        return [row["session_id"] for row in listed(command, *options)]

    assert ids() == ["ses_cc1"]
    assert ids("--all") == ["ses_cc1", "ses_aa1"]
    assert ids("--archived") == ["ses_aa1"]
    assert ids("--deleted") == ["ses_bb1"]
    _, output, _ = command("sessions", "--all")
    assert "[pinned] shade?" in output
    assert "[archived] shade?" in output
    _, output, complaints = command("sessions", "--all", "-n", "1")
    assert len(output.splitlines()) == 3
    _, output, complaints = command("sessions", "--limit", "1", "--deleted")
    assert complaints == ""


def test_what_is_left_out_of_the_list_is_said(command, talk):
    for session in ("ses_aa1", "ses_bb1"):
        talk(session=session)
    _, output, complaints = command("sessions", "-n", "1")
    assert len(output.splitlines()) == 2
    assert complaints == "and older ones; --all lists them\n"


def test_where_there_are_none_it_is_said_how_to_begin_one(command, data):
    code, output, complaints = command("sessions")
    assert (code, output) == (0, "")
    assert 'holdfast run --session new "hello"' in complaints
    assert not data.exists()


@pytest.mark.parametrize("limit", ["0", "-3", "9999999"])
def test_a_limit_that_is_none_is_a_sentence(command, limit):
    code, _, complaints = command("sessions", "-n", limit)
    assert (code, complaints.count("\n")) == (2, 1)


def test_a_damaged_run_hides_nothing(command, talk, data):
    talk("cut off")
    talk(session="ses_bb1")
    connection = apsw.Connection(str(data / "journal.db"))
    connection.execute("update event set body = cast('[]' as blob) where seq = 2 and run = 1")
    connection.close()
    assert {row["status"] for row in listed(command)} == {"idle", "damaged"}


# --- one of them


def test_a_conversation_is_shown_with_what_waits_and_what_is_wrong(command, talk):
    talk()
    run_id = talk("cut off", "sun?", more=["rain?"])
    _, output, _ = command("show", "aa1")
    order = ["shade?", "ses_aa1 · ", "> shade?", "Ferns.", "> sun?", "Sunf", "may still arrive"]
    order += ["> rain?", "waits for its turn", "interrupted · 3 runs", "1 message waits for"]
    order += [f"holdfast resume {run_id[:12]} takes it up"]
    places = [output.index(words) for words in order]
    assert places == sorted(places)
    assert command("sessions", "show", "ses_aa1")[1] == output


def test_the_end_of_a_conversation_is_shown_if_that_is_asked_for(command, talk):
    talk()
    talk(text="sun?")
    _, output, _ = command("show", "ses_aa1", "-n", "2")
    assert "… what came before is left out" in output
    assert "sun?" in output
    told = shown(command, "aa1", "-n", "3")
    assert (len(told["entries"]), told["earlier"]) == (3, True)
    told = shown(command)
    assert (len(told["entries"]), told["earlier"]) == (4, False)
    assert [entry["kind"] for entry in told["entries"]] == ["user", "assistant"] * 2


def test_a_question_is_shown_with_how_to_answer_it(command, talk):
    run_id = talk("asking")
    _, output, _ = command("show", "ses_aa1")
    assert f"Answer: holdfast approve {run_id[:12]} apr_" in output
    assert "waiting · 1 run" in output


def test_what_is_not_there_is_a_sentence(command, talk):
    talk()
    assert command("show", "zz") == (2, "", "holdfast: there is no run or session zz\n")
    for name in ("show", "export", "pin", "unpin", "archive", "unarchive", "delete", "restore"):
        assert command("sessions", name, "zz") == (2, "", "holdfast: there is no session zz\n")
    assert command("sessions", "nonsense")[0] == 2


def test_reading_changes_nothing(command, talk, data):
    talk("cut off")

    def rows():
        connection = apsw.Connection(str(data / "journal.db"))
        tables = ("session", "session_event", "run", "event", "blob", "blob_use")
        kept = [connection.execute(f"select * from {table}").fetchall() for table in tables]
        connection.close()
        return kept

    before = rows()
    for words in (("sessions",), ("show", "aa1"), ("sessions", "export", "aa1"), ("runs",)):
        assert command(*words)[0] == 0
    assert rows() == before


# --- what is made of it


def test_a_session_is_renamed_pinned_and_put_away_and_back(command, talk):
    talk()
    assert command("sessions", "rename", "aa1", "My garden")[1] == (
        "session ses_aa1 is called My garden now\n"
    )
    for name, field, value in (
        ("pin", "pinned", True),
        ("unpin", "pinned", False),
        ("archive", "archived", True),
        ("unarchive", "archived", False),
    ):
        assert command("sessions", name, "aa1")[0] == 0
        (row,) = listed(command, "--all")
        assert (row["title"], row[field]) == ("My garden", value)
    for title in ("", " ", "x" * 300, "a\nb"):
        assert command("sessions", "rename", "aa1", title)[0] == 2


def test_a_session_is_deleted_when_that_is_meant_and_comes_back(command, talk):
    talk("cut off")
    code, _, complaints = command("sessions", "delete", "aa1")
    assert (code, complaints) == (
        2,
        "holdfast: there is nobody to ask whether to delete it; --yes says so\n",
    )
    _, output, _ = command("sessions", "delete", "aa1", "--yes")
    assert "is deleted; holdfast sessions restore ses_aa1 brings it back" in output
    assert "was deleted" in command("show", "ses_aa1")[2]
    assert command("sessions", "restore", "aa1")[1] == "session ses_aa1 is back\n"
    assert command("sessions", "restore", "aa1")[0] == 2
    (row,) = listed(command)
    assert row["status"] == "idle"
    assert "The run was stopped by terminal" in command("show", "aa1")[1]


@pytest.mark.real_time
@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("nonsense\n", 1)])
def test_whoever_is_at_a_terminal_is_asked(talk, at_terminal, command, answer, left):
    talk()
    terminal = at_terminal("sessions", "delete", "aa1")
    terminal.expect("Delete “shade?” with 1 run? [no]").type(answer)
    assert terminal.end() == (0 if left == 0 else 1)
    assert len(listed(command)) == left
