from functools import partial

from holdfast.core.events import ToolProgressed
from holdfast.core.secrets import MASK, Secrets
from holdfast.engine.coalesce import EVENT_LIMIT, FULL, Coalescer

KEY = "sk-canary-0123456789"


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


def hiding():
    return Coalescer(Secrets([KEY]))


def test_a_secret_that_comes_in_pieces_is_masked():
    coalescer = hiding()
    assert [coalescer.add(ONE, text) for text in ("a sk-", KEY[3:9], KEY[9:] + " b")] == [
        "a ",
        "",
        f"{MASK} b",
    ]
    assert coalescer.take() == (ONE(f"a {MASK} b"),)


def test_what_may_begin_a_secret_is_not_there_to_take_until_it_has_turned_out():
    coalescer = hiding()
    coalescer.add(ONE, "sk-")
    assert not coalescer and coalescer.take() == ()
    assert coalescer.add(ONE, "ating") == "sk-ating"
    assert coalescer.take() == (ONE("sk-ating"),)


def test_each_kind_has_something_of_its_own_held_back():
    coalescer = hiding()
    coalescer.add(ONE, KEY[:5])
    assert coalescer.add(TWO, KEY[5:]) == KEY[5:]
    coalescer.add(ONE, KEY[5:])
    assert coalescer.take() == (TWO(KEY[5:]), ONE(MASK))


def test_what_is_held_back_is_there_at_the_end_and_only_once():
    coalescer = hiding()
    coalescer.add(ONE, "de" + KEY[:-1])
    assert (coalescer.end(ONE), coalescer.end(ONE), coalescer.end(TWO)) == (KEY[:-1], "", "")
    assert coalescer.take() == (ONE("de" + KEY[:-1]),)


def test_most_of_a_secret_is_masked_when_it_was_cut_off():
    coalescer = hiding()
    coalescer.add(ONE, KEY[:-1])
    coalescer.add(TWO, "sk-")
    assert (coalescer.end(ONE, cut=True), coalescer.end(TWO, cut=True)) == (MASK, "sk-")


def test_a_secret_across_the_place_where_a_long_text_is_split_is_masked():
    coalescer = hiding()
    coalescer.add(ONE, "x" * (EVENT_LIMIT - 5) + KEY + "y")
    joined = "".join(event.text for event in coalescer.take())
    assert joined == "x" * (EVENT_LIMIT - 5) + MASK + "y"
