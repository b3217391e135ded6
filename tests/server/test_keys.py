"""The keys that open the server."""

import os
import stat
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.errors import ConfigError
from holdfast.server.keys import LOOK, KeyList, Keys, load_key

GIVEN = "a-key-that-nobody-knows"


def hashed(key):
    return sha256(key.encode()).hexdigest()


def listed(data, text, mode=0o600):
    (data / "keys").write_text(text)
    (data / "keys").chmod(mode)


def kept(data):
    return (data / "api_key").read_text().strip()


# --- the main key ----------------------------------------------------------------------


def test_a_given_key_opens_and_no_file_is_made(tmp_path):
    keys = load_key(tmp_path, GIVEN)
    assert keys.principal(GIVEN) == "local"
    assert list(tmp_path.iterdir()) == []


def test_a_given_key_is_taken_instead_of_the_one_in_the_file(tmp_path):
    load_key(tmp_path, "")
    assert load_key(tmp_path, GIVEN).principal(kept(tmp_path)) is None


def test_without_a_given_key_one_is_made_for_its_owner_alone(tmp_path):
    keys = load_key(tmp_path, "")
    assert keys.principal(kept(tmp_path)) == "local"
    assert stat.S_IMODE((tmp_path / "api_key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["api_key"]


def test_a_key_is_made_once(tmp_path):
    load_key(tmp_path, "")
    first = kept(tmp_path)
    assert load_key(tmp_path, "").principal(first) == "local"
    assert kept(tmp_path) == first


def test_a_made_key_holds_256_bits_and_is_another_each_time(tmp_path):
    made = set()
    for name in "abc":
        (tmp_path / name).mkdir()
        load_key(tmp_path / name, "")
        made.add(kept(tmp_path / name))
    assert len(made) == 3
    assert all(key.startswith("hf_") and len(key) == 3 + 43 for key in made)


@pytest.mark.parametrize(
    "token", ["", "x", GIVEN[:-1], GIVEN + "x", GIVEN.upper(), "schlüssel", "\udcff\ud800", "\0"]
)
def test_any_other_token_is_nobodys(tmp_path, token):
    assert load_key(tmp_path, GIVEN).principal(token) is None


def test_keys_do_not_show_what_they_hold(tmp_path):
    assert repr(load_key(tmp_path, GIVEN)) == "Keys()"


# --- keys that are no keys -------------------------------------------------------------


def test_a_key_of_fewer_than_16_characters_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"HOLDFAST_API_KEY holds a key of 15 characters"):
        load_key(tmp_path, GIVEN[:15])
    assert load_key(tmp_path, GIVEN[:16]).principal(GIVEN[:16]) == "local"


@pytest.mark.parametrize(
    "key",
    [
        "changeme-changeme",
        "please-CHANGE_ME-now",
        "your-api-key-goes-here",
        "replace-me-with-a-key",
        "sk-placeholder-000",
        "xxxxxxxxxxxxxxxxxxxx",
        "0000-0000-0000-0000",
    ],
)
def test_a_placeholder_is_refused(tmp_path, key):
    with pytest.raises(ConfigError, match="holds a placeholder") as refused:
        load_key(tmp_path, key)
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    "key", ["a key that nobody knows", "nobody-knows\nthis-key", "schlüssel-schlüssel"]
)
def test_a_key_that_no_header_could_carry_is_refused(tmp_path, key):
    with pytest.raises(ConfigError, match="signs that cannot be part of a key"):
        load_key(tmp_path, key)


# --- the file --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
@pytest.mark.parametrize("name", ["api_key", "keys"])
def test_a_file_that_is_open_to_others_is_refused(tmp_path, name, mode):
    load_key(tmp_path, "")
    listed(tmp_path, "")
    (tmp_path / name).chmod(mode)
    with pytest.raises(
        ConfigError, match=rf"{name} cannot be used: it is open .* chmod 600 .*{name}"
    ):
        load_key(tmp_path, "")


@pytest.mark.parametrize("name", ["api_key", "keys"])
def test_a_link_is_not_followed(tmp_path, name):
    (tmp_path / "elsewhere").write_text(GIVEN)
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=rf"{name} cannot be used: it is a link"):
        load_key(tmp_path, "")


def test_a_link_that_leads_nowhere_is_not_filled(tmp_path):
    (tmp_path / "api_key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="it is a link"):
        load_key(tmp_path, "")
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "api_key", 0o600)
    with pytest.raises(ConfigError, match="it is no file"):
        load_key(tmp_path, "")


