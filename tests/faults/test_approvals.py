"""Approvals of real commands on a real server: durable, exact, and never for another."""

import json
import random
from pathlib import Path

import anyio
import pytest

from holdfast.testing.endpoint import open_endpoint
from holdfast.testing.scripted import Call
from tests.faults.serving import model_at, serving

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60), pytest.mark.seeds]

#: Without a jail each command that changes something is asked about.
FREE = 'jail = "off"'


def command(words, **more):
    return Call("terminal", json.dumps({"command": words, **more}))


def append(word):
    return command(f"echo {word} >> effects")


def effects(folder):
    file = Path(folder) / "effects"
    return file.read_text().split() if file.exists() else []


async def pending(server, run_id):
    return (await server.reached(run_id, "waiting_for_approval"))["approval"]


async def answer(server, run_id, choice="once", **fields):
    return await server.post(f"/v1/runs/{run_id}/approval", {"choice": choice, **fields})


def outcomes(frames):
    return [frame.data["outcome"] for frame in frames if frame.event == "tool.completed"]


async def test_a_question_outlives_the_server_and_shows_all_that_a_yes_is_for(tmp_path):
    async with (
        open_endpoint([append("one")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        asked = await pending(server, run_id)
        server.kill()
        await server.start(model_at(endpoint, tools=FREE))
        again = await pending(server, run_id)
        assert again == asked
        assert asked["command"] == "echo one >> effects"
        for shown in (f"directory: {tmp_path}", "environment: ", "PATH", "no jail", "timeout: "):
            assert shown in asked["details"], asked["details"]
        # From a connection of its own, as if on another machine.
        async with server.calling():
            assert (await answer(server, run_id)).json["resolved"] == 1
            assert (await server.ended(run_id))["status"] == "completed"
    assert effects(tmp_path) == ["one"]


async def test_a_late_answer_is_for_what_has_expired_and_not_for_what_is_asked_next(tmp_path):
    config = {"tools": f"{FREE}\napproval_timeout = 2"}
    scripts = ([append("one")], [append("two")], ["Done."])
    async with (
        open_endpoint(*scripts) as endpoint,
        serving(tmp_path, model_at(endpoint, **config)) as server,
    ):
        run_id = await server.run()
        first = await pending(server, run_id)
        async with server.follow(run_id) as events:
            frames = await events.until("approval.request", times=2)
        assert [f.data["approval_id"] for f in frames if f.event == "approval.expired"] == [
            first["approval_id"]
        ]
        late = await answer(server, run_id, approval_id=first["approval_id"])
        assert (late.status, late.error["code"]) == (409, "approval_settled")
        second = await pending(server, run_id)
        assert second["approval_id"] != first["approval_id"]
        assert (await answer(server, run_id, approval_id=second["approval_id"])).status == 200
        assert (await server.ended(run_id))["status"] == "completed"
        assert outcomes(await server.frames(run_id)) == ["expired", "ok"]
    assert effects(tmp_path) == ["two"]


async def test_an_answer_after_a_stop_is_refused_and_nothing_runs(tmp_path):
    async with (
        open_endpoint([append("one")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        asked = await pending(server, run_id)
        assert (await server.post(f"/v1/runs/{run_id}/stop")).status == 200
        refused = await answer(server, run_id, approval_id=asked["approval_id"])
        assert refused.status == 409
        assert (await server.ended(run_id))["status"] == "cancelled"
    assert effects(tmp_path) == []


async def test_an_answer_to_other_bytes_is_refused_and_the_question_stands(tmp_path):
    async with (
        open_endpoint([append("one")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        asked = await pending(server, run_id)
        for place in range(0, 64, 9):
            sign = "0" if asked["digest"][place] != "0" else "1"
            other = asked["digest"][:place] + sign + asked["digest"][place + 1 :]
            refused = await answer(server, run_id, digest=other)
            assert (refused.status, refused.error["code"]) == (409, "approval_changed")
        assert await pending(server, run_id) == asked
        assert (await answer(server, run_id, digest=asked["digest"])).status == 200
        await server.ended(run_id)
    assert effects(tmp_path) == ["one"]


@pytest.mark.parametrize(
    "changed",
    ['jail = "off"\nenv = ["HOLDFAST_TESTED"]', 'jail = "bwrap"'],
    ids=["another environment", "a jail"],
)
async def test_a_yes_does_not_cover_a_command_that_would_run_otherwise_than_shown(
    tmp_path, changed
):
    async with (
        open_endpoint([append("one")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        await pending(server, run_id)
        server.kill()
        await server.start(model_at(endpoint, tools=changed), env={"HOLDFAST_TESTED": "1"})
        assert (await answer(server, run_id)).status == 200
        assert (await server.ended(run_id))["status"] == "completed"
        assert outcomes(await server.frames(run_id)) == ["refused"]
    assert effects(tmp_path) == []


async def test_a_run_of_another_workspace_waits_for_its_own_tools(tmp_path):
    (tmp_path / "other").mkdir()
    async with (
        open_endpoint([append("one")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        await pending(server, run_id)
        server.kill()
        await server.start('workspace = "other"\n' + model_at(endpoint, tools=FREE))
        assert (await answer(server, run_id)).status == 200
        with anyio.fail_after(10):
            while (await server.status(run_id)).get("waiting_for") is None or (
                await server.status(run_id)
            )["waiting_for"]["waiting_for"] != "missing_tool":
                await anyio.sleep(0.02)
        await server.post(f"/v1/runs/{run_id}/stop")
    assert effects(tmp_path) == effects(tmp_path / "other") == []


async def test_what_was_allowed_starts_at_most_once_though_the_server_is_killed_just_then(tmp_path):
    chance, rounds = random.Random(7), 5
    config = {"tools": FREE}

    def script(request):
        return ["Done."] if "tool" in str(request.body["messages"][-1]) else [append("$RANDOM")]

    async with (
        open_endpoint(script) as endpoint,
        serving(tmp_path, model_at(endpoint, **config)) as server,
    ):
        for _ in range(rounds):
            before = len(effects(tmp_path))
            run_id = await server.run()
            asked = await pending(server, run_id)
            assert (await answer(server, run_id)).status == 200
            await anyio.sleep(chance.uniform(0, 0.03))
            server.kill()
            await server.start(model_at(endpoint, **config))
            replay = await answer(server, run_id, approval_id=asked["approval_id"])
            assert replay.status == 409
            assert (await server.ended(run_id))["status"] == "completed"
            done = len(effects(tmp_path)) - before
            told = outcomes(await server.frames(run_id))
            assert (done, told) in [(1, ["ok"]), (1, ["unknown"]), (0, ["unknown"])]


async def test_a_rule_holds_for_the_same_command_until_it_is_revoked(tmp_path):
    """`touch` is one simple command of literal words, so a rule can cover it."""
    scripts = [[command("touch seen")], ["Done."]]
    async with (
        open_endpoint(*(scripts * 4)) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        first = await server.run()
        assert "always" in (await pending(server, first))["choices"]
        await answer(server, first, "always")
        await server.ended(first)
        server.kill()
        await server.start(model_at(endpoint, tools=FREE))
        second = await server.run()
        await server.ended(second)
        (started,) = [f for f in await server.frames(second) if f.event == "tool.started"]
        file = server.data / "rules.toml"
        assert f'id = "{started.data["rule"]}"' in file.read_text()
        # Whoever deletes it there has revoked it.
        file.write_text("")
        third = await server.run()
        await pending(server, third)
        await answer(server, third, "deny")
        await server.ended(third)
    assert (tmp_path / "seen").exists()


async def test_whoever_says_always_is_told_if_that_holds_but_once(tmp_path):
    async with (
        open_endpoint([command("touch seen")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        await pending(server, run_id)
        (server.data / "rules.toml").write_text("garbage = [")
        (server.data / "rules.toml").chmod(0o600)
        (problem,) = (await answer(server, run_id, "always")).json["problems"]
        assert "holds once" in problem and "rules.toml" in problem
        await server.ended(run_id)
    assert (tmp_path / "seen").exists()


async def test_an_interpreter_can_be_allowed_once_and_no_longer(tmp_path):
    async with (
        open_endpoint([command("python3 -c 'print(1)'")], ["Done."]) as endpoint,
        serving(tmp_path, model_at(endpoint, tools=FREE)) as server,
    ):
        run_id = await server.run()
        asked = await pending(server, run_id)
        assert (asked["choices"], asked["allow_permanent"]) == (["once", "deny"], False)
        await answer(server, run_id, "always")
        await server.ended(run_id)
        assert not (server.data / "rules.toml").exists()
