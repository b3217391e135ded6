"""The key of a data directory goes to the server that owns it, and to no other that is named."""

import socket
import threading
from contextlib import aclosing, contextmanager, suppress

import anyio
import pytest

from holdfast.cli.far import Far
from holdfast.errors import ConfigError
from holdfast.stores.owner import own
from tests.cli.test_far import HEAD, KEY, journal, serving, strangers

pytestmark = pytest.mark.real_time

REFUSAL = b"HTTP/1.1 401 No\r\nConnection: close\r\n\r\n"

EVERY_COMMAND = [
    "run hello",
    "runs",
    "show run_x",
    "tail run_x",
    "resume run_x",
    "stop run_x",
    "approve run_x once",
    "sessions",
    "sessions show ses_x",
    "sessions rename ses_x title",
    "sessions pin ses_x",
    "sessions unpin ses_x",
    "sessions archive ses_x",
    "sessions unarchive ses_x",
    "sessions delete ses_x --yes",
    "sessions restore ses_x",
    "sessions export ses_x",
    "sessions import FILE",
]


@contextmanager
def listener():
    """Something that refuses whoever asks. Yields its address, and all that it was told."""
    heard = []

    def listen():
        with suppress(OSError):
            while True:
                line, _ = door.accept()
                with line:
                    heard.append(line.recv(65536))
                    line.sendall(REFUSAL)
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(65536):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=listen)  # noqa: TID251 (the command has the main one)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}", heard
        door.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def kept(data, monkeypatch):
    """The data directory has a key, and nobody has set another."""
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)
    data.mkdir(mode=0o700)
    (data / "api_key").write_text(f"{KEY}\n")


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_a_server_that_is_named_is_not_shown_the_key_of_the_directory(command, tmp_path, words):
    (tmp_path / "session.json").write_text("{}")
    words = words.replace("FILE", str(tmp_path / "session.json"))
    with listener() as (url, heard):
        code, output, said = command(*words.split(), "--url", url)
    assert heard and not any(b"authorization" in each.lower() for each in heard)
    wants = f"the server at {url} wants a key, and there is none for it here"
    assert (code, output) == (78, "")
    assert said == f"holdfast: {wants}; set HOLDFAST_API_KEY to its own\n"


def test_it_is_shown_the_key_that_is_set_for_it(command, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", "hf_of_another_server_0123456789")
    with listener() as (url, heard):
        code, _, said = command("runs", "--url", url)
    assert b"Authorization: Bearer hf_of_another_server_0123456789\r\n" in heard[0]
    assert code == 78 and "the server does not know the key" in said


@contextmanager
def owned(data, address):
    """The directory has an owner that listens at this address."""
    with anyio.from_thread.start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(own(data, address=address)):
            yield


def test_the_owner_of_the_directory_is_shown_its_key_also_by_its_address(command, data):
    with listener() as (url, heard), owned(data, url):
        command("runs", "--url", url)
        command("runs", "--url", f"{url}/")
        command("stop", "run_x")
    assert [KEY.encode() in each for each in heard] == [True, True, True]


def test_nobody_at_another_address_is_taken_for_the_owner(command, data):
    with listener() as (url, heard), owned(data, "http://127.0.0.1:1"):
        assert command("runs", "--url", url)[0] == 78
    with listener() as (url, heard), owned(data, url):
        # Where this leads is for the machine to say, and may be to somebody else.
        command("runs", "--url", url.replace("127.0.0.1", "localhost"))
    assert not any(KEY.encode() in each for each in heard)


def test_an_owner_that_is_gone_is_shown_nothing(command, data):
    with listener() as (url, heard):
        with owned(data, url):
            pass
        (data / "owner").write_text(f"1\n{url}\n\n\n\n")
        assert command("runs", "--url", url)[0] == 78
    assert not any(KEY.encode() in each for each in heard)


def test_a_server_that_wants_no_key_needs_none(tmp_path, holdfast):
    config = tmp_path / "open.toml"
    config.write_text(
        '[models.demo]\nwire = "demo"\noptions = { pace = 0 }\n'
        '[tools]\nterminal = false\n[server]\nauth = "none"\n'
    )
    with serving(tmp_path / "elsewhere", 0, "--config", str(config)) as (url, _):
        done = holdfast("run", "hello", "--url", url)
    assert done.returncode == 0, done.stderr


async def test_who_has_no_key_shows_none_while_following_either():
    heard = []

    async def answer(request, send):
        heard.append(request)
        await send(journal(request, 1 + len(heard)) if b"/journal?" in request else HEAD)

    async with strangers(answer) as url, aclosing(Far(url, "").follow("run_1")) as news:
        assert [recorded.seq async for recorded in news] == [1, 2, 3]
    assert any(b"/events" in each for each in heard)
    assert not any(b"authorization" in each.lower() for each in heard)


NO_PASSWORD = "--url has an @ in it; an address must not hold a name or a password"


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_a_password_in_an_address_is_refused_and_not_repeated(command, tmp_path, words):
    (tmp_path / "session.json").write_text("{}")
    words = words.replace("FILE", str(tmp_path / "session.json"))
    said = command(*words.split(), "--url", "http://ada:hunter2@127.0.0.1:1")
    assert said == (78, "", f"holdfast: {NO_PASSWORD}\n")


@pytest.mark.parametrize("url", ["http://hunter2@[::1", " http://ada:hunter2@h", "hunter2@h"])
def test_nor_is_one_in_what_is_no_address(url):
    with pytest.raises(ConfigError) as refused:
        Far(url, KEY)
    assert str(refused.value) == NO_PASSWORD


def test_nor_is_what_is_asked_with_it():
    with pytest.raises(ConfigError) as refused:
        Far("http://h?key=hunter2", KEY)
    assert str(refused.value) == "--url has a ? or # in it; it must end with the path"
