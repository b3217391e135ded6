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
