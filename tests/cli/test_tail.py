import json
import signal

from holdfast.cli.tail import LOOK


def test_a_run_that_ended_is_told_to_its_end(command, keep):
    run_id = keep()
    code, output, complaints = command("tail", run_id)
    assert code == 0
    assert output == "Done, and paid.\n"
    assert "→ pay" in complaints


def test_it_begins_after_the_place_that_is_asked_for(command, keep):
    run_id = keep()
    _, everything, _ = command("tail", run_id, "--json")
    lines = everything.splitlines()
    _, output, _ = command("tail", run_id, "--json", "--after", "5")
    assert output.splitlines() == lines[5:]
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {json.loads(line)["run"] for line in lines} == {run_id}


def test_a_tool_that_began_before_that_place_is_known_by_name(command, keep):
    run_id = keep()
    _, everything, _ = command("tail", run_id, "--json")
    types = [json.loads(line)["event"]["type"] for line in everything.splitlines()]
    _, _, complaints = command("tail", run_id, "--after", str(types.index("tool.started")))
    assert "→ pay" in complaints


def test_a_place_before_the_beginning_is_a_mistake(command, keep):
    assert command("tail", keep(), "--after", "-1")[0] == 2


def test_it_follows_beside_the_owner_and_says_when_nobody_goes_on(at_terminal, holdfast):
    owner = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    run_id = json.loads(holdfast("runs", "--json").stdout)["run"]
    follower = at_terminal("tail", run_id).expect("> hello").expect("A new")
    owner.expect("You said")
    follower.expect("You said")
    owner.send(signal.SIGKILL).end()
    follower.expect(f"nobody carries this run now; holdfast resume {run_id[:12]} does")
    resumed = at_terminal("resume", run_id, "--pace", "0").expect("or deny? [deny]")
    follower.expect("the process that carried the run is gone").expect("keep what you said")
    resumed.type("\n")
    assert resumed.end() == 0
    assert follower.end() == 0
    assert "✗ keep_note, denied" in follower.seen
    assert LOOK < 1


def test_leaving_it_leaves_the_run_alone(at_terminal, keep, command):
    run_id = keep("cut off")
    follower = at_terminal("tail", run_id).expect("Once upon").type("\x03")
    assert follower.end() == 130
    assert "Traceback" not in follower.seen
    assert "interrupted" in command("runs")[1]
