"""`holdfast doctor`, on whatever machine this is."""

import json
import os
import sys

import pytest

from holdfast.cli.doctor import Check, _platform, _probed, _space
from holdfast.tools.selftest import Probe

pytestmark = pytest.mark.real_time

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the jail needs Linux")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write a file of settings and name it. There is a demo, and no jail unless it says so."""

    def write(text="", *, tools='jail = "off"'):
        file = tmp_path / "holdfast.toml"
        file.write_text(f'{text}\n[models.demo]\nwire = "demo"\n[tools]\n{tools}\n')
        monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
        return file

    return write


@pytest.fixture
def checks(command):
    """Ask for all of it. Returns the code, and what is said by name."""

    def ask(*words):
        code, output, said = command("doctor", "--json", *words)
        assert said == ""
        report = json.loads(output)
        assert report["ok"] == (code == 0)
        found = {}
        for check in report["checks"]:
            found.setdefault(check.pop("name"), []).append(check)
        return code, found

    return ask


def test_all_is_said_in_the_order_of_looking(checks, config, data):
    file = config()
    code, found = checks()
    assert code == 0
    assert list(found) == [
        "python", "platform", "settings", "data", "disk", "rules", "files", "model demo",
        "terminal", "approval", "jail",
    ]  # fmt: skip
    assert found["settings"] == [{"state": "ok", "says": str(file), "remedy": ""}]
    assert found["python"][0]["says"].startswith("CPython 3.")
    assert found["data"][0]["says"] == f"{data} will be made when it is first needed"
    assert found["rules"][0]["says"] == "0 rules stand"
    assert not data.exists()


def test_too_few_files_for_as_many_runs_are_worth_knowing(checks, config):
    config("max_concurrent_runs = 100000")
    _, found = checks()
    (files,) = found["files"]
    assert files["state"] == "warning" and "for 100000 runs at once" in files["says"]
    assert "ulimit -Hn" in files["remedy"]


def test_people_see_a_line_each(command, config):
    config()
    code, output, said = command("doctor")
    assert (code, said) == (0, "")
    assert "\n✓ settings    " in output
    assert (
        "\n! jail        off; commands outside a short read-only list are asked about\n" in output
    )
    assert '              → set tools.jail to "auto"\n' in output


def test_a_mistake_in_the_settings_is_a_line_and_no_crash(checks, config, data):
    config("default_model = 7")
    code, found = checks()
    assert code == 1
    assert found["settings"][0]["state"] == "problem"
    assert "default_model is 7" in found["settings"][0]["says"]
    assert "model demo" not in found and "rules" in found


def test_settings_that_cannot_be_read_hide_where_the_data_is(checks, config, monkeypatch):
    config("[[")
    monkeypatch.delenv("HOLDFAST_DATA")
    code, found = checks()
    assert code == 1 and "data" not in found and "jail" not in found


def test_elsewhere_there_is_no_jail():
    assert _platform("linux").state == "ok"
    assert (_platform("darwin").state, _platform("darwin").says[-30:]) == (
        "warning",
        "the jail for commands needs Linux"[-30:],
    )


def test_without_a_file_the_defaults_hold(checks, monkeypatch, tmp_path):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("HOLDFAST_CONFIG")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    _, found = checks()
    assert found["settings"][0]["says"] == "there is no file of settings; the defaults hold"


# --- the data directory


def test_a_data_directory_in_use_says_by_whom(checks, config, at_terminal, data):
    config()
    server = at_terminal("serve", "--port", "0").expect("listening on http://127.0.0.1:")
    code, found = checks()
    assert code == 0
    assert (
        f"{data}; process {server.pid} is using it, which listens on http://127.0.0.1:"
        in (found["data"][0]["says"])
    )


def test_one_at_rest_is_fine(checks, config, data):
    config()
    data.mkdir(mode=0o700)
    assert checks()[1]["data"][0]["says"] == f"{data}; nobody is using it"


