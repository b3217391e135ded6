"""Calls that are no longer what was looked at: after a restart, a revocation, or without their tool."""

import json
from hashlib import sha256

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.approval import digest
from holdfast.core.events import (
    ApprovalRequested,
    ModelChoice,
    ModelReplied,
    RunWaiting,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.state import Grant
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage
from holdfast.tools.beneath import Workspace
from holdfast.tools.files import WriteFile
from holdfast.tools.jail import open_jail
from holdfast.tools.terminal import Terminal
from tests.tools.corpus import git

PAY = Review(gate="ask", reason="it costs money", subject="pay 5", key="pay 5")


class Revoked:
    """A book whose only rule is taken out by another process after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    def standing(self, run_id, accepted):
        self.looks -= 1
        return (Grant("pay", "pay 5", "always", "rule_1"),) if self.looks >= 0 else ()


def results(events):
    return [event for event in events if isinstance(event, ToolFinished)]


@pytest.mark.parametrize("looks", range(4))
async def test_a_rule_that_is_revoked_at_any_moment_leaves_no_run_waiting_for_nothing(looks):
    model = ScriptedModel([Call("pay")], ["Done."])
    async with stage(model, ScriptedTool(review=PAY), rulebook=Revoked(looks)) as play:
        run_id = await play.start(workspace="/work", approval_timeout=60.0)
        with anyio.fail_after(3600):
            await play.ended(run_id)


async def cut_off_and_changed(*later):
    """A repeatable call that was begun, cut off, and would be another one after the restart."""
    seen = [Review(subject="one", binding="directory: /a")]
    store = MemoryStore(now=anyio.current_time)

    async def work(use):
        await anyio.sleep(1000 if len(pay.effects) == 1 else 0)
        return "ok"

    pay = ScriptedTool(review=lambda _: seen[0], repeatable=True, work=work)
    model = ScriptedModel([Call("pay")], *later)
    async with stage(model, pay, store=store) as play:
        run_id = await play.start()
        await play.until(run_id, ToolStarted)
        await anyio.sleep(1)
    seen[0] = Review(subject="one", binding="directory: /b")
    return stage(model, pay, store=store), run_id, pay


async def test_what_was_begun_and_has_changed_since_is_not_said_to_be_not_run():
    again, run_id, pay = await cut_off_and_changed(["Done."])
    async with again as play:
        await play.ended(run_id)
        (result,) = results(await play.journal(run_id))
    assert (result.outcome, len(pay.effects)) == ("unknown", 1)
    assert "whether it took effect is unknown" in result.output


async def test_the_doubt_about_what_was_begun_and_has_changed_is_put_to_a_person():
    again, run_id, pay = await cut_off_and_changed([Call("pay")], ["Done."])
    async with again as play:
        asked = (await play.until(run_id, ApprovalRequested)).event
        await play.runs.answer(run_id, "deny")
        await play.ended(run_id)
    assert asked.doubt and len(pay.effects) == 1


async def test_nobody_is_asked_about_a_call_that_no_tool_has_looked_at():
    store, pay = MemoryStore(now=anyio.current_time), ScriptedTool(review=PAY)
    model = ScriptedModel([Call("pay")], [Call("pay")], ["Done."])
    async with stage(model, store=store) as play:
        run_id = await play.start(tools=(pay.spec,))
        assert (await play.until(run_id, RunWaiting, ApprovalRequested)).event.name == "pay"
        await anyio.sleep(120)
    async with stage(model, pay, store=store) as play:
        # Its tool is back, and looks at it when it is asked for again.
        await play.until(run_id, ApprovalRequested)
        await play.runs.answer(run_id, "once")
        await play.ended(run_id)
        told = [result.outcome for result in results(await play.journal(run_id))]
    assert told == ["refused", "ok"]


async def test_of_calls_side_by_side_one_that_changed_does_not_start_and_the_others_go_on():
    looks = []

    def review(arguments):
        looks.append(arguments)
        again = arguments == '{"n":2}' and looks.count(arguments) > 1
        return Review(subject=f"{arguments} {again}")

    pay = ScriptedTool(review=review, parallel=True)
    calls = [Call("pay", f'{{"n":{n}}}') for n in (1, 2, 3)]
    async with stage(ScriptedModel(calls, ["Done."]), pay) as play:
        run_id = await play.start()
        await play.ended(run_id)
        told = sorted(result.outcome for result in results(await play.journal(run_id)))
    assert told == ["ok", "ok", "refused"] and len(pay.effects) == 2


async def test_a_call_under_way_is_not_cut_off_because_the_tool_of_another_is_missing():
    async def work(use):
        await anyio.sleep(30)
        return "built"

    build = ScriptedTool("build", work=work, parallel=True)
    look = ScriptedTool("look", parallel=True)
    model = ScriptedModel([Call("build"), Call("look")], ["Done."])
    async with stage(model, build) as play:
        run_id = await play.start(tools=(build.spec, look.spec))
        await play.until(run_id, ToolFinished)
        # That one is there; for the other it waits on, in nobody's memory.
        await anyio.sleep(300)
        (result,) = results(await play.journal(run_id))
        assert (result.outcome, result.output) == ("ok", "built")
        await play.runs.stop(run_id)
        await play.ended(run_id)


# --- what lies about, such as a script that a command names


class Deploying(ScriptedTool):
    """Depends on a script that others may change."""

    script = "harmless"

    async def contents(self, arguments):
        await anyio.sleep(1)
        return f"file deploy.sh: {self.script}"


def deploying(**rest):
    return Deploying("deploy", review=Review(gate="ask", binding="directory: /a", key="k"), **rest)


async def test_a_person_is_shown_what_the_calls_ahead_have_left_and_the_yes_is_for_that():
    deploy = deploying()

    async def write(use):
        deploy.script = "as written"
        return "ok"

    model = ScriptedModel([Call("write"), Call("deploy")], ["Done."])
    async with stage(model, deploy, ScriptedTool("write", work=write)) as play:
        run_id = await play.start()
        asked = (await play.until(run_id, ApprovalRequested)).event
        await play.runs.answer(run_id, "once", digest=asked.digest)
        await play.ended(run_id)
        told = [result.outcome for result in results(await play.journal(run_id))]
    assert asked.binding == "directory: /a\nfile deploy.sh: as written"
    assert told == ["ok", "ok"] and len(deploy.effects) == 1


async def test_what_another_has_changed_since_the_question_does_not_start():
    deploy = deploying()
    async with stage(ScriptedModel([Call("deploy")], ["Done."]), deploy) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        deploy.script = "other code"
        await play.runs.answer(run_id, "always")
        await play.ended(run_id)
        (result,) = results(await play.journal(run_id))
    assert (result.outcome, deploy.effects) == ("refused", [])
    assert "(now file deploy.sh: other code); ask for it again" in result.output


async def test_a_digest_is_of_what_lies_about_as_well():
    deploy = deploying()
    async with stage(ScriptedModel([Call("deploy")], ["Done."]), deploy) as play:
        run_id = await play.start()
        asked = (await play.until(run_id, ApprovalRequested)).event
        (tool,) = (await play.runs.state(run_id)).tools
        await play.runs.stop(run_id)
    assert tool.call.binding == asked.binding
    assert asked.digest == digest(tool.call) != digest(replace(tool.call, binding="directory: /a"))


async def test_a_standing_yes_is_for_the_words_whatever_lies_about():
    deploy = deploying()
    model = ScriptedModel([Call("deploy")], [Call("deploy")], ["Done."])
    async with stage(model, deploy) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await play.runs.answer(run_id, "session")
        await play.until(run_id, ToolFinished)
        deploy.script = "other code"
        await play.ended(run_id)
        told = [result.outcome for result in results(await play.journal(run_id))]
    assert told == ["ok", "ok"]


async def test_what_no_standing_yes_may_cover_any_more_does_not_start_by_one():
    """Calls of one reply are looked at together, and one ahead may change what another would run."""
    key = ["k"]

    async def plant(use):
        key[0] = ""
        return "ok"

    deploy = ScriptedTool("deploy", review=lambda _: Review(gate="ask", key=key[0]))
    model = ScriptedModel([Call("deploy")], [Call("plant"), Call("deploy")], ["Done."])
    async with stage(model, deploy, ScriptedTool("plant", work=plant)) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await play.runs.answer(run_id, "session")
        await play.ended(run_id)
        told = results(await play.journal(run_id))
    assert [result.outcome for result in told] == ["ok", "ok", "refused"]
    assert "no standing yes covers it now" in told[-1].output and len(deploy.effects) == 1


async def test_a_tool_that_fails_to_look_asks_nobody_and_does_not_start():
    class Broken(Deploying):
        async def contents(self, arguments):
            raise OSError("the disk is away")

    deploy = Broken("deploy", review=PAY)
    async with stage(ScriptedModel([Call("deploy")], ["Done."]), deploy) as play:
        run_id = await play.start()
        await play.ended(run_id)
        (result,) = results(await play.journal(run_id))
    assert (result.outcome, deploy.effects) == ("refused", [])
    assert "the disk is away" in result.output


async def test_a_stop_while_a_tool_looks_asks_nobody():
    deploy = deploying()
    async with stage(ScriptedModel([Call("deploy")], ["Done."]), deploy) as play:
        run_id = await play.start()
        await play.until(run_id, ModelReplied)
        await anyio.sleep(0.5)
        await play.runs.stop(run_id)
        await play.ended(run_id)
        tags = await play.tags(run_id)
    assert "approval.requested" not in tags


class Granted:
    """A book with one rule, for a command on the host."""

    def standing(self, run_id, accepted):
        return (Grant("terminal", 'host ["git","status"]', "always", "rule_1"),)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    git(tmp_path / "work", "init", "-q")
    return tmp_path / "work"


@pytest.mark.real_time
async def test_no_standing_yes_runs_what_a_repository_planted_in_the_jail_names(
    tmp_path, workspace
):
    jail = await open_jail(workspace)
    if isinstance(jail, str):
        pytest.fail(f"there is no jail to test: {jail}")
    plant = (
        f"printf '#!/bin/sh\\ntouch {tmp_path}/obeyed\\n' > evil && chmod +x evil && git init -q sub"
        " && git -C sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
        " && git add sub && git -C sub config core.fsmonitor ../evil"
    )
    calls = (
        Call("terminal", json.dumps({"command": plant})),
        Call("terminal", json.dumps({"command": "git status", "access": "host"})),
    )
    terminal = Terminal(workspace, jail=jail)
    async with stage(ScriptedModel([*calls], ["Done."]), terminal, rulebook=Granted()) as play:
        run_id = await play.start(workspace=str(workspace))
        await play.ended(run_id)
        told = results(await play.journal(run_id))
    assert not (tmp_path / "obeyed").exists()
    assert [result.outcome for result in told] == ["ok", "refused"], told


@pytest.mark.real_time
async def test_a_person_is_shown_what_git_would_obey_on_the_host(tmp_path, workspace):
    asks = Call("terminal", json.dumps({"command": "git commit -qm x", "access": "host"}))
    git(workspace, "config", "core.editor", "vi")
    async with stage(ScriptedModel([asks], ["Done."]), Terminal(workspace, jail=None)) as play:
        run_id = await play.start(workspace=str(workspace))
        asked = (await play.until(run_id, ApprovalRequested)).event
        git(workspace, "config", "core.editor", "evil")
        await play.runs.answer(run_id, "once", digest=asked.digest)
        await play.ended(run_id)
        (result,) = results(await play.journal(run_id))
    assert "git in .: a setting" in asked.binding and "(editor = vi)" in asked.binding
    assert result.outcome == "refused" and "(editor = evil)" in result.output


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "deploy.sh").write_text("echo harmless\n")
    return Terminal(tmp_path, jail=None, why="there is none"), WriteFile(Workspace(tmp_path))


DEPLOY = Call("terminal", json.dumps({"command": "bash deploy.sh"}))
WRITE = Call("write_file", json.dumps({"path": "deploy.sh", "content": "echo other code\n"}))


@pytest.mark.real_time
async def test_a_script_that_the_same_reply_writes_is_there_before_anybody_is_asked(
    terminal, tmp_path
):
    async with stage(ScriptedModel([WRITE, DEPLOY], ["Done."]), *terminal) as play:
        run_id = await play.start(workspace=str(tmp_path))
        asked = (await play.until(run_id, ApprovalRequested)).event
        assert (tmp_path / "deploy.sh").read_text() == "echo other code\n"
        await play.runs.answer(run_id, "once", digest=asked.digest)
        await play.ended(run_id)
        written, ran = results(await play.journal(run_id))
    assert sha256(b"echo other code\n").hexdigest() in asked.binding
    assert (written.outcome, ran.outcome) == ("ok", "ok") and "other code" in ran.output


@pytest.mark.real_time
async def test_a_script_that_another_run_writes_meanwhile_does_not_run_by_the_yes(
    terminal, tmp_path
):
    models = {"one": ScriptedModel([DEPLOY], ["Done."]), "two": ScriptedModel([WRITE], ["Done."])}
    async with stage(models, *terminal) as play:
        run_id = await play.start(workspace=str(tmp_path), models=(ModelChoice("one"),))
        await play.until(run_id, ApprovalRequested)
        other = await play.start(workspace=str(tmp_path), models=(ModelChoice("two"),))
        await play.ended(other)
        await play.runs.answer(run_id, "once")
        await play.ended(run_id)
        (result,) = results(await play.journal(run_id))
    assert result.outcome == "refused" and "file deploy.sh" in result.output
