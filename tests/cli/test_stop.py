import anyio
import apsw

from holdfast.cli import stop
from holdfast.core.codec import record
from holdfast.testing.contracts import ACCEPTED


def test_a_run_that_was_cut_off_is_ended_with_a_receipt(command, keep):
    run_id = keep("cut off")
    code, output, complaints = command("stop", run_id)
    assert (code, complaints) == (0, "")
    assert output == "stopping …\nstopped; cut off: a model call, which may still be billed\n"
    assert "cancelled" in command("runs")[1]


def test_a_run_that_waits_is_ended_and_nothing_starts(command, keep):
    _, output, _ = command("stop", keep("asking"))
    assert "✗ ask, not started" in output
    assert "stopped; nothing was cut off" in output


def test_a_run_that_has_ended_is_a_sentence(command, keep):
    run_id = keep()
    assert command("stop", run_id) == (2, "", f"holdfast: run {run_id} has already ended\n")


def test_while_another_process_owns_the_directory_it_is_named(at_terminal, holdfast, keep):
    run_id = keep("cut off")
    owner = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    refused = holdfast("stop", run_id)
    assert refused.returncode == 75
    assert f"in use by process {owner.pid};".encode() in refused.stderr
    assert refused.stderr.count(b"\n") == 1


def test_a_run_that_is_damaged_is_stopped_as_far_as_that_goes(command, keep, data):
    run_id = keep("cut off")
    connection = apsw.Connection(str(data / "journal.db"))
    connection.execute("update event set body = x'00' where seq = 2")
    code, output, complaints = command("stop", run_id)
    assert (code, output) == (65, "")
    assert complaints.startswith(f"holdfast: run {run_id} is damaged at 2: ")
    assert "that it is to stop is on record" in complaints
    last = "select body from event order by seq desc limit 1"
    assert b"stop.requested" in connection.execute(last).get
    connection.close()


def test_a_run_that_could_not_be_ended_now_is_left_to_somebody(command, keep, monkeypatch):
    run_id = keep("cut off")

    async def stopped(folder, journal, run_id):
        await anyio.lowlevel.checkpoint()
        return [record(1, 1.0, ACCEPTED)]

    monkeypatch.setattr(stop, "_stop", stopped)
    code, output, _ = command("stop", run_id)
    assert code == 3
    assert output == "! that it is to stop is on record; it ends when somebody takes it up\n"
