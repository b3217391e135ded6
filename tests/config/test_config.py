import json
import subprocess
import sys
from datetime import date, datetime, time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import (
    AgentSettings,
    McpSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    ToolSettings,
    read_data,
    read_journal,
    read_settings,
    secrets,
)
from holdfast.config.models import TTFB
from holdfast.config.settings import DEMO
from holdfast.core.usage import Budget
from holdfast.core.watchdog import Patience
from holdfast.errors import ConfigError

KEY = "sk-live-0123456789abcdef"


def nobody(host, port):
    return False


def settings(folder, text=None, environ=None, **flags):
    if text is not None:
        (folder / "holdfast.toml").write_text(text)
    environ = {"HOME": "/h/ada"} | (environ or {})
    return read_settings(environ=environ, platform="linux", cwd=folder, probe=nobody, **flags)


def refusal(folder, text=None, environ=None, **flags):
    with pytest.raises(ConfigError) as caught:
        settings(folder, text, environ, **flags)
    return str(caught.value)


# --- the data directory ----------------------------------------------------------------


def data(flag=None, platform="linux", **environ):
    found = read_data(data=flag, environ=environ, platform=platform)
    whole = read_settings(data=flag, environ=environ, platform=platform, probe=nobody)
    assert found == whole.data
    return str(found)


def test_a_flag_counts_before_the_environment_and_that_before_the_default(tmp_path):
    assert data("/flag", HOLDFAST_DATA="/env", HOME="/h/ada") == "/flag"
    assert data(HOLDFAST_DATA="/env", XDG_DATA_HOME="/xdg", HOME="/h/ada") == "/env"
    assert data(XDG_DATA_HOME="/xdg", HOME="/h/ada") == "/xdg/holdfast"
    assert data(HOME="/h/ada") == "/h/ada/.local/share/holdfast"


def test_on_a_mac_the_data_is_where_a_mac_keeps_it():
    place = "/U/ada/Library/Application Support/holdfast"
    assert data(platform="darwin", HOME="/U/ada", XDG_DATA_HOME="/xdg") == place


def test_what_is_set_to_nothing_is_not_set():
    assert data(HOLDFAST_DATA="", XDG_DATA_HOME="", HOME="/h") == "/h/.local/share/holdfast"
    assert data(XDG_DATA_HOME="relative", HOME="/h") == "/h/.local/share/holdfast"


def test_a_path_may_be_relative_or_begin_at_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h/ada")
    assert data("here") == str(tmp_path / "here")
    assert data(HOLDFAST_DATA="~/runs") == "/h/ada/runs"


@pytest.mark.parametrize("value", ["", "  ", "a\0b"])
def test_a_flag_without_a_path_is_refused_by_name(value):
    with pytest.raises(ConfigError, match=r"^--data is .*; it must be the path of a directory$"):
        data(value)


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"^HOLDFAST_DATA is .*/file, which is a file; it must be"
    ):
        data(HOLDFAST_DATA=str(tmp_path / "file"))


def test_a_path_that_cannot_be_looked_at_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^--data is .*, which cannot be used: .*too long"):
        data("/" + "x" * 5000)
    with pytest.raises(ConfigError, match=r"^--data is ~nobody_at_all/x, which cannot be used"):
        data("~nobody_at_all/x")


def test_without_a_home_the_setting_to_make_is_named(monkeypatch):
    def homeless(path):
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ConfigError, match=r"HOME is not set.*; set HOLDFAST_DATA$"):
        data()


