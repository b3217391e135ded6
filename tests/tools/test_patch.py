import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ToolError
from holdfast.tools.patch import (
    MOST_MOVED,
    MOST_PATCH,
    MOST_PATCH_FILES,
    MOST_PATCH_LINES,
    apply,
    parse,
)

OLD = "".join(f"line {number}\n" for number in range(1, 21))


def patch(*lines, header=("--- a/file", "+++ b/file")):
    return "\n".join([*header, *lines]) + "\n"


def applied(text, *lines):
    (file,) = parse(patch(*lines))
    return apply(file, text)


def test_a_hunk_goes_where_it_says():
    text, notes = applied(
        OLD, "@@ -2,3 +2,3 @@ in here", " line 2", "-line 3", "+LINE 3", " line 4"
    )
    assert text == OLD.replace("line 3\n", "LINE 3\n")
    assert notes == ()


def test_a_hunk_goes_to_the_one_other_place_where_its_lines_stand_and_that_is_told():
    text, notes = applied(
        OLD,
        *("@@ -2,2 +2,2 @@", " line 5", "-line 6", "+LINE 6"),
        # The next one is expected as far off.
        *("@@ -10,1 +10,1 @@", "-line 13", "+LINE 13"),
    )
    assert text == OLD.replace("line 6\n", "LINE 6\n").replace("line 13\n", "LINE 13\n")
    assert notes == ("@@ -2,2 +2,2 @@ was applied +3 lines from where it said",)


def test_when_most_hunks_are_elsewhere_it_is_another_file():
    text = "".join(f"{number}\n" for number in range(400))

    def moved(count):
        hunks = [
            (f"@@ -{3 * n + 2 + n} +1 @@", f"-{3 * n + 2 + 2 * n}", "+x") for n in range(count)
        ]
        return applied(text, *(line for hunk in hunks for line in hunk))

    assert len(moved(MOST_MOVED).notes) == MOST_MOVED
    with pytest.raises(ToolError, match="more than 50 hunks are not where they say"):
        moved(MOST_MOVED + 1)


def test_several_other_places_are_an_error():
    with pytest.raises(ToolError, match="2 other places, at lines 2, 4; give more context"):
        applied("a\nb\nc\nb\n", "@@ -1,1 +1,1 @@", "-b", "+B")


def test_lines_that_are_nowhere_are_an_error_that_says_what_is_there():
    with pytest.raises(ToolError, match=r"line 2 is 'line 2\\n', and the patch has 'line  2\\n'"):
        applied(OLD, "@@ -1,2 +1,1 @@", " line 1", "-line  2")
    with pytest.raises(ToolError, match="the file has 20 lines, and this would be line 21"):
        applied(OLD, "@@ -20,2 +20,1 @@", " line 20", "-line 21")
    with pytest.raises(ToolError, match="differs in whether a newline ends it"):
        applied("a", "@@ -1 +1 @@", "-a", "+b")
    with pytest.raises(ToolError, match="stand before those of an earlier hunk"):
        applied(OLD, "@@ -5 +5 @@", "-line 5", "+x", "@@ -2 +2 @@", "-line 2", "+y")


def test_where_long_lines_differ_is_shown():
    long = "x" * 300
    with pytest.raises(ToolError, match=r"line 1 from character 201 on is 'x{100}a\\n', and the"):
        applied(f"{long}a\n", "@@ -1 +1 @@", f"-{long}b", "+y")


def test_a_hunk_that_begins_before_the_file_does_is_told():
    with pytest.raises(ToolError, match="the file has 1 line, and this would be line 0"):
        applied("a\n", "@@ -0,1 +1 @@", "-b", "+y")


def test_a_hunk_without_old_lines_goes_after_the_line_it_names_and_nowhere_else():
    assert applied("a\nb\n", "@@ -1,0 +2 @@", "+x").text == "a\nx\nb\n"
    assert applied("", "@@ -0,0 +1 @@", "+x").text == "x\n"
    with pytest.raises(ToolError, match="no lines to find its place by"):
        applied("a\n", "@@ -9,0 +9 @@", "+x")


