from functools import partial

from holdfast.core.events import ToolProgressed
from holdfast.engine.coalesce import EVENT_LIMIT, FULL, Coalescer


def progress(call_id, text):
    return ToolProgressed(call_id=call_id, text=text)


ONE, TWO = partial(progress, "one"), partial(progress, "two")


def gathered(*pieces):
    coalescer = Coalescer()
    for make, text in pieces:
        coalescer.add(make, text)
    return coalescer


def test_nothing_gathered_is_nothing_to_write():
    assert not Coalescer()
    assert Coalescer().take() == ()


def test_neighbours_of_one_kind_become_one_event():
    assert gathered((ONE, "a"), (ONE, "b")).take() == (ONE("ab"),)


def test_order_is_kept_between_kinds():
    texts = gathered((ONE, "a"), (TWO, "b"), (ONE, "c")).take()
    assert texts == (ONE("a"), TWO("b"), ONE("c"))


def test_what_was_taken_is_not_there_any_more():
    coalescer = gathered((ONE, "a"))
    assert coalescer
    coalescer.take()
    assert not coalescer and coalescer.take() == ()


def test_an_event_does_not_grow_without_bound():
    coalescer = gathered(*[(ONE, "x" * 1000)] * 40)
    events = coalescer.take()
    assert len(events) == 3
    assert all(len(event.text) <= EVENT_LIMIT for event in events)
    assert "".join(event.text for event in events) == "x" * 40_000


def test_it_says_when_it_is_full_and_when_there_is_room_again():
    coalescer = gathered((ONE, "x" * FULL))
    assert coalescer.full
    coalescer.take()
    assert not coalescer.full


def test_one_long_text_becomes_several_events():
    text = "".join(str(n) for n in range(20_000))
    events = gathered((ONE, text)).take()
    assert all(len(event.text) <= EVENT_LIMIT for event in events)
    assert "".join(event.text for event in events) == text