def test_a_path_in_a_file_is_seen_from_there(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/my.toml").write_text('data = "runs"\nworkspace = "."')
    environ = {"HOME": "/h/ada"}
    for config, cwd in [("sub/my.toml", tmp_path), ("my.toml", tmp_path / "sub")]:
        found = read_data(config=config, environ=environ, cwd=cwd)
        assert found == tmp_path / "sub/runs"
        whole = read_settings(config=config, environ=environ, cwd=cwd, probe=nobody)
        assert (whole.data, whole.workspace) == (found, tmp_path / "sub")
    set_there = {**environ, "HOLDFAST_DATA": "here"}
    assert read_data(config="sub/my.toml", environ=set_there, cwd=tmp_path) == tmp_path / "here"


def test_whoever_needs_the_data_alone_is_not_held_up_by_other_settings(tmp_path):
    file = tmp_path / "holdfast.toml"
    file.write_text("nonsense = 1")
    assert read_data(environ={"HOME": "/h"}, platform="linux", cwd=tmp_path) == Path(
        "/h/.local/share/holdfast"
    )
    file.write_text("not even TOML")
    assert read_data(data="/flag", environ={}, cwd=tmp_path) == Path("/flag")
    with pytest.raises(ConfigError, match=r"^holdfast.toml, line 1: expected '='"):
        read_data(environ={"HOME": "/h"}, cwd=tmp_path)


def test_without_a_file_no_parser_is_loaded(tmp_path):
    code = """
import sys
from pathlib import Path
before = set(sys.modules)
from holdfast.config import read_settings
read_settings(environ={"HOME": "/h"}, cwd=Path(sys.argv[1]), probe=lambda host, port: False)
print({"tomllib", "socket", "difflib", "asyncio"} & (set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True, text=True
    )
    assert done.stdout == "set()\n"


# --- secrets ---------------------------------------------------------------------------


def test_secrets_are_known_by_the_names_of_their_variables():
    environ = {
        "OPENAI_API_KEY": "sk-12345678",
        "github_token": "ghp-0123456789",
        "DB_PASSWORD": "12345678",
        "A_SECRET": "1234567",
        "HOME": "/h/ada/and/so/on",
    }
    assert secrets(environ) == ("ghp-0123456789", "sk-12345678", "12345678")


def test_the_keys_of_models_are_secrets_whatever_their_variables_are_called(tmp_path):
    environ = {"OPENAI": "hunter2-hunter2", "SHORT": "1234567"}
    text = """
[models.main]
wire = "openai-chat"
model = "m"
api_key_env = "OPENAI"
[models.other]
wire = "openai-chat"
model = "m"
api_key_env = "SHORT"
"""
    found = settings(tmp_path, text, environ)
    assert secrets(environ) == ()
    assert secrets(environ, found) == ("hunter2-hunter2",)


def test_what_a_header_of_a_model_holds_is_secret_unless_everybody_may_know_it(tmp_path):
    text = """
[models.main]
wire = "demo"
[models.main.headers]
x-gateway = "Bearer of-the-gateway"
x-tenant = "ada-and-family"
x-trace = "true"
anthropic-version = "2023-06-01"
HTTP-Referer = "https://example.org"
"""
    found = settings(tmp_path, text)
    assert secrets({}, found) == ("Bearer of-the-gateway", "ada-and-family", "of-the-gateway")


def test_the_key_of_the_server_is_a_secret():
    served = Settings(Path("/x"), server=ServerSettings(key="served-key"))
    assert secrets({}, served) == ("served-key",)


# --- the file --------------------------------------------------------------------------


EXAMPLE = """
data = "runs"
workspace = "src"
default_model = "main"
max_concurrent_runs = 20
max_queued_runs = 0

[server]
host = "127.0.0.1"
port = 9000
store = "sqlite:kept/runs.db"
auth = "token"
hosts = ["holdfast.example.org"]
cors_origins = ["https://example.org"]
behind_proxy = true
body_limit = 5_000_000
drain = 10.5
stop_ended = 200

[agent]
instructions = "Be brief."
max_turns = 20
tools = ["read_*", "terminal"]

[models.main]
wire = "openai-responses"
model = "gpt-5.5"
base_url = "https://api.openai.com/v1"
api_key_env = "OPENAI_API_KEY"
fallback = ["backup", "local"]
stream = true
window = 200_000
price = { input = 5, output = 30, cached = 0.5 }
headers = { x-team = "tools" }
concurrency = 8
[models.main.patience]
connect = 10
first = 30
between = 60
whole = 900
[models.main.retry]
attempts = 2
total = 120
hedge = 15
[models.main.options]
reasoning = { effort = "low" }

[models.backup]
wire = "anthropic"
model = "claude-sonnet-5-5"
api_key_env = "ANTHROPIC_API_KEY"
retry = { hedge = "off" }

[models.local]
wire = "openai-chat"
model = "llama3.3:70b"
base_url = "http://127.0.0.1:11434/v1"

[models.play]
wire = "demo"

[tools]
terminal = false
jail = "bwrap"
approval = "deny"
approval_timeout = 0

[budget]
turns = 50
seconds = 3600
tokens = 1_000_000
money = 2.5

[retention]
days = 90
deleted = 0

[mcp.files]
command = ["npx", "-y", "server files"]
[mcp.search]
url = "https://mcp.example.org/mcp"
"""


def test_a_file_may_set_everything(tmp_path):
    (tmp_path / "src").mkdir()
    keys = {"OPENAI_API_KEY": "key-a", "ANTHROPIC_API_KEY": "key-b"}
    found = settings(tmp_path, EXAMPLE, keys)
    assert (found.file, found.data) == (tmp_path / "holdfast.toml", tmp_path / "runs")
    assert (found.workspace, found.default_model) == (tmp_path / "src", "main")
    assert (found.max_concurrent_runs, found.max_queued_runs) == (20, 0)
    assert found.agent == AgentSettings("Be brief.", 20, ("read_*", "terminal"))
    assert found.budget == Budget(turns=50, seconds=3600, tokens=1_000_000, money=2.5)
    assert found.tools == ToolSettings(False, "bwrap", "deny", 0, path=found.tools.path)
    assert found.retention == RetentionSettings(90, 0)
    assert found.mcp == {
        "files": McpSettings("files", command=("npx", "-y", "server files")),
        "search": McpSettings("search", url="https://mcp.example.org/mcp"),
    }
    assert (found.server.port, found.server.stop_ended) == (9000, 200)
    assert list(found.models) == ["main", "backup", "local", "play"]
    main, backup, local, _ = found.models.values()
    assert main.patience == Patience(connect=10, first=30, between=60, whole=900)
    assert main.options == {"reasoning": {"effort": "low"}}
    assert (main.key, backup.key, local.key) == ("key-a", "key-b", "")
    assert (main.hedge, backup.hedge) == (15, 0)


def test_without_a_file_there_are_defaults(tmp_path):
    found = settings(tmp_path)
    assert found == Settings(Path("/h/ada/.local/share/holdfast"), workspace=tmp_path)


def test_a_file_without_models_leaves_them_to_the_environment(tmp_path):
    assert settings(tmp_path, "[models]").models == {"demo": DEMO}
    found = settings(tmp_path, 'default_model = "main"', {"OPENAI_API_KEY": "key"})
    assert found.models["main"].model == "gpt-5.5"
    assert refusal(tmp_path, 'default_model = "main"') == (
        'holdfast.toml: default_model is "main", and no model has that name; there is demo'
    )


def test_the_turns_of_the_agent_are_those_of_its_budget_unless_that_has_its_own(tmp_path):
    assert settings(tmp_path, "[agent]\nmax_turns = 5").budget.turns == 5
    found = settings(tmp_path, "[agent]\nmax_turns = 5\n[budget]\nturns = 0")
    assert (found.agent.max_turns, found.budget.turns) == (5, 0)


def test_flags_for_the_server_are_passed_on(tmp_path):
    found = settings(tmp_path, "[server]\nport = 1", host="::1", port=2, store="sqlite:/x/y")
    assert found.server == ServerSettings(host="::1", port=2, store=Path("/x/y"))
    assert found.journal == Path("/x/y")


def test_runs_are_not_kept_where_tools_work(tmp_path):
    assert refusal(tmp_path, '[server]\nstore = "sqlite:runs.db"') == (
        f"the store is kept in {tmp_path}, which holds the workspace, too; give it a directory of"
        " its own"
    )


def test_the_file_of_runs_can_be_found_without_any_other_setting(tmp_path):
    data = tmp_path / "data"
    assert read_journal(data, environ={}, cwd=tmp_path) == data / "journal.db"
    (tmp_path / "holdfast.toml").write_text('models = 5\n[server]\nstore = "sqlite:kept/runs.db"')
    assert read_journal(data, environ={}, cwd=tmp_path) == tmp_path / "kept" / "runs.db"
    environ = {"HOLDFAST_STORE": "sqlite:here.db"}
    assert read_journal(data, environ=environ, cwd=tmp_path) == tmp_path / "here.db"
    (tmp_path / "holdfast.toml").write_text("server = 5")
    assert read_journal(data, environ={}, cwd=tmp_path) == data / "journal.db"


TABLES = (
    "data, workspace, default_model, max_concurrent_runs, max_queued_runs, server, agent,"
    " models, tools, budget, retention, mcp"
)
NO_LIMIT = "a whole number, 0 for no limit"
FOLDER = "the path of a directory"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("xyzzy = 1", f": xyzzy is not a setting; the settings here are {TABLES}"),
        ("[model.main]", ": model is not a setting; did you mean models?"),
        ("[[models]]", ": models is a list; it must be a table"),
        ("data = 5", f": data is 5; it must be {FOLDER}"),
        ("workspace = 5", f": workspace is 5; it must be {FOLDER}"),
        ('workspace = "gone"', ": workspace is gone, which is not there; it must be a directory"),
        ('workspace = "holdfast.toml"', ": workspace is holdfast.toml, which is a file; it must be a directory"),
        ("max_concurrent_runs = 0", ": max_concurrent_runs is 0; it must be a whole number, 1 or more"),
        ("max_queued_runs = -1", ": max_queued_runs is -1; it must be a whole number, 0 or more"),
        ("agent = 5", ": agent is 5; it must be a table"),
        ("agent.instructions = 5", ": agent.instructions is 5; it must be a text"),
        ("agent.max_turns = 1.5", f": agent.max_turns is 1.5; it must be {NO_LIMIT}"),
        ('agent.tools = "*"', ': agent.tools is "*"; it must be a list of names of tools'),
        ("budget.turns = true", f": budget.turns is true; it must be {NO_LIMIT}"),
        ("budget.tokens = 1.0", f": budget.tokens is 1.0; it must be {NO_LIMIT}"),
        ("budget.seconds = inf", ": budget.seconds is inf; it must be a number of seconds, 0 for no limit"),
        ("budget.money = nan", ": budget.money is nan; it must be a number, 0 for no limit"),
        ("tools.terminal = 1", ": tools.terminal is 1; it must be true or false"),
        ('tools.jail = "none"', ': tools.jail is "none"; it must be one of auto, bwrap, off'),
        ('tools.approval = "always"', ': tools.approval is "always"; it must be one of ask, deny, yolo'),
        ("tools.approval_timeout = -1", ": tools.approval_timeout is -1; it must be a number of seconds, 0 to wait for ever"),
        ("retention.days = -1", ": retention.days is -1; it must be a number of days, 0 to keep runs until they are deleted"),
        ("retention.deleted = -1", ": retention.deleted is -1; it must be a number of days, 0 to keep what was deleted for ever"),
        ('retention.deleted = "week"', ': retention.deleted is "week"; it must be a number of days, 0 to keep what was deleted for ever'),
        ("retention.day = 1", ": retention.day is not a setting; did you mean days?"),
        ("[mcp.x]", ": mcp.x must have either a command or a url"),
        ('mcp.x = { command = ["a"], url = "http://h" }', ": mcp.x must have either a command or a url"),
        ("mcp.x.command = []", ": mcp.x.command is a list; it must be a list of words, the first of which is a program"),
        ('mcp.x.command = "npx"', ': mcp.x.command is "npx"; it must be a list of words, the first of which is a program'),
        ('mcp.x.url = "h"', ': mcp.x.url is "h"; it must be an address with a host that begins with http:// or https://'),
        ('mcp.x.commandd = ["a"]', ": mcp.x.commandd is not a setting; did you mean command?"),
        ("mcp.x = 5", ": mcp.x is 5; it must be a table"),
        ("server.prot = 1", ": server.prot is not a setting; did you mean port?"),
        ("a = 1\nb", ", line 2: expected '=' after a key in a key/value pair"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(text, said, tmp_path):
    assert refusal(tmp_path, text) == f"holdfast.toml{said}"


def test_the_file_is_called_what_its_writer_called_it(tmp_path):
    (tmp_path / "my.toml").write_text('[models.main]\nwire = "demo"\npatience.first = "soon"\n')
    said = (
        'my.toml: models.main.patience.first is "soon";'
        " it must be a number of seconds, 0 to switch it off"
    )
    assert refusal(tmp_path, config="my.toml") == said
    assert refusal(tmp_path, environ={"HOLDFAST_CONFIG": "my.toml"}) == said


def test_a_bad_variable_is_refused_though_nothing_asks_for_it(tmp_path):
    assert refusal(tmp_path, environ={TTFB: "soon"}) == (
        f'{TTFB} is "soon"; it must be a number of seconds, 0 to switch it off'
    )


# --- junk ------------------------------------------------------------------------------


#: The words a file is made of, so that junk gets further than the first table.
WORDS = st.sampled_from(
    sorted({*TABLES.split(", "), *EXAMPLE.replace("[", " ").replace("]", " ").split()})
)
NAMES = WORDS | st.sampled_from(["main", "wire", "model", "patience", "first"]) | st.text()
LEAVES = (
    st.booleans()
    | st.integers()
    | st.floats()
    | WORDS
    | st.text()
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.just(KEY)
)
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=6,
)
MODELS = st.dictionaries(
    st.sampled_from(["main", "other"]),
    st.fixed_dictionaries(
        {"wire": st.sampled_from(["openai-chat", "anthropic", "demo"]), "model": st.just("m")},
        optional={
            name: JUNK | st.dictionaries(NAMES, JUNK, max_size=3)
            for name in (
                "base_url",
                "api_key_env",
                "fallback",
                "price",
                "headers",
                "patience",
                "retry",
                "options",
            )
        },
    ),
    max_size=2,
)
FILES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(TABLES.split(", "), JUNK) | {"models": MODELS | JUNK}
)


def toml(value):
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case date() | datetime() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(toml(item) for item in value)}]"
        case dict():
            items = (f"{toml(key)} = {toml(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
    return str(value)


def check_junk(folder, data):
    (folder / "holdfast.toml").write_bytes(data)
    environ = {"HOME": "/h/ada", "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    try:
        read_settings(environ=environ, cwd=folder, probe=nobody)
    except ConfigError as error:
        said = str(error)
        assert KEY not in said
        assert said.isprintable()
        assert len(said) < 1500


@given(file=FILES | st.dictionaries(NAMES, JUNK, max_size=3))
def test_junk_is_refused_in_a_sentence_that_repeats_no_key(tmp_path, file):
    text = "\n".join(f"{toml(key)} = {toml(value)}" for key, value in file.items())
    check_junk(tmp_path, text.encode())


@given(data=st.binary() | st.text().map(str.encode) | st.text("[]{}=.,\"'# \nab1").map(str.encode))
def test_what_is_no_file_at_all_is_refused_too(tmp_path, data):
    check_junk(tmp_path, data)
