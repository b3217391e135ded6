import pytest
from msgspec.structs import replace

from holdfast.tools.counting import Effort
from holdfast.tools.perils import MANY, Scene, question, refusal
from holdfast.tools.shell import parse
from holdfast.tools.wrappers import revealed


@pytest.fixture
def scene(tmp_path):
    (tmp_path / "workspace/src").mkdir(parents=True)
    workspace = str(tmp_path / "workspace")
    return Scene(workspace, (workspace,), (str(tmp_path / "ours"),), 4242)


INTENTS = (
    ("rm -rf x", ""),
    ("rm -rf $x", ""),
    ("rm -rf /tmp/x", ""),
    ("rm -rf ~/x", ""),
    ("rm -rf *", ""),
    ("rm -rf src/..", "the workspace itself"),
    ("rm -rf ../*", "the workspace and more"),
    ("cd src && rm -rf ../..", "the workspace"),
    ("rm -rf ../ours", "keeps this safe"),
    ("rm -rf ../our{s,}", ""),
    ("chmod -R u+w src", ""),
    ("chmod 755 /", ""),
    ("chmod -R 755 /", "destroys /"),
    ("chmod -R u+rwX .", ""),
    ("chown -R 1000 ./", ""),
    ("chmod -R go-w ..", "the workspace and more"),
    ("chown -R 1000 ~", "a home directory"),
    ("find / -name core -delete", ""),
    ("find / -delete", "destroys /"),
    ("find / -print", ""),
    ("dd if=/dev/sda of=x", ""),
    ("dd of=/dev//sda", "device"),
    ("tee x", ""),
    ("echo x > /dev/null", ""),
    ("mv a b", ""),
    ("mv a /dev/sda", "device"),
    ("mv ~ x", "moves"),
    ("init 3", ""),
    ("init 6", "stops"),
    ("systemctl restart x", ""),
    ("systemctl halt", "stops"),
    ("kill -1 5", ""),
    ("kill 5 -1", "every process"),
    ("kill -l", ""),
    ("pkill -l holdfast", "ends the process"),
    ("cat a=../ours/x", "keeps this safe"),
    ("cat --file=../ours/x", "keeps this safe"),
    ("cat ../ours2", ""),
    ("cat " + "x" * 5000, ""),
)


def test_intent_is_told_from_the_words(scene):
    for text, cause in INTENTS:
        found = refusal(text, revealed(parse(text).commands)[0], scene)
        assert cause in found and bool(found) == bool(cause), (text, found)


def test_the_root_is_not_destroyed_by_being_within_itself(scene):
    top = Scene("/", ("/",), ("/ours",))
    assert refusal("", parse("rm -r x").commands, top) == ""
    assert refusal("", parse("rm -r .").commands, top)


def test_what_ours_is_in_is_not_destroyed_either(scene, tmp_path):
    around = Scene(scene.workspace, scene.directories, (str(tmp_path / "data/deep/ours"),))
    assert "keeps this safe" in refusal("", parse("rm -r ../data").commands, around)
    assert refusal("", parse("ls ../data").commands, around) == ""


def test_nothing_is_ours_where_nothing_is_named(scene):
    bare = Scene(scene.workspace, scene.directories)
    text = "cat ../ours/x; kill 0; kill 4242"
    assert refusal(text, parse(text).commands, bare) == ""


def asked(text, scene):
    return question(revealed(parse(text).commands)[0], scene)


def test_up_to_twenty_files_are_deleted_unasked(scene, tmp_path):
    folder = tmp_path / "workspace/folder"
    (folder / "deep").mkdir(parents=True)
    for number in range(MANY):
        (folder / f"deep/{number}").write_text("")
    assert asked("rm -r folder", scene) == ""
    (tmp_path / "workspace/other").write_text("")
    assert "more than 20" in asked("rm -r folder other", scene)
    assert "more than 20" in asked("cd folder && rm -r ../other deep ../folder", scene)
    assert asked("rm -r other none", scene) == ""
    assert asked("find . -name x -delete", scene) == ""
    assert asked("find folder -delete", scene) == ""
    assert asked("find folder -print", scene) == ""


@pytest.fixture
def built(scene, tmp_path):
    """Many files, few of them made by a build."""
    for number in range(MANY + 1):
        (tmp_path / f"workspace/src/{number}.py").write_text("")
    (tmp_path / "workspace/src/cache").mkdir()
    (tmp_path / "workspace/src/cache/a.pyc").write_text("")
    (tmp_path / "workspace/a.PYC").write_text("")
    return scene


@pytest.mark.parametrize(
    "text",
    [
        "find . -name '*.pyc' -delete",
        "find . -iname '*.pyc' -type f -delete",
        "find . -type f -name a.PYC -exec rm {} +",
        "find src -maxdepth 1 -name '*.orig' -exec rm {} ';'",
    ],
)
def test_what_find_deletes_by_name_is_counted_by_name(built, text):
    assert asked(text, built) == ""


