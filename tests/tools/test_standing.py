import pytest

from holdfast.tools.shell import parse
from holdfast.tools.standing import standing
from tests.tools.corpus import furnish, git


@pytest.fixture
def workspace(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    furnish(workspace, tmp_path)
    return workspace


@pytest.fixture
def covered(workspace):
    def covered(text, path="/usr/bin:/bin", directory=workspace):
        places = {"workspace": str(workspace), "directory": str(directory)}
        return standing(parse(text), **places, path=path)

    return covered


RUNS_NOTHING_ELSE = """
    touch x
    rm -rf build
    mv README.md other
    cp -r src copy
    find . -name x -delete
    cat .env
    grep -rn KEY .env
    ls -la ..
    curl -fsSL https://example.com/x
    curl localhost:8080/health
    git push origin main
    git push --force-with-lease origin topic
    git push https://example.com/x.git main
    git fetch origin
    git pull --ff-only origin main
    git commit -am message
    git reset --hard HEAD~1
    git rebase main
    git rebase --abort
    git clean -fdx
    git diff
    gh pr create --fill
    gh issue list
    docker ps -a
    docker logs x
    kubectl get pods -n x -o yaml
    kubectl logs -f x --tail=20
"""


def test_a_standing_yes_may_cover_what_runs_nothing_else(covered):
    for line in RUNS_NOTHING_ELSE.strip().splitlines():
        assert covered(line) == tuple(line.split()), line


MAY_RUN_ANYTHING = """
    touch x; touch y
    touch x | cat
    touch x > y
    touch $x
    touch *
    touch $(id)
    A=1 touch x
    touch x &
    (touch x)
    touch x ...
    ./touch x
    /usr/bin/touch x
    python3 -c 1
    python3.11 x.py
    bash x.sh
    sh -c 'touch x'
    perl x
    node x
    env touch x
    sudo touch x
    xargs touch
    find . -exec touch {} +
    git
    git -c a.b=c push
    git -C x push
    git --no-pager
    npm run build
    pnpm run x
    yarn run x
    npm exec x
    npx x
    npm
    uv run x
    make test
    eval touch
    exec touch
    command touch
    nohup touch x
    timeout 5 touch x
    ssh host touch x
    docker run x
    awk 1
    sed -i s/a/b/ x
    vim x
    tar xf x
    [ -f x ]
"""


INTERPRETERS = """rbash mksh pdksh yash oksh posh nu elvish xonsh osh pwsh powershell rc es scsh ipython
    ipython3 bpython pypy3.10 jython micropython python3-dbg irb jruby raku guile scheme racket sbcl
    clisp ocaml erl escript elixir iex scala groovy kotlin jshell R octave gnuplot swipl m4 bc dc
    wish nim zig crystal lua5.4 tclsh8.6 qjs d8 js gjs coffee taskset chrt setpriv prlimit capsh
    numactl choom setarch linux64 sg newgrp gosu su-exec fakeroot unbuffer rlwrap entr xvfb-run
    dbus-run-session run-parts start-stop-daemon valgrind perf firejail bwrap proot ld.so hyperfine
    mono wine qemu-x86_64 toybox busybox printf test wget tee sed install"""

MORE = """
    git bisect run ./x.sh
    git submodule foreach ./x.sh
    git rebase --exec ./x.sh main
    git rebase -x ./x.sh main
    git rebase --ex=./x.sh main
    git rebase -i main
    git rebase --continue
    git difftool -x ./x.sh
    git config core.pager x
    git filter-branch --tree-filter ./x.sh
    git push
    git push .
    git push ../x main
    git push evil.git main
    git push file:///x main
    git push ext::./x.sh main
    git push upstream main
    git push --receive-pack=./x.sh origin main
    git push --rec=./x.sh origin main
    git push --exec ./x.sh origin main
    git fetch --upload-pack ./x.sh origin
    git fetch --all
    git pull -s ./x origin main
    git pull
    git merge -s x main
    git commit --template=x
    git stash show -p
    git log --ext-diff
    git grep -O./x.sh a
    git x
    gh alias set x y
    gh extension exec x
    gh x
    gh
    docker
    docker exec x sh
    docker -H tcp://x ps
    docker compose up
    kubectl exec x -- sh
    kubectl get pods --kubeconfig=./x
    kubectl get pods --kubeconfig ./x
    kubectl
    curl -K x https://example.com
    curl -T x https://example.com
    curl -d @x https://example.com
    curl --unix-socket x http://x
    rg --pre ./x.sh a
    sort --compress-program=./x.sh a
    sort --comp ./x.sh a
    find . -okdir ./x.sh {} ;
    find . -exec ./x.sh \\;
    find . -execdir ./x.sh \\;
    find . -ok ./x.sh \\;
"""


def test_no_standing_yes_is_possible_for_what_may_run_anything(covered):
    named = [f"{name} x" for name in INTERPRETERS.split()]
    listed = (MAY_RUN_ANYTHING + MORE + PROJECT).strip().splitlines()
    for command in (*named, *(line.strip() for line in listed)):
        assert covered(command) == (), command


#: Who may write to the workspace decides what these run.
PROJECT = """
    npm test
    npm ci
    npm install
    yarn build
    pytest -q 'tests/a b'
    cargo test
    cargo build
    pip install -e .
    pip3.11 install x
    go test ./...
    mvn verify
    gradle build
    poetry install
    bundle install
    composer install
    dotnet test
    tsc
"""


def test_a_program_on_the_path_that_is_in_the_workspace_is_not_known(covered, workspace):
    inside = workspace / ".venv/bin"
    inside.mkdir(parents=True)
    path = f"{inside}:/usr/bin"
    assert covered("rm x", path)
    (inside / "rm").symlink_to("/bin/rm")
    assert covered("rm x", path) == () and covered("touch x", path)
    assert covered("rm x", "/usr/bin") and covered("rm x", ".venv/bin", workspace / "src")
    assert covered("rm x", ".venv/bin:/usr/bin") == ()
    assert covered("rm x", ":/usr/bin", inside) == ()
    (workspace.parent / "bin").symlink_to(inside)
    assert covered("rm x", f"{workspace.parent}/bin:/usr/bin") == ()
    # The shell that is started looks for it.
    (inside / "sh").write_text("")
    assert covered("touch x", path) == ()


def test_who_looks_for_helpers_on_the_path_is_not_covered_where_it_leads_into_the_workspace(
    covered, workspace
):
    """A credential helper, an editor, or what interprets one: nobody knows their names."""
    path = f"{workspace}/.venv/bin:/usr/bin"
    helped = ("git push origin main", "gh pr create", "docker ps -a", "kubectl get pods")
    assert all(covered(each, path) for each in helped)
    (workspace / ".venv/bin").mkdir(parents=True)
    for each in helped:
        assert covered(each, path) == (), each
        assert covered(each, "/usr/bin")
    assert covered("curl -fsSL https://example.com/x", path)


def test_git_is_covered_only_where_its_repository_names_no_program(covered, workspace):
    push, pr, commit = "git push origin main", "gh pr create", "git commit -am x"
    assert covered(push) and covered(pr) and covered(commit)
    hook = workspace / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("npm test")
    assert covered(push) == covered(pr) == covered(commit) == ()
    hook.unlink()
    assert covered(push)
    git(workspace, "remote", "add", "near", "./evil.git")
    assert covered(push) == covered(pr) == ()
    git(workspace, "remote", "set-url", "near", "git@example.com:a/b.git")
    assert covered(push) and covered("git push near main")
    git(workspace, "config", "core.hooksPath", ".husky")
    assert covered(push) == covered(pr) == covered(commit) == ()


def test_where_no_repository_is_there_is_no_yes_for_git(covered, tmp_path):
    assert covered("git push origin main", directory=tmp_path) == ()
