import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.text import (
    HEAD,
    MOST_SCANNED,
    Form,
    Line,
    as_shown,
    count,
    decode,
    encode,
    fitted,
    form,
    kind,
    lines_of,
    numbered,
    shown,
    spelled,
    unspelled,
)


@pytest.mark.parametrize(
    ("data", "text", "expected"),
    [
        (b"", "", Form()),
        (b"plain\n", "plain\n", Form()),
        ("grün\n".encode(), "grün\n", Form()),
        (codecs.BOM_UTF8 + b"a\n", "a\n", Form(bom=True)),
        (b"a\r\nb\r\n", "a\nb\n", Form(end="\r\n")),
        (b"a\rb\r", "a\nb\n", Form(end="\r")),
        (b"a\r\nb\n", "a\r\nb\n", Form(mixed=True)),
        (b"a\r\nb\r\nc\n", "a\r\nb\r\nc\n", Form(end="\r\n", mixed=True)),
        (b"a\r\r\nb\r\n", "a\r\r\nb\r\n", Form(end="\r\n", mixed=True)),
        (b"\x93gr\xfcn\x94 5 \x80", "“grün” 5 €", Form("windows-1252")),
        (b"gr\xfcn \x81", "grün \udc81", Form("windows-1252")),
        # Two of its characters, side by side, are one of UTF-8.
        (b"\x84Gr\xfc\xdfe, gro\xdf\x93", "„Grüße, groß“", Form("windows-1252")),
        (b"cut in two: \xc3", "cut in two: Ã", Form("windows-1252")),
        (b"th\xc3\xa9 \xff", "thé \udcff", Form(broken=True)),
        (codecs.BOM_UTF8 + b"\xc3", "\udcc3", Form(bom=True, broken=True)),
        (codecs.BOM_UTF16_LE + "ü\r\n".encode("utf-16-le"), "ü\n", Form("utf-16-le", True, "\r\n")),
        (codecs.BOM_UTF16_BE + "ü\n".encode("utf-16-be"), "ü\n", Form("utf-16-be", True)),
        (codecs.BOM_UTF32_LE + "ü\n".encode("utf-32-le"), "ü\n", Form("utf-32-le", True)),
        (codecs.BOM_UTF32_BE + "ü\n".encode("utf-32-be"), "ü\n", Form("utf-32-be", True)),
    ],
)
def test_text_is_read_as_it_is_kept_and_given_back_the_same(data, text, expected):
    assert decode(data) == (text, expected)
    assert encode(text, expected) == data


SOME_BYTES = st.lists(
    st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\xff", b"\x81", "ü".encode(), "€".encode()])
)


@given(
    st.binary(max_size=30)
    | st.text("a\r\n\ufeffü", max_size=12).map(str.encode)
    | SOME_BYTES.map(b"".join)
)
def test_whatever_can_be_read_is_given_back_the_same(data):
    try:
        text, shape = decode(data)
    except UnicodeDecodeError:
        assert data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    else:
        assert encode(text, shape) == data
        # What is shown of it goes anywhere, and is the same wherever it is shown.
        seen = as_shown(text)
        seen.encode()
        lines = lines_of([data], shape, 10_000)
        assert "".join(line.text + "\n" * line.ended for line in lines) == seen


@given(SOME_BYTES.map(b"".join), st.integers(0, 40))
def test_a_form_is_the_same_however_a_file_is_cut(data, at):
    if at > 3:
        assert form([data[:at], data[at:]]) == form([data])


def test_a_form_does_not_depend_on_where_in_a_file_something_stands():
    far = b"a\n" * HEAD
    assert form([b"th\xc3\xa9 \xff\n", far]) == form([far, b"th\xc3\xa9 \xff\n"])
    assert form([far, b"th\xe9"]).encoding == "windows-1252"
    # No more is looked at, and so it is not known how the last character goes on.
    assert form([b"a" * (MOST_SCANNED - 1), b"\xc3"]) == Form()


def test_a_form_is_told_unless_it_is_the_usual_one():
    assert str(Form()) == ""
    assert str(Form(end="\r\n")) == "CRLF line endings"
    assert str(Form(end="\r")) == "CR line endings"
    assert str(Form(mixed=True)) == "mixed line endings, most of them LF"
    assert str(Form(broken=True)) == "some of its bytes are no characters, and shown like \\xff"
    assert str(Form("utf-16-le", bom=True)) == "utf-16-le, with a byte order mark"
    assert str(Form("windows-1252")) == "read as windows-1252, since it is not UTF-8"


def test_a_text_with_line_endings_or_a_mark_of_its_own_is_not_given_them_twice():
    windows = Form(bom=True, end="\r\n")
    assert fitted("\ufeffa\r\nb\n", windows) == ("a\nb\n", windows)
    assert fitted("\ufeffa\r\nb\n", Form()) == ("\ufeffa\r\nb\n", Form())


def test_a_text_for_a_file_of_several_line_endings_gets_the_most_frequent_unless_it_has_its_own():
    mostly = Form(end="\r\n", mixed=True, broken=True)
    assert fitted("a\nb\n", mostly) == ("a\nb\n", Form(end="\r\n"))
    assert fitted("a\r\nb\n", mostly) == ("a\r\nb\n", Form())


def test_a_byte_that_is_no_character_is_spelled_and_found_again():
    assert spelled("é \udcff\udc80") == "é \\xff\\x80"
    assert unspelled("\\xff \\xfe \\x41", among="\udcff") == "\udcff \\xfe \\x41"


def test_a_character_that_an_encoding_does_not_have_is_an_error():
    with pytest.raises(UnicodeEncodeError):
        encode("→", Form("windows-1252"))


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
