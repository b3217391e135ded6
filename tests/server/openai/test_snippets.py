"""What docs/clients.md shows, run against a server as a reader would run it."""

import json
import os
import shutil
import subprocess
import venv
from collections import defaultdict
from functools import partial

import anyio
import anyio.to_thread
import pytest

from tests.server.conftest import DEMO, PATIENCE, Server
from tests.test_docs import ROOT, snippets

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(90)]

PAGE = ROOT / "docs/clients.md"
SNIPPETS = list(snippets("docs/clients.md", PAGE.read_text()))
SERVED = [one for one in SNIPPETS if "served" in one.words]


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """As the page says it should be, for a server of the demo model."""
    server = Server(tmp_path_factory.mktemp("snippets"))
    calm = '[tools]\nterminal = false\napproval = "deny"\n'
    server.launch('[models.demo]\nwire = "demo"\noptions = { pace = 0 }\n' + calm)
    anyio.run(server.ready)
    named = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": server.key}
    yield {**os.environ, **named}  # noqa: TID251 (to be handed on)
    server.kill()


def run(words, environ, **options):
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=60, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def written_in(language):
    found = [one for one in SERVED if one.language == language]
    assert found
    return pytest.mark.parametrize("snippet", found, ids=str)


def test_nothing_on_the_page_is_left_out():
    assert {one.language for one in SERVED} == {"python", "js", "sh"}


@written_in("python")
def test_a_python_snippet_runs(snippet, environ, monkeypatch, capsys):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, environ[name])
    names = {"__name__": "__main__"}
    try:
        exec(snippet.body, names)
    finally:
        names["client"].close()
    assert "That was all I can show." in capsys.readouterr().out


@written_in("sh")
def test_a_curl_snippet_runs(snippet, environ):
    if not shutil.which("curl"):
        pytest.skip("there is no curl here")
    said = run(["sh", "-ec", snippet.body], environ)
    assert '"id":"demo"' in said and "data: [DONE]" in said


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory):
    """Where the official client for node is. It has to be fetched, so this is for the long tests."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no node here")
    folder = tmp_path_factory.mktemp("node")
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "openai"]
    done = subprocess.run(install, cwd=folder, capture_output=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip("the client could not be fetched")
    return folder


@pytest.fixture(scope="module")
def langchain(tmp_path_factory):
    """A Python that has it, in an environment of its own: it has much in its train."""
    folder = tmp_path_factory.mktemp("langchain")
    venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "langchain-openai"]
    done = subprocess.run(install, capture_output=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip("the client could not be fetched")
    return python


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_snippet_for_langchain_runs(environ, langchain):
    (snippet,) = [one for one in SNIPPETS if "langchain" in one.words]
    said = run([langchain, "-c", snippet.body], environ)
    first, second = "That was all I can show.", "Say the word “note”"
    # The second is said in the session of the first, the third by itself.
    assert [said.count(words) for words in (first, second)] == [2, 1]


@pytest.mark.soak
@written_in("js")
def test_a_javascript_snippet_runs(snippet, environ, node_folder):
    (node_folder / "snippet.mjs").write_text(snippet.body)
    said = run(["node", "snippet.mjs"], environ, cwd=node_folder)
    assert said.count("That was all I can show.") == 2


@pytest.mark.soak
async def test_the_official_client_for_node_is_served_as_the_other_is(host, environ, node_folder):
    shutil.copy(ROOT / "tests/server/openai/client.mjs", node_folder)
    named = {"OPENAI_BASE_URL": f"{host.url}/v1", "OPENAI_API_KEY": host.key}
    run_it = partial(run, ["node", "client.mjs"], {**environ, **named}, cwd=node_folder)
    assert json.loads(await anyio.to_thread.run_sync(run_it)) == {
        "chat": "Hello!",
        "streamed": "Hello!",
        "parsed": {"sum": 2},
        "rest": "lo!",
        "whole": "Hello!",
        "followed": "Hello!",
        "cancelled": "cancelled",
        "items": ["user"],
        "refused": ["BadRequestError", 400, "unsupported_n"],
        "missing": ["NotFoundError", 404, "response_not_found"],
        "stranger": ["AuthenticationError", 401, "invalid_api_key"],
    }


def begin(words, environ, folder, told):
    with told.open("w") as out:
        return subprocess.Popen(
            words, env=environ, cwd=folder, stdout=out, stderr=subprocess.DEVNULL
        )


async def lines(process, told, count):
    """What it has told, once that are so many lines or it has ended by itself."""
    with anyio.fail_after(PATIENCE):
        while told.read_text().count("\n") < count and process.poll() is None:
            await anyio.sleep(0.01)
    return [json.loads(line) for line in told.read_text().rpartition("\n")[0].split("\n") if line]


@pytest.mark.soak
async def test_a_response_outlives_its_client_for_node_and_its_server(
    server, environ, node_folder, tmp_path
):
    shutil.copy(ROOT / "tests/server/openai/client.mjs", node_folder)
    pieces = [f"w{n} " for n in range(40)]
    script = json.dumps([[one for piece in pieces for one in (piece, {"wait": 0.15})]])
    heard = []

    async def hear(*words, count):
        """Go on from what was heard; then it is killed, unless it has heard the end."""
        told = tmp_path / "told"
        named = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": server.key}
        process = begin(["node", "client.mjs", *words], {**environ, **named}, node_folder, told)
        try:
            heard.extend(await lines(process, told, count))
        finally:
            process.kill()
            process.wait()

    await server.start_host("[server]\ndrain = 0\n" + DEMO)
    await hear("begin", script, count=8)
    id = heard[0][2]
    await hear("resume", id, str(heard[-1][0]), count=8)
    server.kill()
    assert "completed" not in str(heard) and len(heard) < len(pieces)
    await server.start_host()
    await hear("resume", id, str(heard[-1][0]), count=10_000)
    said = defaultdict(str)
    for _, text, item in heard:
        said[item] += text
    # The attempt that was cut off, and the one that stands.
    cut_off, whole = filter(None, said.values())
    assert whole == "".join(pieces) and whole.startswith(cut_off)
    numbers = [number for number, _, _ in heard]
    assert numbers == sorted(set(numbers))
    run_id = id.replace("resp", "run")
    journal = (await server.get(f"/v1/runs/{run_id}/journal")).json["data"]
    assert [one["event"]["type"] for one in journal].count("run.started") == 2
    final = (await server.get(f"/v1/responses/{id}")).json
    (message,) = final["output"]
    assert (final["status"], message["content"][0]["text"]) == ("completed", whole)
    assert heard[-1][2] == id
