import dataclasses

import pytest

from holdfast.config import AgentSettings, Settings, ToolSettings
from holdfast.errors import ConfigError, NotFound, ToolError
from holdfast.ports import ToolUse
from holdfast.toolbox import allowed, open_toolbox
from holdfast.tools.demo import LookAround
from holdfast.tools.selftest import Probe

pytestmark = pytest.mark.real_time

BUILT_IN = [
    "terminal",
    "read_file",
    "write_file",
    "edit_file",
    "search_files",
    "todo",
    "read_output",
]


async def no_blob(sha256):
    raise NotFound("blob", sha256)


async def box(tmp_path, *, extra=(), tools=None, **more):
    workspace = tmp_path / "work"
    workspace.mkdir(exist_ok=True)
    settings = Settings(
        tmp_path / "data", workspace=workspace, tools=tools or ToolSettings(), **more
    )
    return await open_toolbox(settings, blob=no_blob, extra=extra)


def names(toolbox):
    return [tool.spec.name for tool in toolbox.tools]


async def test_there_are_the_built_in_tools_made_for_the_workspace(tmp_path):
    toolbox = await box(tmp_path, extra=[LookAround()])
    assert names(toolbox) == ["look_around", *BUILT_IN]
    placed = {tool.spec.name: getattr(tool, "workspace", "") for tool in toolbox.tools}
    assert {name for name, place in placed.items() if place == str(tmp_path / "work")} == {
        "terminal",
        "read_file",
        "write_file",
        "edit_file",
        "search_files",
    }


async def test_the_settings_choose_among_them(tmp_path):
    agent = AgentSettings(tools=("read_*", "todo"))
    assert names(await box(tmp_path, agent=agent)) == ["read_file", "todo", "read_output"]
    assert allowed([LookAround()], ("LOOK*",)) == ()


async def test_without_a_terminal_there_is_nothing_to_contain(tmp_path):
    toolbox = await box(tmp_path, tools=ToolSettings(terminal=False))
    assert "terminal" not in names(toolbox)
    assert await toolbox.test() == ""
    assert toolbox.report() == {"status": "none", "detail": "the terminal is switched off"}


async def test_commands_are_contained_and_the_jail_proves_it(tmp_path):
    toolbox = await box(tmp_path)
    assert toolbox.report()["status"] == "testing"
    assert await toolbox.test() == ""
    report = toolbox.report()
    assert report["status"] == "ok" and "no network" in report["detail"]
    assert set(report["probes"].values()) == {"ok"} and len(report["probes"]) >= 8


async def test_a_jail_that_failed_its_test_can_prove_itself_later(tmp_path):
    toolbox = await box(tmp_path)
    toolbox._probes = [Probe("network", True, ""), Probe("files", False, "it could write /etc")]
    assert toolbox.report()["status"] == "failed"
    assert toolbox.report()["probes"]["files"] == "it could write /etc"
    # It is tried again before the next command, and may have been disturbed.
    assert await toolbox.test() == ""
    assert toolbox.report()["status"] == "ok"


async def test_where_no_jail_is_wanted_everything_that_changes_something_is_asked_about(tmp_path):
    toolbox = await box(tmp_path, tools=ToolSettings(jail="off"))
    (terminal,) = (tool for tool in toolbox.tools if tool.spec.name == "terminal")
    assert terminal.review('{"command":"touch x"}').gate == "ask"
    assert await toolbox.test() == toolbox.report()["detail"] == "tools.jail is off"
    assert "There is no jail here" in toolbox.brief([terminal.spec], "ask")


async def test_a_jail_that_is_demanded_and_cannot_be_had_is_a_wrong_setting(tmp_path):
    gone = dataclasses.replace(ToolSettings(jail="bwrap"))
    with pytest.raises(ConfigError, match=r"tools\.jail is bwrap, but there can be no jail"):
        await open_toolbox(
            Settings(tmp_path / "data", workspace=tmp_path / "gone", tools=gone), blob=no_blob
        )


async def test_a_model_is_told_where_it_is_after_what_the_operator_says(tmp_path):
    toolbox = await box(tmp_path, agent=AgentSettings(instructions="Be brief."))
    told = toolbox.brief([tool.spec for tool in toolbox.tools], "deny")
    assert told.startswith("Be brief.\n\n")
    assert str(tmp_path / "work") in told and "Commands run in a jail:" in told
    assert "Nobody can be asked" in told
    assert toolbox.brief([], "ask") == "Be brief."


def refused(tool, arguments):
    try:
        return tool.review(arguments).gate == "refuse"
    except ToolError:
        return True


async def test_what_is_ours_is_out_of_reach_of_every_tool(tmp_path):
    data = tmp_path / "work" / "data"
    data.mkdir(parents=True)
    (data / "api_key").write_text("secret-of-ours")
    settings = Settings(data, workspace=tmp_path / "work")
    toolbox = await open_toolbox(settings, blob=no_blob)
    by_name = {tool.spec.name: tool for tool in toolbox.tools}
    for name, arguments in (
        ("read_file", '{"path":"data/api_key"}'),
        ("write_file", '{"path":"data/rules.toml","content":""}'),
        ("terminal", '{"command":"cat data/api_key"}'),
    ):
        assert refused(by_name[name], arguments), name

    async def hear(text):
        pass

    sneaky = '{"command":"cat d*/a* d*/api_ke? 2>&1; ls d*"}'
    assert "secret-of-ours" not in await by_name["terminal"].run(ToolUse(sneaky, "call_1", hear))
    found = await by_name["search_files"].run(
        ToolUse('{"pattern":"secret-of-ours"}', "call_2", hear)
    )
    assert "api_key" not in found