def test_one_that_is_open_to_others_is_in_the_way_unless_it_is_empty(checks, config, data):
    config()
    data.mkdir()
    data.chmod(0o755)
    assert checks()[0] == 0
    (data / "journal.db").write_bytes(b"")
    code, found = checks()
    assert code == 1
    assert found["data"][0]["remedy"] == f"chmod 700 {data}"


def test_one_that_cannot_be_looked_at_is_in_the_way(checks, config, tmp_path):
    config()
    (tmp_path / "file").write_text("")
    code, found = checks("--data", str(tmp_path / "file" / "data"))
    assert code == 1
    assert "Not a directory" in found["data"][0]["says"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give it away")
def test_one_of_another_user_is_worth_knowing(checks, config, data):
    config()
    data.mkdir(mode=0o700)
    os.chown(data, 12345, -1)
    code, found = checks()
    assert code == 0
    assert (found["data"][0]["state"], found["data"][0]["remedy"][:12]) == (
        "warning",
        "run holdfast",
    )


@LINUX
@pytest.mark.parametrize("folder", ["/proc/sys", "/proc/sys/nothing/here"])
def test_one_that_is_not_writable_is_in_the_way(checks, config, folder):
    """Not even for root."""
    config()
    code, found = checks("--data", folder)
    assert code == 1
    assert "not writable" in found["data"][0]["says"]
    assert found["data"][0]["remedy"] == "choose another with --data or HOLDFAST_DATA"


@pytest.mark.parametrize(
    ("free", "state"), [(10**7, "problem"), (5 * 10**8, "warning"), (10**10, "ok")]
)
def test_little_room_is_told_before_there_is_none(free, state):
    check = _space(free)
    assert (check.state, bool(check.remedy)) == (state, state != "ok")
    assert check.says == f"{free / 1e9:.1f} GB free where the data is"


# --- rules


def test_rules_are_counted(checks, config, data):
    config()
    data.mkdir(mode=0o700)
    (data / "rules.toml").write_text(RULE)
    assert checks()[1]["rules"][0]["says"] == "1 rule stands"


def test_what_is_wrong_with_the_rules_is_in_the_way(checks, config, data):
    config()
    data.mkdir(mode=0o700)
    (data / "rules.toml").write_text(f"{RULE}\n[[rule]]\n[[rule]]\nid = 1\n")
    code, found = checks()
    assert code == 1
    assert [check["state"] for check in found["rules"]] == ["problem", "problem"]
    assert "rules.toml, line 11: " in found["rules"][0]["says"]
    assert found["rules"][0]["remedy"].startswith(f"edit {data / 'rules.toml'}")


RULE = """\
[[rule]]
id = "rule_1"
tool = "terminal"
key = "k"
session = ""
workspace = "/w"
subject = ""
by = ""
granted = 2026-11-16T10:00:00Z
"""


# --- what is configured

MODELS = """
default_model = "demo"
[models.far]
wire = "openai-chat"
model = "big"
base_url = "https://example.org/v1"
api_key_env = "MY_TEST_KEY"
[models.free]
wire = "openai-chat"
model = "small"
base_url = "https://example.org/v1"
[models.near]
wire = "openai-chat"
model = "tiny"
base_url = "http://127.0.0.1:9/v1"
"""


def test_models_are_told_with_where_their_key_is_and_not_the_key(command, config, monkeypatch):
    monkeypatch.setenv("MY_TEST_KEY", "sk-canary-12345")
    config(MODELS)
    code, output, _ = command("doctor")
    assert code == 0 and "sk-canary" not in output
    assert "✓ model far   big at https://example.org/v1, with the key in MY_TEST_KEY\n" in output
    assert "! model free  small at https://example.org/v1, without a key\n" in output
    assert "✓ model near  tiny at http://127.0.0.1:9/v1, without a key\n" in output
    assert "✓ model demo  the demo, which only plays at being a model\n" in output


def test_a_key_that_is_not_set_is_in_the_way(checks, config, monkeypatch):
    monkeypatch.delenv("MY_TEST_KEY", raising=False)
    config(MODELS)
    code, found = checks()
    assert code == 1
    assert "names MY_TEST_KEY, and that is not set" in found["settings"][0]["says"]


@pytest.mark.parametrize(("mode", "state"), [("ask", "ok"), ("deny", "ok"), ("yolo", "warning")])
def test_how_approvals_are_dealt_with_is_told(checks, config, mode, state):
    config(tools=f'jail = "off"\napproval = "{mode}"')
    (check,) = checks()[1]["approval"]
    assert check["state"] == state and check["says"].startswith(f"{mode}: ")


@pytest.mark.parametrize(
    ("flag", "says"), [("true", "on"), ("false", "off; agents run no commands")]
)
def test_the_terminal_is_on_or_off(checks, config, flag, says):
    config(tools=f'jail = "off"\nterminal = {flag}')
    _, found = checks()
    assert found["terminal"][0]["says"] == says
    assert found["jail"][0]["state"] == ("warning" if flag == "true" else "ok")


# --- the jail


@LINUX
def test_the_jail_is_tried(checks, config, tmp_path):
    (tmp_path / "work").mkdir()
    config('workspace = "work"', tools="")
    _, found = checks()
    first, *probes = found["jail"]
    if first["state"] == "ok":
        assert first["says"].startswith("bubblewrap at /")
        assert "no network" in [probe["says"] for probe in probes]
    else:
        assert "commands outside a short read-only list are asked about" in first["says"]
    assert list((tmp_path / "work").iterdir()) == []


@LINUX
@pytest.mark.parametrize(
    ("jail", "code", "follows"),
    [
        ("auto", 0, "commands outside a short read-only list are asked about"),
        ("bwrap", 1, "tools.jail insists on one, so nothing starts without"),
    ],
)
def test_without_a_jail_it_is_said_what_follows(checks, config, jail, code, follows):
    config('workspace = "/"', tools=f'jail = "{jail}"')
    found_code, found = checks()
    (check,) = found["jail"]
    assert found_code == code
    assert check["state"] == ("problem" if code else "warning")
    assert check["says"].startswith("/ cannot be a workspace: ")
    assert check["says"].endswith(follows)
    assert check["remedy"]


@LINUX
@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        ("link", "mend what it names in the workspace"),
        ("root", "choose another workspace"),
    ],
)
def test_what_helps_against_having_no_jail_depends_on_what_is_in_the_way(
    checks, config, tmp_path, made, remedy
):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/.vscode").symlink_to(tmp_path)
    config(f'workspace = "{"work" if made == "link" else "/"}"', tools="")
    _, found = checks()
    (check,) = found["jail"]
    assert check["remedy"] == remedy
    # Without a jail there is nothing that a command could leave.
    assert found["approval"][0]["says"] == "ask: about each command that does more than read"


def test_a_probe_that_fails_says_what_it_found():
    assert _probed(Probe("no network", True, "")) == Check("jail", "ok", "no network")
    failed = _probed(Probe("no network", False, "it answered"))
    assert (failed.state, failed.says) == ("problem", "no network: it answered")


# --- how it looks


@pytest.mark.parametrize("columns", [80, 40])
def test_it_fits_the_terminal(at_terminal, config, columns, monkeypatch):
    monkeypatch.setenv("MY_TEST_KEY", "sk-canary-12345")
    config(MODELS)
    terminal = at_terminal("doctor", columns=columns)
    assert terminal.end() == 0
    long = [line for line in terminal.seen.splitlines() if len(line) >= columns]
    # Nothing but a path that is longer than that.
    assert all(len(line.split()) <= 3 and "/" in line for line in long)
    assert ("! model free: " in terminal.seen) == (columns == 40)


def test_its_help_teaches(command):
    code, output, _ = command("doctor", "--help")
    assert code == 0
    for part in ("Examples:", "holdfast doctor --json", "0    nothing is in the way"):
        assert part in output
