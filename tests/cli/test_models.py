"""`holdfast models`, as a process, against a real endpoint."""

import json

import anyio
import pytest

from holdfast.testing.endpoint import Answer, Raw, open_endpoint
from holdfast.testing.scripted import Silence

pytestmark = pytest.mark.real_time

MAIN = """
default_model = "main"
[models.main]
wire = "openai-chat"
model = "gpt-test"
base_url = "{url}"
api_key_env = "MY_TEST_KEY"
fallback = ["demo"]
[models.main.patience]
first = 0.3
[models.demo]
wire = "demo"
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    def write(url="http://127.0.0.1:9/v1"):
        file = tmp_path / "holdfast.toml"
        file.write_text(MAIN.format(url=url))
        monkeypatch.setenv("MY_TEST_KEY", "sk-canary-12345")
        return ("--config", str(file))

    return write


async def run(holdfast, *arguments):
    return await anyio.to_thread.run_sync(lambda: holdfast(*arguments))


def test_the_models_are_listed_with_the_default_marked(holdfast, config):
    done = holdfast("models", *config())
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "WIRE", "MODEL", "KEY", "FALLBACK", "WHERE"]
    assert lines[1].split()[:5] == ["main", "*", "openai-chat", "gpt-test", "MY_TEST_KEY"]
    assert lines[2].split()[:2] == ["demo", "demo"]
    assert b"sk-canary" not in done.stdout + done.stderr


def test_a_program_is_told_the_same(holdfast, config):
    done = holdfast("models", "--json", *config())
    main, demo = [json.loads(line) for line in done.stdout.splitlines()]
    assert (main["name"], main["default"], main["fallback"]) == ("main", True, ["demo"])
    assert (demo["name"], demo["default"]) == ("demo", False)
    assert b"sk-canary" not in done.stdout


async def test_a_model_that_answers_says_how_fast(holdfast, config):
    async with open_endpoint([Silence(0.1), "Hello", " there"]) as endpoint:
        done = await run(holdfast, "models", "main", *config(endpoint.url))
    assert done.returncode == 0, done.stderr
    assert b"first event after 0." in done.stdout and b"Hello there" in done.stdout
    assert b"price unknown" in done.stdout


async def test_a_program_gets_the_numbers(holdfast, config):
    async with open_endpoint([Silence(0.1), "Hello"]) as endpoint:
        done = await run(holdfast, "models", "main", "--json", *config(endpoint.url))
    trial = json.loads(done.stdout)
    assert trial["ok"] and 0.1 <= trial["first_event"] <= trial["whole"]
    assert trial["cost"] is None and trial["text"] == "Hello"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([Silence()], b"TTFB limit 0.3 s"),
        ([Answer(401, '{"error": {"message": "bad key sk-canary-12345"}}')], b"bad key [secret]"),
        ([Answer(200, "<p>", {"Content-Type": "text/html"})], b"is base_url right?"),
    ],
    ids=["silent", "refused", "wrong address"],
)
async def test_a_model_that_does_not_says_why(holdfast, config, script, words):
    async with open_endpoint(script) as endpoint:
        done = await run(holdfast, "models", "main", *config(endpoint.url))
    assert done.returncode == 1
    assert b"main did not answer: " in done.stderr and words in done.stderr
    assert b"sk-canary" not in done.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize(
    ("event", "code"),
    [
        (b'{"choices":[{"delta":{"content":"Hi \\ud83d"},"finish_reason":"stop"}]}', 0),
        (b'{"error":{"message":"no \\ud83d"}}', 1),
    ],
    ids=["reply", "error"],
)
async def test_what_it_said_is_told_whatever_it_is_made_of(holdfast, config, event, code, flags):
    async with open_endpoint([Raw(b"data: " + event + b"\n\n")]) as endpoint:
        done = await run(holdfast, "models", "main", *flags, *config(endpoint.url))
    assert done.returncode == code and b"Traceback" not in done.stderr
    assert b"ud83d" in done.stdout + done.stderr


def test_nobody_there_is_said(holdfast, config):
    done = holdfast("models", "main", *config())
    assert done.returncode == 1
    assert b"cannot be reached (is base_url right?)" in done.stderr


def test_the_demo_always_answers(holdfast):
    done = holdfast("models", "demo")
    assert done.returncode == 0 and b"I am the built-in demo" in done.stdout


def test_a_model_that_is_not_configured_is_refused(holdfast, config):
    for command in (("models", "nope"), ("run", "hello", "--model", "nope")):
        done = holdfast(*command, *config())
        assert done.returncode == 2
        assert b"there is no model 'nope'; those configured are: main, demo" in done.stderr


async def test_a_run_uses_the_configured_model(holdfast, config):
    async with open_endpoint(["Hello from afar"]) as endpoint:
        done = await run(holdfast, "run", "hi", *config(endpoint.url))
    assert (done.returncode, done.stdout) == (0, b"Hello from afar\n")
    assert endpoint.requests[0].headers["authorization"] == "Bearer sk-canary-12345"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.main]\nwire = 'smoke'\nmodel = 'm'", "models.main.wire"),
        ("[models.main]\nwire = 'openai-chat'", "models.main.model"),
        ("[models.main.patience]\nfirst = 'soon'", "models.main"),
        ("[models.main]\nwire = 'demo'\nsize = 1", "size"),
        (
            "[models.main]\nwire='openai-chat'\nmodel='m'\napi_key_env='NOT_SET_AT_ALL'",
            "NOT_SET_AT_ALL",
        ),
        ("models = [", "holdfast.toml"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_sentence_that_names_it(
    holdfast, tmp_path, text, words
):
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    done = holdfast("models", "--config", str(file))
    assert done.returncode == 78
    complaint = done.stderr.decode().strip()
    assert words in complaint and "\n" not in complaint


def test_a_file_that_is_not_there_is_one_too(holdfast, tmp_path):
    done = holdfast("run", "hi", "--config", str(tmp_path / "none.toml"))
    assert done.returncode == 78 and b"none.toml" in done.stderr
