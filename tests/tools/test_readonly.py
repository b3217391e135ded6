import pytest

from holdfast.tools.readonly import Found, Places, is_secret, objection
from holdfast.tools.shell import Command, Script, parse
from tests.tools.corpus import furnish, git


@pytest.fixture
def workspace(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    furnish(workspace, tmp_path)
    return workspace


@pytest.fixture
def why(workspace):
    return lambda text: objection(parse(text), Places(str(workspace), (str(workspace),)))


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "a/.env",
        ".ENV",
        "HEAD:.env",
        ":(top).env",
        "a/.ssh/x",
        "x.pem",
        "id_rsa",
        "．env",
        ".netrc",
    ],
)
def test_names_that_secrets_have_are_known(path):
    assert is_secret(path)


@pytest.mark.parametrize("path", ["env", "README.md", ".env.example", "environment", "a.keys", ""])
def test_other_names_are_not(path):
    assert not is_secret(path)


def test_what_is_read_through_a_tree_includes_its_secrets(why, workspace):
    assert why("grep -r x .") == ""
    assert why("rg x") == ""
    (workspace / "src/.env").write_text("KEY=1")
    # What is hidden is searched by rg if a file in the tree says so.
    for text in ("grep -r x", "grep -rn x src", "rg -g '.e*' x", "cd src && grep -r x", "rg x"):
        assert "src/.env" in why(text), text
    assert why("grep x src") == ""


def test_a_name_that_is_a_secret_in_one_folder_only_is_one_there(why, workspace):
    (workspace / "src/config.json").write_text("{}")
    assert why("grep -r x .") == ""
    (workspace / "src/.docker").mkdir()
    (workspace / "src/.docker/config.json").write_text("{}")
    (workspace / "src/way").symlink_to(".docker")
    for place in (".", "src", "src/.docker", "src/way", "src/way/"):
        assert "config.json, which looks like a secret" in why(f"grep -r x {place}"), place
        assert "config.json, which looks like a secret" in why(f"rg x {place}"), place


def test_a_folder_of_secrets_is_not_read_from_within(workspace):
    (workspace / ".aws").mkdir()
    (workspace / ".aws/config").write_text("x")
    places = Places(str(workspace), (str(workspace / ".aws"),))
    inside = str(workspace / ".aws")
    # What the workspace is called is nobody's secret.
    assert objection(parse("grep -r x"), Places(inside, (inside,))) == ""
    for text in ("grep -r x", "rg x", "rg --files", "grep -r x .", "cat config"):
        assert "secret" in objection(parse(text), places), text


def test_a_dash_is_also_a_name(why, workspace):
    for text in ("cat < -", "cat -", "test -f -", "ls -- -", "diff - README.md", "wc -l 0< -"):
        assert why(text) == "", text
    (workspace / "-").symlink_to("../outside.txt")
    for text in ("cat < -", "cat -", "test -f -", "ls -- -", "diff - README.md", "wc -l 0< -"):
        assert "outside the workspace" in why(text), text


def test_a_large_tree_is_not_looked_through_to_its_end(workspace):
    def looked(text):
        places = Places(str(workspace), (str(workspace),), found=Found(entries=20))
        return objection(parse(text), places)

    assert "too much" in looked("grep -r x .")
    assert looked("cd src && grep -r x .")
    assert looked("grep -r x src") == ""
    # What was looked through is not looked through again.
    assert looked("grep -r x src; " * 50) == ""


def test_paths_are_followed_so_often_and_no_more(workspace):
    def looked(text):
        places = Places(str(workspace), (str(workspace),), found=Found(paths=20))
        return objection(parse(text), places)

    assert looked("cat README.md; " * 20) == ""
    for text in ("cat README.md; " * 21, "cd src; " + "cat a.py; " * 10):
        assert looked(text) == "names more files than can be looked at", text


def test_ours_within_a_tree_is_not_read(workspace):
    places = Places(str(workspace), (str(workspace),), (str(workspace / "src/x"),))
    assert "ours" in objection(parse("grep -r x src"), places)
    assert objection(parse("grep -r x build"), places) == ""
    (workspace / "all").symlink_to("src")
    for text in ("grep -r x all", "rg x all", "grep -r x all/"):
        assert "ours" in objection(parse(text), places), text


def test_a_link_may_lead_anywhere_within(why, workspace):
    (workspace / "inner").symlink_to("src/a.py")
    (workspace / "key").symlink_to("keys/server.pem")
    assert why("cat inner") == ""
    assert "secret" in why("cat key")
    assert "outside" in why("cat link-out")
    # Whoever is outside may lead it elsewhere meanwhile.
    (workspace.parent / "in").symlink_to(workspace)
    assert "outside" in why("cat ../in/README.md")


CHANGES = (
    ("cd src && cat a.py", ""),
    ("cd src && cat ../README.md", "outside"),
    ("cd src; cat a.py < /etc/passwd", "outside"),
    ("cd src && cat < a.py", ""),
    ("cd src && cat < out", "outside"),
    ("cd src && ! cat < out | head", "outside"),
    ("cd src || cat README.md | wc < out 2>/dev/null && ls", "outside"),
    ("cd /etc", "outside"),
    ("cd inner-dir", "link"),
    ("cd src a", "one plain cd"),
    ("cd ''", "one plain cd"),
    ("cd *", "one plain cd"),
    ("cd src 2>/dev/null", "one plain cd"),
    ("cd -P", "to -P"),
    ("cd many && cd deep", ""),
    ("; ".join(f"cd d{number}" for number in range(4)), "too often"),
)


