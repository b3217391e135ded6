import pytest

from holdfast.core.events import RunCompleted, TextStreamed, ToolProgressed
from holdfast.errors import InvalidRequest
from holdfast.stores.batch import MOST_BYTES, pack_events
from holdfast.testing.contracts import ACCEPTED, STARTED, said


def test_what_is_packed_says_what_it_is():
    assert pack_events((RunCompleted(),)).final
    assert pack_events((said("a"), RunCompleted())).final
    assert not pack_events((said("a"),)).final
    assert pack_events((RunCompleted(),)).settles
    assert not pack_events((RunCompleted(), STARTED)).settles


def test_words_on_their_way_are_nothing_to_a_list():
    words = TextStreamed(turn=1, attempt=1, text="a")
    assert not pack_events((words, ToolProgressed(call_id="c", text="b"))).listed
    assert pack_events((words, RunCompleted())).listed


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(InvalidRequest):
        pack_events((said("\ud83d"),))
    with pytest.raises(InvalidRequest):
        pack_events((ACCEPTED,), {"a": bytes(MOST_BYTES + 1)})
