import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bookmark import WHOLE, Bookmark, read_bookmark
from holdfast.core.codec import note, record
from holdfast.core.events import RunCompleted, RunStarted
from holdfast.core.session import RunAdded, SessionRenamed

bookmarks = st.builds(
    Bookmark,
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.lists(st.integers(-1, 10**9), max_size=5).map(tuple),
).map(Bookmark.shortened)


@given(bookmarks)
def test_a_bookmark_is_read_back_from_its_text(bookmark):
    assert read_bookmark(str(bookmark)) == bookmark


@pytest.mark.parametrize(
    "text", ["", "s", "7", "s1", "s1.", "s1.1-", "s1.1-x", "s-1.1", "s1.1--1", "s1.1 ", "s٣.1"]
)
def test_what_means_no_bookmark_is_none(text):
    assert read_bookmark(text) is None


def test_a_bookmark_moves_with_what_is_heard():
    bookmark = Bookmark()
    bookmark = bookmark.noted(note(1, 0.0, SessionRenamed(title="x")))
    assert bookmark == Bookmark(1, 1, ())
    for ordinal in (1, 2, 3):
        added = RunAdded(run_id=f"run_{ordinal}", ordinal=ordinal)
        bookmark = bookmark.noted(note(ordinal + 1, 0.0, added))
    assert (bookmark, bookmark.runs, bookmark.open) == (Bookmark(4, 1, (0, 0, 0)), 3, [1, 2, 3])
    bookmark = bookmark.heard(2, record(1, 0.0, RunStarted(worker="a", epoch=1)))
    assert (bookmark, bookmark.seq(2)) == (Bookmark(4, 1, (0, 1, 0)), 1)
    bookmark = bookmark.heard(2, record(2, 0.0, RunCompleted()))
    assert (bookmark, bookmark.open) == (Bookmark(4, 1, (0, WHOLE, 0)), [1, 3])
    bookmark = bookmark.heard(1, record(1, 0.0, RunCompleted()))
    assert (bookmark, bookmark.runs) == (Bookmark(4, 3, (0,)), 3)
    bookmark = bookmark.heard(3, record(1, 0.0, RunCompleted()))
    assert (bookmark, bookmark.runs) == (Bookmark(4, 4, ()), 3)
