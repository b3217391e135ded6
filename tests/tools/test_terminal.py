import json
import os
import time
from secrets import token_hex

import anyio
import anyio.lowlevel
import psutil
import pytest

from holdfast.core.approval import covers
from holdfast.errors import ToolError
from holdfast.ports import ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.tools.gate import safe_environment
from holdfast.tools.jail import open_jail
from holdfast.tools.terminal import MOST_OUTPUT, SYSTEM_PATH, Terminal, _home

pytestmark = pytest.mark.real_time

NETLESS = "echo > /dev/tcp/192.0.2.1/80"

#: Asked about even in a jail, and never run anywhere.
RISKY = "git push origin main"
REFUSED = "rm -rf /"


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    return folder.resolve()


@pytest.fixture
async def jail(workspace):
    jail = await open_jail(workspace)
    if isinstance(jail, str):
        pytest.fail(f"there is no jail to test: {jail}")
    return jail


@pytest.fixture
def free(workspace):
    """A terminal where there is no jail."""
    return Terminal(workspace, jail=None, why="bubblewrap is missing")


class TestTerminal(ToolContract):
    @pytest.fixture
    def tool(self, free):
        return free


class Using:
    """Somebody who uses a tool, and what they were told on the way."""

    def __init__(self):
        self.heard, self.ended = [], []

    def __call__(self, command, **rest):
        return self.use(asked(command, **rest))

    def use(self, arguments):
        return ToolUse(
            arguments=arguments,
            # Of its own, as always: what carries it is ended with it, whoever started that.
            effect_id=f"call_{token_hex(16)}",
            progress=self.hear,
            ended=self.ended.append,
        )

    async def hear(self, words):
        self.heard.append(words)


def asked(command, **rest):
    return json.dumps({"command": command, **rest})


def last_line(told):
    return told.splitlines()[-1]


# --- what it makes of a call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "missing required field `command`"),
        ({"command": ""}, "length >= 1"),
        ({"command": "a" * 65537}, "length <= 65536"),
        ({"command": "true", "timeout": 0}, ">= 1"),
        ({"command": "true", "timeout": 3601}, "<= 3600"),
        ({"command": "true", "access": "root"}, "Invalid enum value 'root'"),
        ({"command": "true", "background": True}, "unknown field `background`"),
        ({"command": "true", "workdir": "nowhere"}, "there is no directory 'nowhere'"),
        ({"command": "true", "workdir": "a\0b"}, "there is no directory"),
        ({"command": "true", "workdir": "loop"}, "there is no directory 'loop'"),
        ({"command": "true", "workdir": "file"}, "'file' is not a directory"),
        ({"command": "true", "workdir": ".."}, "'..' leads out of the workspace"),
        ({"command": "true", "workdir": "/"}, "'/' leads out of the workspace"),
        ({"command": "true", "workdir": "out"}, "'out' leads out of the workspace"),
        ({"command": "true", "workdir": "src/../../project-2"}, "leads out of the workspace"),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused_in_words(workspace, free, arguments, said):
    (workspace / "file").touch()
    (workspace / "loop").symlink_to("loop")
    (workspace / "out").symlink_to(workspace.parent)
    (workspace.parent / "project-2").mkdir()
    with pytest.raises(ToolError, match=said):
        free.review(json.dumps(arguments))
    with pytest.raises(ToolError, match=said):
        await free.run(Using().use(json.dumps(arguments)))


def test_a_directory_is_named_as_it_is_once_links_are_followed(workspace, free):
    (workspace / "link").symlink_to("src")
    for workdir in ("src", "link", "./src/../src/", str(workspace / "src")):
        binding = free.review(asked("ls", workdir=workdir)).binding
        assert f"directory: {workspace}/src\n" in binding


def test_a_yes_is_to_the_command_and_to_all_that_it_depends_on(workspace):
    terminal = Terminal(workspace, jail=None, environment={"CI": "1"}, path="/bin", home="/nowhere")
    review = terminal.review(asked("make  all\n", timeout=7))
    names = " ".join(sorted({"PATH", "HOME", "LANG", "TERM", "CI", "HOLDFAST_CALL"}))
    assert review.subject == "make  all\n"
    assert review.binding == (
        "run by: bash -c\n"
        f"directory: {workspace}\n"
        f"environment: {names}\n"
        "profile: no jail: runs as you, with the network\n"
        "timeout: 7 s"
    )


