import json

import apsw
import pytest

from holdfast.app import open_app


def test_before_there_is_a_run_one_is_shown_how_to_start_one(command, data):
    assert command("runs") == (
        0,
        "",
        'there are no runs yet; start one with: holdfast run "hello"\n',
    )
    assert not data.exists()


def test_the_newest_come_first_with_what_they_wait_for(command, keep):
    done, cut, asking = keep(), keep("cut off", "a story"), keep("asking", "pay\nthe bill")
    code, output, complaints = command("runs")
    head, *rows = (line.split() for line in output.splitlines())
    assert (code, complaints) == (0, "")
    assert head == ["RUN", "ACCEPTED", "STATUS", "WAITS", "FOR", "ASKED"]
    assert [(row[0], row[3:]) for row in rows] == [
        (asking, ["waiting", "your", "answer", "on", "ask", "pay", "the", "bill"]),
        (cut, ["interrupted", "holdfast", "resume", "a", "story"]),
        (done, ["completed", "-", "hello"]),
    ]


def test_a_few_are_listed_unless_all_are_asked_for(command, keep):
    ids = [keep(prompt=f"number {number}") for number in range(3)]
    code, output, complaints = command("runs", "--limit", "1")
    assert "number 2" in output and "number 1" not in output
    assert complaints == "and 2 older; --all lists them\n"
    _, output, complaints = command("runs", "--limit", "1", "--all")
    assert [line.split()[0] for line in output.splitlines()[1:]] == ids[::-1]
    assert complaints == ""


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_that_lists_nothing_is_a_mistake(command, limit):
    code, _, complaints = command("runs", "--limit", limit)
    assert code == 2
    assert complaints.count("\n") == 1


def test_json_is_a_line_a_run(command, keep):
    cut, asking = keep("cut off", "a story"), keep("asking")
    _, output, _ = command("runs", "--json")
    first, second = map(json.loads, output.splitlines())
    assert (first["run"], first["status"], first["interrupted"]) == (
        asking,
        "waiting_for_approval",
        False,
    )
    assert (first["waiting_for"]["waiting_for"], first["waiting_for"]["name"]) == (
        "approval",
        "ask",
    )
    assert (second["run"], second["status"], second["interrupted"]) == (cut, "running", True)
    assert second["input"] == "a story"
    assert second["seq"] > 1


def test_the_table_fits_the_terminal(at_terminal, keep):
    keep(prompt="a rather long prompt with an escape \x1b[31m and more words than fit")
    terminal = at_terminal("runs", columns=70)
    assert terminal.end() == 0
    head, row = terminal.seen.splitlines()
    assert "escape" not in row and row.endswith("…") and len(row) < 70
    terminal = at_terminal("runs", columns=45)
    assert terminal.end() == 0
    assert terminal.seen.splitlines()[0].split() == ["RUN", "STATUS", "ASKED"]
    assert "\x1b[31" not in terminal.raw


@pytest.mark.real_time
async def test_beside_a_live_owner_its_runs_are_running_and_others_are_not(holdfast, keep, data):
    """Whoever owns the directory may carry some of the runs only."""
    async with open_app(data=data, work=False) as app:
        await app.runs.accept(app.prepare("hello"))
        assert b"queued" in holdfast("runs").stdout
    assert b"interrupted" in holdfast("runs").stdout


@pytest.mark.parametrize(
    "damage",
    [
        "update event set body = x'00' where seq = 2 and run = ?",
        "update event set body = null where seq = 1 and run = ?",
        "delete from event where run = ?",
    ],
)
def test_a_run_that_is_damaged_is_marked_and_the_others_are_listed(command, keep, data, damage):
    cut, spoilt, done = keep("cut off", "a story"), keep("cut off"), keep()
    connection = apsw.Connection(str(data / "journal.db"))
    connection.execute(
        damage, (connection.execute("select key from run where id = ?", (spoilt,)).get,)
    )
    connection.close()
    code, output, complaints = command("runs")
    _, first, second, third = (line.split() for line in output.splitlines())
    assert code == 0
    assert [(row[0], row[-1]) for row in (first, third)] == [(done, "hello"), (cut, "story")]
    assert (second[0], second[2]) == (spoilt, "damaged")
    assert complaints == "1 is damaged; holdfast journal verify says where\n"
    code, output, _ = command("runs", "--json")
    marked = json.loads(output.splitlines()[1])
    assert (code, marked["run"], marked["status"]) == (0, spoilt, "damaged")
    assert marked["damage"]