def test_a_last_line_without_a_newline_is_kept_and_made():
    none = "\\ No newline at end of file"
    assert applied("a\nb", "@@ -1,2 +1,2 @@", "-a", "+A", " b", none).text == "A\nb"
    assert applied("a\n", "@@ -1 +1 @@", "-a", "+b", none).text == "b"
    assert applied("a", "@@ -1 +1 @@", "-a", none, "+b").text == "b\n"


def test_two_lines_never_become_one():
    none = "\\ No newline at end of file"
    with pytest.raises(ToolError, match="line 2 would have no newline and not be the last"):
        applied("a\nb", "@@ -2,0 +3 @@", "+c")
    with pytest.raises(ToolError, match="line 1 would have no newline and not be the last"):
        applied("a\nb\n", "@@ -1 +1 @@", "-a", "+A", none)


@pytest.mark.parametrize(
    ("text", "lines", "result"),
    [
        # Where all lines of a file end alike, those of the patch end so, too.
        ("a\nb\n", (" a\r", "-b\r", "+B\r"), "a\nB\n"),
        # Where they do not, what stays keeps its end and what is new has that of its neighbour,
        ("a\r\nb\r\nc\n", (" a", "-b", "+B"), "a\r\nB\r\nc\n"),
        ("a\nb\nc\r\n", ("-a", " b", "+x"), "b\nx\nc\r\n"),
        ("a\nb\r\nc", (" b", "-c", "+C", "+d"), "a\nb\r\nC\r\nd\r\n"),
        ("a\r\nb\n", ("+x", " a"), "x\r\na\r\nb\n"),
        # unless the patch has its own.
        ("a\r\nb\r\nc\n", (" a\r", "-b\r", "+B\r"), "a\r\nB\r\nc\n"),
        ("a\r\nb\r\nc\n", (" a\r", "-b\r", "+b"), "a\r\nb\nc\n"),
        ("a\r\n\r\nb\n", ("-a\r", "+A\r", "\r"), "A\r\n\r\nb\n"),
        # Bytes that are no characters are lines as they are shown, and stay as they are.
        ("é \udcff\nb\n", (" é \\xff", "-b", "+B"), "é \udcff\nB\n"),
        ("é \udcff\n", ("-é \\xff", "+e \\xff \\xfe"), "e \udcff \\xfe\n"),
    ],
)
def test_lines_are_compared_as_they_are_shown_and_stay_as_they_are(text, lines, result):
    none = "\\ No newline at end of file"
    sent = [one for line in lines for one in ((line, none) if line == "-c" else (line,))]
    sides = (sum(line[0] in marks for line in lines) for marks in (" -\r", " +\r"))
    assert applied(text, "@@ -1,{} +1,{} @@".format(*sides), *sent).text == result


def test_what_is_new_in_an_empty_file_ends_as_the_patch_says():
    assert applied("", "@@ -0,0 +1,2 @@", "+a\r", "+b\r").text == "a\r\nb\r\n"


def test_a_patch_that_came_with_other_line_endings_itself_says_nothing_about_the_file():
    sent = patch("@@ -1 +1,3 @@", " a", "+", "+b", "").replace("\n", "\r\n")
    (file,) = parse(sent)
    assert apply(file, "a\n").text == "a\n\nb\n"
    (file,) = parse(
        sent.replace("--- a/file", "--- /dev/null")
        .replace("-1 +1,3", "-0,0 +1,3")
        .replace(" a", "+a")
    )
    assert apply(file, "").text == "a\n\nb\n"


def test_an_empty_line_may_have_lost_its_space():
    assert applied("a\n\nb\n", "@@ -1,3 +1,3 @@", "-a", "+A", "", " b").text == "A\n\nb\n"


def test_a_file_of_very_many_lines_is_not_patched():
    with pytest.raises(ToolError, match="too many lines for a patch: at most 1,000,000"):
        applied("\n" * 1_000_001, "@@ -1 +1 @@", "-", "+x")


def test_other_marks_than_a_line_feed_end_no_line():
    assert applied("a\x0cb\u2028c\nd\n", "@@ -2 +2 @@", "-d", "+e").text == "a\x0cb\u2028c\ne\n"