def test_a_plain_cd_is_followed(why, workspace):
    (workspace / "inner-dir").symlink_to("src")
    (workspace / "src/out").symlink_to("../../outside.txt")
    for text, cause in CHANGES:
        found = why(text)
        assert cause in found and bool(found) == bool(cause), (text, found)


TOLD = (
    ("cat < README.md", ""),
    ("cat < link-out", "outside"),
    ("cat < *", "elsewhere"),
    ("cat README.md > x", "writes to a file"),
    ("cat README.md | head 2>/dev/null", ""),
    ("ls &>/dev/null", ""),
    ("ls >&2", ""),
    ("sed -n 1p", ""),
    ("sed -n 1p -i x", "lines and files alone"),
    ("sed -n 1p /etc/passwd", "outside"),
    ("sed -n '1!p'", "more than printing"),
    ("find . -name", "no clear value"),
    ("find . -name -delete", "no clear value"),
    ("find . -mtime -3 -size -10k", ""),
    ("find . -name x y", "may do unasked"),
    ("find /etc", "outside"),
    ("diff README.md src/a.py", ""),
    ("diff src build", "directories"),
    ("diff - README.md", ""),
    ("diff -l README.md", "not on the list"),
    ("diff a b c", "more operands"),
    ("test -f README.md", ""),
    ("test -f /etc/passwd", "outside"),
    ("test ! a = b", ""),
    ("test -v x", "not on the list"),
    ("printf", "format"),
    ("printf %n x", "format"),
    ("printf '%s %5.2s%%\\n' x", ""),
    ("date", ""),
    ("date -d yesterday +%F", ""),
    ("date 01010101", "set the clock"),
    ("date -s 1", "not on the list"),
    ("pwd x", "more operands"),
    ("uniq README.md x", "more operands"),
    ("grep -e x /etc/passwd", "outside"),
    ("grep /etc/passwd README.md", ""),
    ("rg --files /etc", "outside"),
    ("basename /etc/passwd", ""),
    ("git", "uses git, which"),
    ("git push", "uses git push"),
    ("git --no-pager log -3", ""),
    ("git log '--format=%G?'", "signature"),
    ("git diff README.md /etc/passwd", "outside"),
    ("cat -", ""),
    ("frobnicate", "not on the list of programs"),
)


def test_each_program_is_told_only_what_it_may_be_told(why):
    for text, cause in TOLD:
        found = why(text)
        assert cause in found and bool(found) == bool(cause), (text, found)


def test_git_is_not_run_where_its_settings_name_a_program(why, workspace):
    assert why("git status") == ""
    with (workspace / ".git/config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./run\n")
    assert "fsmonitor" in why("git status")
    assert why("ls") == ""


SHOWING = """
    git diff
    git diff HEAD~1
    git diff --cached
    git diff --check
    git diff --stat -p
    git diff -U0 --name-only
    git diff -- README.md
    git show
    git show HEAD
    git show --stat HEAD
    git show 0123abcd
    git --no-pager log -p
    git log --patch -3
    git log -U1
    git log -S secret --oneline
    git log -G ^KEY=a
    git log -p -- '.e*'
    cd src && git diff
"""
BRIEF = """
    git status
    git log
    git log --stat -5
    git diff --stat
    git diff --name-only HEAD~1
    git diff --quiet
    git ls-files
    git blame README.md
    git branch -a
"""


def test_git_shows_no_content_where_a_secret_is_tracked(why, workspace):
    for line in (*SHOWING.strip().splitlines(), *BRIEF.strip().splitlines()):
        assert why(line.strip()) == "", line
    (workspace / "src/.env").write_text("KEY=1")
    assert why("git diff") == ""
    git(workspace, "add", "-f", "src/.env")
    for line in SHOWING.strip().splitlines():
        assert "src/.env, which looks like a secret" in why(line.strip()), line
    for line in BRIEF.strip().splitlines():
        assert why(line.strip()) == "", line


@pytest.mark.parametrize("name", [".ENV", "ｘ.pem", ".docker/config.json", "a/credentials.json/b"])
def test_a_tracked_secret_is_known_however_it_is_spelled(why, workspace, name):
    for other in (name, ".env.example", "a.keys", "ünder.txt"):
        (workspace / other).parent.mkdir(parents=True, exist_ok=True)
        (workspace / other).write_text("")
    git(workspace, "add", "-f", ".env.example", "a.keys", "ünder.txt")
    assert why("git diff") == ""
    git(workspace, "add", "-f", name)
    assert name in why("git diff")


def test_an_index_that_cannot_be_read_may_hold_secrets(why, workspace):
    git(workspace, "update-index", "--index-version", "4")
    assert why("git status") == ""
    assert "may hold secrets" in why("git diff")


def test_so_many_names_of_an_index_are_looked_at_and_no_more(workspace):
    for number in range(9):
        (workspace / f"ü{number}").write_text("")
    git(workspace, "add", "-A")
    places = Places(str(workspace), (str(workspace),), found=Found(entries=9))
    assert objection(parse("git diff;" * 9), places) == ""
    places = Places(str(workspace), (str(workspace),), found=Found(entries=8))
    assert "may hold secrets" in objection(parse("git diff"), places)


def test_a_command_without_words_does_nothing(workspace):
    places = Places(str(workspace), (str(workspace),))
    assert objection(Script((Command(),)), places) == ""
