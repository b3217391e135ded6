from pathlib import Path

import pytest

from holdfast.config.file import NO_FILE, find_file
from holdfast.errors import ConfigError


def write(path, text='workspace = "."\n'):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refusal(*args):
    with pytest.raises(ConfigError) as caught:
        find_file(*args)
    return str(caught.value)


def test_the_flag_counts_before_the_variable_and_that_before_the_usual_file(tmp_path):
    flag, variable = write(tmp_path / "a.toml", "a = 1"), write(tmp_path / "b.toml", "b = 1")
    write(tmp_path / "holdfast.toml", "c = 1")
    environ = {"HOLDFAST_CONFIG": variable}
    assert find_file(flag, environ, tmp_path).values == {"a": 1}
    assert find_file(None, environ, tmp_path).values == {"b": 1}
    assert find_file(None, {"HOLDFAST_CONFIG": ""}, tmp_path).values == {"c": 1}
    assert find_file(None, {}, tmp_path).path == tmp_path / "holdfast.toml"


def test_without_a_file_nothing_is_set(tmp_path):
    (tmp_path / "sub" / "holdfast.toml").mkdir(parents=True)
    write(tmp_path / "file")
    for place in (tmp_path, tmp_path / "sub", tmp_path / "file", tmp_path / "gone"):
        assert find_file(None, {}, place) == NO_FILE


def test_a_file_is_called_what_its_writer_calls_it(tmp_path):
    write(tmp_path / "my.toml")
    assert find_file("my.toml", {}, tmp_path).setting.name == "my.toml: "
    assert find_file(f"{tmp_path}/my.toml", {}, Path("/")).name == f"{tmp_path}/my.toml"
    write(tmp_path / "holdfast.toml")
    assert find_file(None, {}, tmp_path).setting.name == "holdfast.toml: "


def test_a_path_may_begin_at_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x.toml", "a = 1")
    assert find_file("~/x.toml", {}, Path("/")).values == {"a": 1}


def test_a_file_that_is_named_must_be_there(tmp_path):
    assert refusal("x.toml", {}, tmp_path) == (
        "--config is x.toml, which is not there; it must be a file"
    )
    assert refusal(None, {"HOLDFAST_CONFIG": "x.toml"}, tmp_path) == (
        "HOLDFAST_CONFIG is x.toml, which is not there; it must be a file"
    )


@pytest.mark.parametrize(("value", "said"), [("", '""'), (" ", '" "'), ("a\0b", r'"a\u0000b"')])
def test_a_flag_without_a_path_is_refused(value, said, tmp_path):
    assert refusal(value, {}, tmp_path) == f"--config is {said}; it must be the path of a file"


def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path):
    assert refusal(".", {}, tmp_path) == "--config is ., which cannot be read: Is a directory"
    assert refusal("~nobody_at_all/x", {}, tmp_path).startswith(
        "--config is ~nobody_at_all/x, which cannot be read: Could not determine home"
    )
    (tmp_path / "holdfast.toml").symlink_to("holdfast.toml")
    assert refusal(None, {}, tmp_path) == (
        "holdfast.toml cannot be read: Too many levels of symbolic links"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb 2\n", "line 2: expected '=' after a key in a key/value pair"),
        ("a = 1\na = 2\n", "line 2: cannot overwrite a value"),
        ("a = 1\n\n[b", "line 3: expected ']' at the end of a table declaration"),
        ('a = "x', "line 1: unterminated string"),
        (b'a = "\n\xff"', "line 2: this is not text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_the_line(text, said, tmp_path):
    write(tmp_path / "holdfast.toml", text)
    assert refusal(None, {}, tmp_path) == f"holdfast.toml, {said}"


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 50_000])
def test_what_is_too_large_is_refused(text, tmp_path):
    write(tmp_path / "holdfast.toml", text)
    assert refusal(None, {}, tmp_path) == "holdfast.toml holds something too large to be a setting"


def test_a_mark_at_the_beginning_is_no_part_of_the_text(tmp_path):
    write(tmp_path / "holdfast.toml", b"\xef\xbb\xbfa = 1")
    assert find_file(None, {}, tmp_path).values == {"a": 1}
