import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import note, record
from holdfast.core.events import RunCompleted, RunStarted
from holdfast.core.place import WHOLE, Place, read_place
from holdfast.core.session import RunAdded, SessionRenamed

places = st.builds(
    Place,
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.lists(st.integers(-1, 10**9), max_size=5).map(tuple),
).map(Place.shortened)


@given(places)
def test_a_place_is_read_back_from_its_text(place):
    assert read_place(str(place)) == place


@pytest.mark.parametrize(
    "text", ["", "s", "7", "s1", "s1.", "s1.1-", "s1.1-x", "s-1.1", "s1.1--1", "s1.1 ", "s٣.1"]
)
def test_what_means_no_place_is_none(text):
    assert read_place(text) is None


def test_a_place_moves_with_what_is_heard():
    place = Place()
    place = place.noted(note(1, 0.0, SessionRenamed(title="x")))
    assert place == Place(1, 1, ())
    for ordinal in (1, 2, 3):
        added = RunAdded(run_id=f"run_{ordinal}", ordinal=ordinal)
        place = place.noted(note(ordinal + 1, 0.0, added))
    assert (place, place.runs, place.open) == (Place(4, 1, (0, 0, 0)), 3, [1, 2, 3])
    place = place.heard(2, record(1, 0.0, RunStarted(worker="a", epoch=1)))
    assert (place, place.seq(2)) == (Place(4, 1, (0, 1, 0)), 1)
    place = place.heard(2, record(2, 0.0, RunCompleted()))
    assert (place, place.open) == (Place(4, 1, (0, WHOLE, 0)), [1, 3])
    place = place.heard(1, record(1, 0.0, RunCompleted()))
    assert (place, place.runs) == (Place(4, 3, (0,)), 3)
    place = place.heard(3, record(1, 0.0, RunCompleted()))
    assert (place, place.runs) == (Place(4, 4, ()), 3)