@pytest.mark.parametrize(
    "text",
    [
        "find . -name '*.py' -delete",
        "find . -iname '*.PY*' -delete",
        "find . -delete -name '*.pyc'",
        "find . -name '*.pyc' -o -delete",
        "find . -name '*.pyc' , -delete",
        "find . ! -name '*.pyc' -delete",
        "find . -not -name '*.pyc' -delete",
        "find . -path '*.pyc' -o -name x -delete",
        "find . -name *.pyc -delete",
        "find . -name '*.pyc' -exec rm -rf {} + -delete -o -exec rm {} +",
        "find . -name 'sr[c]' -exec rm -rf {} +",
        "find . -name . -exec rm -r {} +",
    ],
)
def test_what_find_deletes_by_more_than_names_is_counted_whole(built, text):
    assert "more than 20" in asked(text, built) or "cannot be counted" in asked(text, built)


def test_names_without_end_are_many(scene, tmp_path):
    for number in range(50):
        (tmp_path / f"workspace/src/{number}").write_text("")
    assert asked("find . -name x -delete", scene) == ""
    assert asked("find . -name x -delete", replace(scene, effort=Effort(entries=40)))


def test_a_link_is_one_file(scene, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for number in range(MANY + 1):
        (tmp_path / f"elsewhere/{number}").write_text("")
    (tmp_path / "workspace/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "workspace/src/link").symlink_to(tmp_path / "elsewhere")
    assert asked("rm -r link src", scene) == ""
    # What is outside the workspace, the jail holds.
    assert asked("rm -r ../elsewhere", scene) == ""


def test_folders_without_end_are_many(scene, tmp_path):
    for number in range(610):
        (tmp_path / f"workspace/deep/{number}").mkdir(parents=True)
    assert "more than 20" in asked("rm -r deep", scene)
    # All together, and not each by itself.
    scene = replace(scene, effort=Effort(folders=100))
    for number in range(60):
        (tmp_path / f"workspace/other/{number}").mkdir(parents=True)
    assert asked("rm -r other", scene) == ""
    assert "more than 20" in asked("rm -r other", scene)


def test_names_without_end_are_not_looked_up(scene):
    files = " ".join(map(str, range(101)))
    assert "can be counted" in asked(f"rm -r {files}", scene)
    assert "can be counted" in asked("rm -r x; " * 101, replace(scene, effort=Effort()))
    scene = replace(scene, effort=Effort(looks=20))
    text = "cat " + " ".join(f"src/{number}" for number in range(10)) + " ../ours/x"
    assert refusal("", parse(text).commands, scene) == ""
    assert scene.effort.spent and asked("ls", scene) == "names more files than can be looked at"


@pytest.mark.parametrize(
    "text",
    [
        "cat .env",
        "cat < .env",
        "cp id_rsa copy",
        "head -3 keys/server.pem",
        "grep KEY src/.env.local",
        "git show HEAD:.env",
        "find . -name x -exec cat .env +",
    ],
)
def test_reading_what_looks_like_a_secret_is_asked_about(scene, text):
    assert "looks like a secret" in asked(text, scene)


@pytest.mark.parametrize(
    "text", ["cp .env.example .env", "echo x > .env", "git commit -m 'fix .env'", "ls .env"]
)
def test_to_speak_of_a_secret_is_not_to_read_it(scene, text):
    assert asked(text, scene) == ""


def test_what_cannot_be_counted_is_asked_about(scene):
    for text in ("rm -r $x", "rm -rf *", "ls | xargs rm -r", "shred *"):
        assert "cannot be counted" in asked(text, scene), text
    assert asked("rm *", scene) == ""


def test_rsync_may_go_about_here(scene):
    assert asked("rsync -a src/ copy/", scene) == ""
    for text in ("rsync -a src/ host:x", "rsync x rsync://host/x", "rsync --delete-after a b"):
        assert asked(text, scene)


def test_to_ask_for_a_version_reaches_nowhere(scene):
    for text in ("docker --version", "sudo --version", "kubectl --help"):
        assert asked(text, scene) == ""
    for text in ("docker --version ps", "docker ps", "git restore --staged --worktree .", "ssh"):
        assert asked(text, scene)
    for text in ("git restore -SW .", "git rebase main", "git rebase --abort x"):
        assert asked(text, scene)


def test_what_git_can_bring_back_is_not_asked_about(scene):
    kept = "restore --staged .|restore -S .|rebase --abort|rebase --quit|tag v1|branch x|stash|stash list|gc|worktree remove x|worktree add x|restore x|switch x"
    for words in (*kept.split("|"), "clean -n", "reflog", "reset x", "commit --amend", ""):
        assert asked(f"git {words}", scene) == "", words
