import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.text import (
    HEAD,
    Form,
    Line,
    count,
    decode,
    encode,
    fitted,
    form,
    kind,
    lines_of,
    numbered,
    shown,
)


@pytest.mark.parametrize(
    ("data", "text", "expected"),
    [
        (b"", "", Form()),
        (b"plain\n", "plain\n", Form()),
        ("grün\n".encode(), "grün\n", Form()),
        (codecs.BOM_UTF8 + b"a\n", "a\n", Form(bom=True)),
        (b"a\r\nb\r\n", "a\nb\n", Form(crlf=True)),
        (b"a\r\nb\n", "a\r\nb\n", Form()),
        (b"a\r\r\nb\r\n", "a\r\r\nb\r\n", Form()),
        ("ü".encode("latin-1"), "ü", Form("latin-1")),
        (codecs.BOM_UTF16_LE + "ü\r\n".encode("utf-16-le"), "ü\n", Form("utf-16-le", True, True)),
        (codecs.BOM_UTF16_BE + "ü\n".encode("utf-16-be"), "ü\n", Form("utf-16-be", True)),
        (b"cut in two: \xc3", "cut in two: Ã", Form("latin-1")),
        (codecs.BOM_UTF8 + b"\xc3", "ï»¿Ã", Form("latin-1")),
    ],
)
def test_text_is_read_as_it_is_kept_and_given_back_the_same(data, text, expected):
    assert decode(data) == (text, expected)
    assert encode(text, expected) == data


@given(st.binary(max_size=30) | st.text("a\r\n\ufeffü", max_size=12).map(str.encode))
def test_whatever_can_be_read_is_given_back_the_same(data):
    try:
        text, shape = decode(data)
    except UnicodeDecodeError:
        assert data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    else:
        assert encode(text, shape) == data


def test_a_form_is_told_unless_it_is_the_usual_one():
    assert str(Form()) == ""
    assert str(Form(crlf=True)) == "CRLF line endings"
    assert str(Form("utf-16-le", bom=True)) == "utf-16-le, with a byte order mark"
    assert str(Form("latin-1")) == "read as latin-1, since it is not UTF-8"


def test_a_text_with_line_endings_or_a_mark_of_its_own_is_not_given_them_twice():
    assert fitted("\ufeffa\r\nb\n", Form(bom=True, crlf=True)) == "a\nb\n"
    assert fitted("\ufeffa\r\nb\n", Form()) == "\ufeffa\r\nb\n"


def test_a_character_that_an_encoding_does_not_have_is_an_error():
    with pytest.raises(UnicodeEncodeError):
        encode("€", Form("latin-1"))


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"", ""),
        (b"just text", ""),
        (b"MZ is how this text begins", ""),
        (b"BZh and this one", ""),
        ("grün".encode("latin-1") * 9, ""),
        (codecs.BOM_UTF16_LE + b"a\0", ""),
        (b"\x1b[31mred\x1b[0m\n", ""),
        (b"\x89PNG\r\n\x1a\n rest", "PNG image"),
        (b"%PDF-1.7 rest", "PDF document"),
        (b"\x7fELF\x02", "ELF program or library"),
        (b"MZ\x90\0", "Windows program or library"),
        (b"\x1f\x8b\x08\0", "gzip data"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"\0\0\0\x18ftypmp42", "MP4 media"),
        (b"name".ljust(257, b"\0") + b"ustar", "tar archive"),
        (b"text\0with a NUL", "binary data"),
        (b"\xff\x01\x02\x03" * 9, "binary data"),
    ],
)
def test_what_is_not_text_is_known_by_how_it_begins(head, what):
    assert kind(head) == what


def test_a_head_that_ends_within_a_character_is_still_text():
    assert form("ü".encode()[:1].join([b"a" * 9, b""])).encoding == "utf-8"
    assert kind(("a" * (HEAD - 1) + "ü").encode()[:HEAD]) == ""


def texts(*chunks, shape=Form(), width=10):  # noqa: B008 (it does not change)
    return list(lines_of(chunks, shape, width))


def test_lines_come_whole_however_the_file_is_cut():
    whole = [Line("one", 3, True), Line("zwölf", 5, True), Line("end", 3, False)]
    data = "one\r\nzwölf\nend".encode()
    for at in range(len(data) + 1):
        assert texts(data[:at], data[at:]) == whole


def test_of_a_long_line_only_a_part_is_kept_and_its_length():
    assert texts(b"a" * 7, b"b" * 7, b"\nc") == [
        Line("aaaaaaabbb", 14, True),
        Line("c", 1, False),
    ]
    assert texts(b"a" * 10 + b"\r", b"\n") == [Line("a" * 10, 10, True)]
    assert texts(b"a" * 25) == [Line("a" * 10, 25, False)]


def test_a_mark_is_not_shown_and_broken_characters_are_spelled_out():
    marked = codecs.BOM_UTF16_BE + "a\nü".encode("utf-16-be")
    assert [line.text for line in texts(marked, shape=Form("utf-16-be", bom=True))] == ["a", "ü"]
    assert [line.text for line in texts(b"a\xffb\n\xc3")] == ["a\\xffb", "\\xc3"]


def test_a_line_is_shown_after_its_number():
    assert numbered(12, Line("text", 4, True)) == "    12\ttext"
    cut = numbered(1, Line("text", 2004, True))
    assert cut == "     1\ttext [… 2,000 more characters on this line]"


def test_a_name_is_shown_on_one_line_whatever_is_in_it():
    assert shown("plain/ü name") == "plain/ü name"
    assert shown("a\nb\x1b[0m\u202ec\udcff\x7f") == "a\\nb\\x1b[0m\\u202ec\\udcff\\x7f"


def test_things_are_counted_in_words():
    assert (count(1, "line"), count(0, "line"), count(2000, "byte")) == (
        "1 line",
        "0 lines",
        "2,000 bytes",
    )
