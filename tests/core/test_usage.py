import pytest

from holdfast.core.usage import Budget, Usage

NOTHING = {"turns": 0, "seconds": 0.0, "usage": Usage()}


def test_usage_adds_up_field_by_field():
    one = Usage(input=1, output=2, cached=3, reasoning=4, estimated=5, cost=0.5, written=6)
    two = Usage(input=10, output=20, cached=30, reasoning=40, estimated=50, cost=0.25, written=60)
    assert one + two == Usage(11, 22, 33, 44, 55, 0.75, 66)


def test_cached_and_reasoning_tokens_are_parts_of_the_total_and_not_added_to_it():
    assert Usage(input=5, output=7, cached=4, reasoning=6).total == 12


def test_nothing_used_adds_nothing():
    assert Usage(input=3) + Usage() == Usage(input=3)


def test_a_fresh_run_has_room_in_any_budget():
    assert Budget(turns=1, seconds=1, tokens=1, money=1).spent(**NOTHING) is None


@pytest.mark.parametrize(
    ("budget", "used", "words"),
    [
        (Budget(turns=2), {"turns": 2}, "its 2 turns"),
        (Budget(seconds=1.5), {"seconds": 1.5}, "its 1.5 s of work"),
        (Budget(tokens=10), {"usage": Usage(input=6, output=4)}, "10 of its 10 tokens"),
        (Budget(money=0.5), {"usage": Usage(cost=0.5)}, "0.5000 of its 0.5 in money"),
    ],
)
def test_a_limit_that_is_reached_is_named(budget, used, words):
    assert words in budget.spent(**{**NOTHING, **used})


@pytest.mark.parametrize(
    ("budget", "used"),
    [
        (Budget(turns=2), {"turns": 1}),
        (Budget(seconds=1.5), {"seconds": 1.4}),
        (Budget(tokens=10), {"usage": Usage(input=6, output=3)}),
        (Budget(money=0.5), {"usage": Usage(cost=0.49)}),
    ],
)
def test_below_a_limit_there_is_room(budget, used):
    assert budget.spent(**{**NOTHING, **used}) is None


def test_zero_is_no_limit():
    everything = Usage(input=10**9, output=10**9, cost=1e9)
    unlimited = Budget(turns=0, seconds=0.0, tokens=0, money=0.0)
    assert unlimited.spent(turns=10**6, seconds=1e9, usage=everything) is None


def test_unless_told_otherwise_only_turns_are_limited():
    everything = Usage(input=10**9, output=10**9, cost=1e9)
    assert Budget().spent(turns=89, seconds=1e9, usage=everything) is None
    assert Budget().spent(turns=90, seconds=0.0, usage=Usage()) is not None


def test_what_nobody_knows_the_price_of_makes_the_sum_unknown():
    assert (Usage(cost=1.0) + Usage(cost=None)).cost is None
    assert (Usage(cost=None) + Usage(cost=1.0)).cost is None


def test_a_budget_of_money_is_not_kept_to_by_guessing():
    words = Budget(money=5.0).spent(turns=0, seconds=0.0, usage=Usage(cost=None))
    assert words == "the price of this model is not known, so 5 in money cannot be kept to"
    assert Budget().spent(turns=0, seconds=0.0, usage=Usage(cost=None)) is None