async def test_each_thing_that_a_call_depends_on_makes_it_another_call(workspace, jail):
    jailed = Terminal(workspace, jail=jail)
    plain = jailed.review(asked("make"))
    others = [
        jailed.review(asked("make", timeout=5)),
        jailed.review(asked("make", workdir="src")),
        jailed.review(asked("make", access="network")),
        jailed.review(asked("make", access="host")),
        Terminal(workspace, jail=jail, environment={"CI": "1"}).review(asked("make")),
    ]
    bindings = [review.binding for review in (plain, *others)]
    assert len(set(bindings)) == len(bindings)
    assert f"profile: {jail.profile(network=False)}\n" in plain.binding
    assert f"profile: {jail.profile(network=True)}\n" in others[2].binding
    assert plain == Terminal(workspace, jail=jail).review(asked("make"))


def test_without_a_jail_whatever_does_more_than_look_is_asked_about(free):
    assert free.review(asked("ls")).gate == "auto"
    review = free.review(asked("make"))
    assert review.gate == "ask"
    assert "there is no jail: bubblewrap is missing" in review.reason


async def test_in_the_jail_most_commands_run_unasked(workspace, jail):
    assert Terminal(workspace, jail=jail).review(asked("make")).gate == "auto"


@pytest.mark.parametrize("approval", ["ask", "yolo"])
@pytest.mark.parametrize("command", ["ls", "make"])
async def test_leaving_the_jail_and_the_network_are_always_asked_for(
    workspace, jail, approval, command
):
    terminal = Terminal(workspace, jail=jail, approval=approval)
    network = terminal.review(asked(command, access="network"))
    host = terminal.review(asked(command, access="host"))
    assert (network.gate, host.gate) == ("ask", "ask")
    assert network.reason.startswith("it wants the network")
    assert host.reason.startswith("it wants to run outside of the jail, as you")


async def test_yolo_asks_nobody_about_what_stays_in_the_jail(workspace, jail):
    risky = asked(RISKY)
    assert Terminal(workspace, jail=jail).review(risky).gate == "ask"
    assert Terminal(workspace, jail=jail, approval="yolo").review(risky).gate == "auto"
    assert Terminal(workspace, jail=None, approval="yolo").review(risky).gate == "ask"


async def test_what_is_refused_is_refused_everywhere(workspace, jail):
    refused = asked(REFUSED)
    for terminal in (
        Terminal(workspace, jail=jail, approval="yolo"),
        Terminal(workspace, jail=None, approval="yolo"),
    ):
        review = terminal.review(refused)
        assert review.gate == "refuse" and review.reason
    host = Terminal(workspace, jail=jail).review(asked(REFUSED, access="host"))
    assert host.gate == "refuse" and "wants to run outside" not in host.reason


async def test_a_standing_yes_reaches_no_further_than_where_it_was_given(workspace, jail):
    jailed, free = Terminal(workspace, jail=jail), Terminal(workspace, jail=None)
    command = "rm -r build"
    keys = [
        jailed.review(asked(command)).key,
        jailed.review(asked(command, access="network")).key,
        jailed.review(asked(command, access="host")).key,
    ]
    assert [key.partition(" ")[0] for key in keys] == ["jail", "network", "host"]
    # What would run unasked in the jail may be allowed for good with the network.
    wanted = jailed.review(asked("curl localhost", access="network"))
    assert wanted.key == 'network ["curl","localhost"]'
    assert json.loads(keys[0].partition(" ")[2]) == ["rm", "-r", "build"]
    # Without a jail everything runs as on the host, and nothing less covers it.
    for access in ("jail", "network", "host"):
        assert free.review(asked(command, access=access)).key == keys[2]


def test_a_standing_yes_reaches_no_other_directory(workspace, free):
    (workspace / "b 'ü'").mkdir()
    (workspace / "link").symlink_to("src")
    (workspace / os.fsdecode(b"odd\xff")).mkdir()
    (workspace / "odd").symlink_to(os.fsdecode(b"odd\xff"))
    keys = {
        workdir: free.review(asked("rm -r build", workdir=workdir)).key
        for workdir in (".", "src/..", "src", "link", "b 'ü'", "odd")
    }
    assert keys == {
        ".": 'host ["rm","-r","build"]',
        "src/..": 'host ["rm","-r","build"]',
        "src": 'host in "src" ["rm","-r","build"]',
        "link": 'host in "src" ["rm","-r","build"]',
        "b 'ü'": 'host in "b \'ü\'" ["rm","-r","build"]',
        "odd": "",
    }
    assert not covers(keys["."], keys["src"]) and not covers(keys["src"], keys["b 'ü'"])
    assert covers('host in "src" ["rm","..."]', keys["src"])


