from itertools import pairwise
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.pile import grow


class Counted(str):
    """A text that counts the characters copied when it is joined to another."""

    __slots__ = ()
    copied = 0

    def __add__(self, other):
        Counted.copied += len(self) + len(other)
        return Counted(str(self) + str(other))


@given(st.lists(st.text(max_size=9)))
def test_a_pile_holds_all_its_pieces_in_order(pieces):
    pile = ()
    for piece in pieces:
        pile = grow(pile, piece)
    assert "".join(pile) == "".join(pieces)


@given(st.lists(st.integers(1, 200), max_size=200))
def test_each_member_is_at_least_twice_as_long_as_the_next(lengths):
    pile = ()
    for length in lengths:
        pile = grow(pile, "x" * length)
    assert all(len(a) >= 2 * len(b) for a, b in pairwise(pile))


def test_growing_a_pile_leaves_the_earlier_one_valid():
    before = grow(grow((), "abcd"), "e")
    after = grow(before, "f")
    assert before == ("abcd", "e")
    assert after == ("abcd", "ef")


def test_an_empty_piece_adds_nothing():
    assert grow(("ab",), "") == ("ab",)


def test_a_pile_can_be_made_of_tuples():
    assert grow(grow((), (1, 2)), (3,)) == ((1, 2), (3,))


def test_many_small_pieces_cost_n_log_n_copies_and_a_short_pile():
    count, pile, longest = 20_000, (), 0
    Counted.copied = 0
    for _ in range(count):
        pile = grow(pile, Counted("x"))
        longest = max(longest, len(pile))
    assert Counted.copied <= 2 * count * log2(count)
    assert longest <= log2(count) + 1


def test_a_big_piece_is_copied_no_more_often_than_the_pile_has_members():
    pile = ()
    for length in (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        pile = grow(pile, Counted("x" * length))
    Counted.copied = 0
    (whole,) = grow(pile, Counted("x" * 2000))
    assert Counted.copied <= len(pile) * len(whole)