def test_a_file_that_cannot_be_read_is_refused():
    with TemporaryDirectory() as folder:
        data = Path(folder)
        data.chmod(0o755)
        load_key(data, "")
        (data / "api_key").chmod(0o000)
        child = os.fork()
        if child == 0:  # pragma: no cover (its tracer dies with it)
            said = ""
            try:
                if os.geteuid() == 0:
                    # Root may read everything, so it is somebody else who tries.
                    os.setuid(65534)
                load_key(data, "")
            except ConfigError as error:
                said = str(error)
            finally:
                os._exit(0 if "Permission denied" in said else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_an_empty_key_file_opens_to_nobody(tmp_path):
    (tmp_path / "api_key").touch(0o600)
    with pytest.raises(ConfigError, match="holds a key of 0 characters"):
        load_key(tmp_path, "")


def test_a_directory_that_is_not_there_is_said_to_be(tmp_path):
    with pytest.raises(ConfigError, match="cannot be made: No such file or directory"):
        load_key(tmp_path / "missing", "")


def test_a_name_that_is_too_long_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be used: File name too long"):
        load_key(tmp_path / ("x" * 300), "")


# --- further keys ----------------------------------------------------------------------


def test_listed_keys_open_under_their_names(tmp_path):
    listed(
        tmp_path,
        "# who else may come\n\n"
        f"phone {hashed('the key of the phone')}\n"
        f"  ci@example   {hashed('the key of the build').upper()}  \n"
        f"phone {hashed('the next key of the phone')}\n",
    )
    keys = load_key(tmp_path, GIVEN)
    assert keys.principal("the key of the phone") == "phone"
    assert keys.principal("the next key of the phone") == "phone"
    assert keys.principal("the key of the build") == "ci@example"
    assert keys.principal(GIVEN) == "local"
    assert keys.principal(hashed("the key of the phone")) is None


@pytest.mark.parametrize(
    "line",
    [
        "phone",
        hashed("x"),
        f"phone {hashed('x')[:-1]}",
        f"phone {hashed('x')} more",
        "é " + "0" * 64,
    ],
)
def test_a_line_that_is_no_name_and_hash_is_named_and_not_repeated(tmp_path, line):
    listed(tmp_path, f"ok {hashed('y')}\n{line}\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*keys must be a name") as refused:
        load_key(tmp_path, GIVEN)
    assert line not in str(refused.value).removeprefix(f"line 2 of {tmp_path}")


class Clock:
    at = 0.0

    def __call__(self):
        return self.at


def test_who_is_taken_off_the_list_is_let_in_no_more(tmp_path, caplog):
    clock, path = Clock(), tmp_path / "keys"
    keys = Keys((), KeyList(path, clock))
    assert keys.principal("one") is None

    def later(text=None, at=LOOK):
        if text is None:
            path.unlink()
        else:
            listed(tmp_path, text)
        clock.at += at
        return [name for name in ("one", "two") if keys.principal(name)]

    both = f"one {hashed('one')}\ntwo {hashed('two')}\n"
    assert later(both) == ["one", "two"]
    assert later(f"two {hashed('two')}\n") == ["two"]
    # A look costs something, so it is not looked each time.
    assert later(both, at=LOOK / 2) == ["two"]
    assert later(both, at=LOOK / 2) == ["one", "two"]
    assert later("two\n") == [] and "until it is mended: line 1 of" in caplog.text
    assert later(both) == ["one", "two"]
    assert later() == []


def test_the_list_that_is_loaded_with_the_key_is_looked_at_again(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.server.keys.LOOK", 0.0)
    listed(tmp_path, f"one {hashed('one')}\n")
    keys = load_key(tmp_path, GIVEN)
    assert keys.principal("one") == "one"
    listed(tmp_path, f"two {hashed('two')}\n")
    assert [keys.principal(name) for name in ("one", "two")] == [None, "two"]


def test_nobody_else_is_local(tmp_path):
    listed(tmp_path, f"local {hashed('x')}\n")
    with pytest.raises(ConfigError, match="the name local, which is that of the main key"):
        load_key(tmp_path, GIVEN)


def test_every_hash_is_compared_whichever_fits():
    """Seen by the last of equals being found: the search does not end at the first."""
    same = sha256(b"the same").digest()
    assert Keys((("first", same), ("last", same))).principal("the same") == "last"