async def test_no_standing_yes_takes_code_of_the_workspace_out_of_the_jail(workspace, jail):
    """It can be written unasked and in the jail; then the same words run something else."""
    terminal = Terminal(workspace, jail=jail)
    for access in ("network", "host"):
        for command in ("npm test", "pytest -q", "pip install -e .", "python3 x.py"):
            review = terminal.review(asked(command, access=access))
            assert (review.gate, review.key) == ("ask", ""), (access, command)


def test_no_standing_yes_covers_a_program_that_the_workspace_provides(workspace):
    terminal = Terminal(workspace, jail=None, path=f"{workspace}/bin:/usr/bin")
    assert terminal.review(asked("rm -r build")).key
    (workspace / "bin").mkdir()
    (workspace / "bin/rm").write_text("")
    assert terminal.review(asked("rm -r build")).key == ""


async def test_what_the_jail_keeps_as_it_is_may_be_named_in_the_jail(workspace, jail):
    file, data = workspace / "holdfast.toml", workspace / "data"
    file.touch()
    terminal = Terminal(workspace, jail=jail, ours=(data,), kept=(file,))
    for command in ("cat holdfast.toml", "git add holdfast.toml"):
        assert terminal.review(asked(command)).gate == "auto"
        assert terminal.review(asked(command, access="network")).gate == "ask"
        assert terminal.review(asked(command, access="host")).gate == "refuse"
    for access in ("jail", "host"):
        assert terminal.review(asked("cat data/key", access=access)).gate == "refuse"


def test_there_is_no_standing_yes_to_what_cannot_be_read(free):
    assert free.review(asked("$(cat command)")).key == ""


def test_it_says_what_it_is_and_for_which_workspace(workspace, free):
    spec = free.spec
    assert (spec.name, spec.writes, spec.network, spec.repeatable, spec.parallel) == (
        "terminal",
        True,
        True,
        False,
        False,
    )
    assert spec.output == 30_000
    # Its own limits come first, and they can tell what was said until then.
    assert spec.timeout > json.loads(spec.schema)["properties"]["timeout"]["maximum"]
    assert free.workspace == str(workspace)
    assert "There is no jail here" in spec.description


async def test_a_model_is_told_of_the_jail(workspace, jail):
    description = Terminal(workspace, jail=jail).spec.description
    assert "in a jail" in description and "There is no jail" not in description
    # What would surprise there.
    assert "git init" in description and "Unix sockets" in description


# --- running


async def test_a_command_runs_in_the_jail_and_its_output_and_code_are_told(workspace, jail):
    using = Using()
    told = await Terminal(workspace, jail=jail).run(using("echo one; echo two >&2; pwd; exit 3"))
    *output, last = told.splitlines()
    assert output == ["one", "two", str(workspace)]
    assert last.startswith("[exit code 3, ") and last.endswith(" s]")
    assert "".join(using.heard) == f"one\ntwo\n{workspace}\n"
    assert using.ended == []


async def test_silence_is_told_too(free):
    told = await free.run(Using()("true"))
    assert told.startswith("(no output)\n[exit code 0, 0.")


async def test_a_command_runs_where_it_was_asked_to(workspace, free):
    assert (await free.run(Using()("pwd", workdir="src"))).startswith(f"{workspace}/src\n")


async def test_the_jail_has_no_network_unless_it_was_asked_for(workspace, jail):
    terminal = Terminal(workspace, jail=jail)
    interfaces = "tail -n +3 /proc/net/dev | wc -l"
    assert "unreachable" in await terminal.run(Using()(f"bash -c '{NETLESS}' 2>&1"))
    alone = int((await terminal.run(Using()(interfaces))).splitlines()[0])
    host = int((await terminal.run(Using()(interfaces, access="host"))).splitlines()[0])
    shared = int((await terminal.run(Using()(interfaces, access="network"))).splitlines()[0])
    assert alone <= 1 and shared == host


async def test_the_host_is_outside_of_the_jail(workspace, jail, tmp_path):
    terminal = Terminal(workspace, jail=jail)
    outside = tmp_path / "outside"
    await terminal.run(Using()(f"echo hello > {outside}"))
    assert not outside.exists()
    assert "exit code 0" in await terminal.run(Using()(f"echo hello > {outside}", access="host"))
    assert outside.read_text() == "hello\n"