def test_files_are_named_with_or_without_what_git_puts_in_front():
    for old, new, path in [
        ("a/x/y", "b/x/y", "x/y"),
        ("x/y", "x/y", "x/y"),
        ("a/x", "a/x", "a/x"),
        ("a/x\t2026-01-01", "b/x\t2026-01-02", "x"),
        ("/dev/null", "b/x", "x"),
        ("a/x", "/dev/null", "x"),
    ]:
        (file,) = parse(patch("@@ -1 +1 @@", "-a", "+b", header=(f"--- {old}", f"+++ {new}")))
        assert file.path == path
        assert (file.creates, file.deletes) == (old == "/dev/null", new == "/dev/null")


def test_a_patch_of_git_over_several_files_is_read():
    files = parse(
        "diff --git a/x b/x\nindex 1234..5678 100644\n"
        + patch("@@ -1 +1 @@", "-a", "+b", header=("--- a/x", "+++ b/x"))
        + "diff --git a/y b/y\nnew file mode 100644\n"
        + patch("@@ -0,0 +1 @@", "+b", header=("--- /dev/null", "+++ b/y"))
    )
    assert [file.path for file in files] == ["x", "y"]


def test_a_file_is_deleted_only_if_all_of_its_lines_are_known():
    gone = patch("@@ -1,2 +0,0 @@", "-a", "-b", header=("--- a/x", "+++ /dev/null"))
    assert apply(parse(gone)[0], "a\nb\n").text == ""
    with pytest.raises(ToolError, match="has not all of its lines"):
        apply(parse(gone)[0], "a\nb\nc\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no file"),
        ("just words", "line 1 of the patch is neither in a hunk"),
        ("--- a/x\n", r"line 2 of the patch should begin with \+\+\+"),
        ("--- a/x\n@@ -1 +1 @@", r"line 2 of the patch should begin with \+\+\+"),
        ("--- a/x\n+++ b/x\n", "has no hunk for x"),
        ("--- a/x\n+++ b/x\n@@ nonsense @@\n", "line 3 of the patch should be like"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "renames x to y"),
        ("--- \n+++ b/y\n", "should name a file"),
        ('--- "a/\\303"\n+++ b/y\n', "without quotes"),
        ("--- /dev/null\n+++ /dev/null\n", "cannot become"),
        ("diff --git a/x b/y\nrename from x\n", "line 2 of the patch renames a file"),
        ("similarity index 90%\n", "renames or copies"),
        ("copy from x\n", "copies a file"),
        ("old mode 100644\n", "changes permissions"),
        ("GIT binary patch\n", "is for a binary file"),
        (patch("@@ -1,2 +1 @@", "-a", "+b"), "announces 2 old and 1 new lines and has 1 and 1"),
        (patch("@@ -1 +1 @@", "-a", "+b", "+c"), r"line 6 of the patch is neither.*\+c"),
        (patch("@@ -1,2 +1 @@", "-a", "#b"), "line 5 of the patch should begin with a space"),
        (patch("@@ -1 +1,2 @@", " a", " b"), "announces 1 old and 2 new lines and has 2 and 2"),
        (patch("@@ -1 +1 @@", "-a", "+b") * 2, "names file twice"),
    ],
)
def test_what_is_wrong_with_a_patch_is_said(text, said):
    with pytest.raises(ToolError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x" * (MOST_PATCH + 1), "131,073 characters"),
        ("\n" * (MOST_PATCH_LINES + 1), "10,001 lines"),
        (
            "".join(f"--- {n}\n+++ {n}\n@@ -1 +0,0 @@\n-\n" for n in range(MOST_PATCH_FILES + 1)),
            "101 files",
        ),
    ],
)
def test_a_patch_has_a_size_that_can_be_read_at_once(text, what):
    with pytest.raises(ToolError, match=f"too long: it has {what}, and at most .* make several"):
        parse(text)


@given(*[st.lists(st.sampled_from(["a", "b", "", "-- x", "++ y", "@@"]), max_size=12)] * 2)
def test_what_diff_makes_is_applied(before, after):
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    lines = list(difflib.unified_diff(before, after, "a/file", "b/file", lineterm=""))
    if lines:
        (file,) = parse("\n".join(lines) + "\n")
        assert apply(file, old).text == new
        assert apply(file, old).notes == ()