@pytest.mark.parametrize("access", ["jail", "host"])
async def test_nothing_of_our_environment_gets_in(workspace, jail, access, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    terminal = Terminal(workspace, jail=jail, environment={"CI": "yes"}, home="/nowhere")
    told = await terminal.run(Using()("env", access=access))
    found = dict(line.split("=", 1) for line in told.splitlines()[:-1])
    assert "SOME_API_KEY" not in found
    assert found["CI"] == "yes" and found["PATH"] == SYSTEM_PATH
    assert (found["HOME"] == "/nowhere") == (access == "host")
    # What a person was shown, and what the shell and we add of our own.
    names = terminal.review(asked("env", access=access)).binding.splitlines()[2].split()[1:]
    assert set(found) - set(names) <= {"PWD", "SHLVL", "_", "OLDPWD"}


async def test_what_runs_unasked_without_a_jail_gets_the_environment_it_was_judged_by(workspace):
    terminal = Terminal(workspace, jail=None, environment={"CI": "yes", "GIT_PAGER": "evil"})
    for command in ("ls", "make"):
        gate = terminal.review(asked(command)).gate
        binding = terminal.review(asked(command)).binding
        assert ("GIT_CONFIG_GLOBAL" in binding) == (gate == "auto")
        assert (" CI " in binding) == (gate == "ask")
    os.mkfifo(workspace / "fifo")
    assert terminal.review(asked("cat fifo")).gate == "auto"
    ours, before = psutil.Process(), psutil.Process().children()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(terminal.run, Using()("cat fifo"))
        with anyio.fail_after(5):
            while not (new := [child for child in ours.children() if child not in before]):
                await anyio.sleep(0.005)
            while (found := new[0].environ()).pop("HOLDFAST_CALL", "").startswith("call_") is False:
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    safe = safe_environment(workspace)
    assert found == found | safe
    assert set(found) - set(safe) <= {"PWD", "SHLVL", "_", "OLDPWD"}
    # Git looks for no repository above the workspace.
    assert found["GIT_CEILING_DIRECTORIES"] == str(workspace.parent)


async def test_what_is_refused_does_not_run_whoever_asks(workspace, free):
    (workspace / "here").touch()
    with pytest.raises(ToolError, match="not run: this command is refused"):
        await free.run(Using()("rm -rf ."))
    assert (workspace / "here").exists()


async def test_what_is_held_by_its_ruling_alone_is_judged_by_how_things_are_now(workspace, free):
    (workspace / "link").symlink_to("src")
    assert free.review(asked("ls link")).gate == "auto"
    (workspace / "link").unlink()
    (workspace / "link").symlink_to(workspace.parent)
    with pytest.raises(ToolError, match="not be what was looked at"):
        await free.run(Using()("ls link"))


async def test_what_the_jail_holds_is_not_judged_again_when_it_is_run(workspace, jail, tmp_path):
    """Whoever runs it has just had it reviewed, and everybody waits while a command is judged."""
    terminal = Terminal(workspace, jail=jail, ours=(tmp_path / "ours",))
    (workspace / "link").symlink_to("src")
    assert terminal.review(asked("ls link")).gate == "auto"
    (workspace / "link").unlink()
    (workspace / "link").symlink_to(tmp_path / "ours")
    assert "exit code" in await terminal.run(Using()("ls link"))
    # Once.
    with pytest.raises(ToolError, match="refused"):
        await terminal.run(Using()("ls link"))


async def test_of_many_reviews_the_last_are_remembered(workspace, free):
    for number in range(100):
        free.review(asked(f"rm -rf / {number}"))
    for number in (0, 99):
        with pytest.raises(ToolError, match="refused"):
            await free.run(Using()(f"rm -rf / {number}"))
    assert len(free._ruled) < 10


async def test_many_commands_at_once_do_not_stop_everybody_else(workspace, jail):
    """They start one after the other, and others have their turn in between."""
    terminal = Terminal(workspace, jail=jail)
    # One of three: the machine has other things to do.
    assert min([await longest_wait(terminal) for _ in range(3)]) < 0.25


async def longest_wait(terminal):
    """For a turn while forty commands are run: as a part of the time that they take in all."""
    longest, over, start = 0.0, False, time.monotonic()

    async def watch():
        nonlocal longest
        while not over:
            began = time.monotonic()
            await anyio.lowlevel.checkpoint()
            longest = max(longest, time.monotonic() - began)

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        async with anyio.create_task_group() as tasks:
            for access in ("jail", "host"):
                for _ in range(20):
                    tasks.start_soon(terminal.run, Using()("true", access=access))
        over = True
    return longest / (time.monotonic() - start)


async def test_a_home_is_the_one_of_the_user(free):
    assert (await free.run(Using()("echo $HOME"))).startswith(f"{_home(os.getuid())}\n")
    assert _home(2**32 - 2) == "/"


async def test_output_is_kept_up_to_a_limit_and_the_rest_is_counted(free):
    told = await free.run(Using()(f"head -c {MOST_OUTPUT + 7} /dev/zero | tr '\\0' a"))
    output, note, last = told.rsplit("\n", 2)
    assert len(output) == MOST_OUTPUT == 16 * 1024 * 1024
    assert note == "[7 more characters were not kept]"
    assert last.startswith("[exit code 0")


async def overrun(terminal, using, command, access):
    began = time.monotonic()
    with pytest.raises(ToolError, match="ended after 1 s, its limit; it may") as error:
        await terminal.run(using(command, timeout=1, access=access))
    assert 1 <= time.monotonic() - began < 20
    assert len(using.ended) == 1 and "killed" in using.ended[0]
    return error.value.output


async def test_a_command_whose_time_is_up_is_ended_and_what_it_said_is_told(workspace, jail):
    terminal = Terminal(workspace, jail=jail)
    told = {}

    async def tell(command, access):
        told[command, access] = await overrun(terminal, Using(), command, access)

    async with anyio.create_task_group() as tasks:
        for access in ("jail", "host"):
            tasks.start_soon(tell, "echo begun; sleep 60; echo over", access)
        tasks.start_soon(tell, "seq 100000; sleep 60", "jail")
        tasks.start_soon(tell, "sleep 60", "jail")
    by_command = {command: words for (command, _), words in told.items()}
    assert [words for (c, _), words in told.items() if c.startswith("echo")] == ["begun\n"] * 2
    much = by_command["seq 100000; sleep 60"]
    assert much == "".join(f"{n}\n" for n in range(1, 100001))
    assert by_command["sleep 60"] == "(no output)\n"


async def test_of_a_command_whose_time_is_up_no_more_is_kept_than_of_any(free):
    words = await overrun(free, Using(), "yes; sleep 60", "host")
    assert words.endswith("y\ny\n[what came after that was not kept]\n")
    assert len(words) < MOST_OUTPUT + 100


def those_that_sleep(seconds):
    """Whoever started them, and whoever they belong to now."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["cmdline"] == ["sleep", seconds]
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


async def stopped_within(terminal, access):
    """Seconds from cancelling a command that has three processes to the end of all of them."""
    using, seconds = Using(), f"60.{time.monotonic_ns()}"
    command = f"sleep {seconds} & (setsid sleep {seconds} &) ; sleep {seconds}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(terminal.run, using(command, access=access))
        with anyio.fail_after(10):
            while len(those_that_sleep(seconds)) < 3:
                await anyio.sleep(0.005)
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    taken = time.monotonic() - began
    assert those_that_sleep(seconds) == []
    assert using.ended and "killed" in using.ended[0]
    return taken


@pytest.mark.parametrize("access", ["jail", "host"])
async def test_a_stop_ends_all_of_it_at_once(workspace, jail, access):
    terminal = Terminal(workspace, jail=jail)
    before = psutil.Process().children()
    # One of five: the machine has other things to do.
    assert min([await stopped_within(terminal, access) for _ in range(5)]) < 0.1
    # Waited for: not even a zombie of ours is left.
    assert psutil.Process().children() == before


async def test_a_jail_that_fails_its_test_runs_nothing(workspace, jail):
    tests = []

    async def tested():
        tests.append(1)
        return "it leaks" if len(tests) < 3 else ""

    terminal = Terminal(workspace, jail=jail, tested=tested)
    for _ in range(2):
        with pytest.raises(ToolError, match="not run: it leaks"):
            await terminal.run(Using()("touch here"))
    assert not (workspace / "here").exists()
    # It can prove itself later, and then it has.
    for _ in range(2):
        await terminal.run(Using()("touch here"))
    assert (workspace / "here").exists() and len(tests) == 3


async def test_a_command_outside_of_the_jail_does_not_wait_for_its_test(workspace, jail):
    async def tested():
        raise AssertionError("nobody asked for the jail")

    terminal = Terminal(workspace, jail=jail, tested=tested)
    assert "exit code 0" in await terminal.run(Using()("true", access="host"))


async def test_no_shell_that_the_workspace_provides_runs_a_command(workspace):
    planted = workspace / "bash"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    terminal = Terminal(workspace, jail=None, path=f"{workspace}:/usr/bin:/bin")
    assert "planted" not in await terminal.run(Using()("mkdir made"))
