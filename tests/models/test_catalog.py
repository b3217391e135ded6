import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.usage import Usage
from holdfast.models.catalog import (
    WIRES,
    Price,
    cost,
    is_silent_reasoner,
    price_of,
    window_of,
)


def test_there_are_four_wires():
    assert WIRES == ("openai-chat", "openai-responses", "anthropic", "demo")


@pytest.mark.parametrize(
    ("model", "price", "window"),
    [
        ("gpt-5.5", Price(5.0, 30.0, 0.5), 1_050_000),
        ("openai/GPT-5.5", Price(5.0, 30.0, 0.5), 1_050_000),
        ("gpt-5.5-pro-2026-04-23", Price(30.0, 180.0, 30.0), 1_050_000),
        ("gpt-5-2025-08-07", Price(1.25, 10.0, 0.125), 400_000),
        ("gpt-5-mini", Price(0.25, 2.0, 0.025), 400_000),
        ("claude-sonnet-4-5-20250929", Price(3.0, 15.0, 0.3), 200_000),
        ("anthropic/claude-sonnet-4.6", Price(3.0, 15.0, 0.3), 1_000_000),
        ("anthropic/claude-opus-4.6", Price(5.0, 25.0, 0.5), 1_000_000),
        ("anthropic/claude-opus-5.5", Price(4.0, 20.0, 0.2), 1_000_000),
        ("claude-opus-4@20250514", Price(15.0, 75.0, 1.5), 200_000),
        ("models/o3:batch", Price(2.0, 8.0, 0.5), 200_000),
        ("demo", Price(0.0, 0.0, 0.0), 0),
    ],
)
def test_a_model_is_known_by_the_longest_name_its_last_part_begins_with(model, price, window):
    assert (price_of(model), window_of(model)) == (price, window)


@pytest.mark.parametrize("model", ["", "gpt-5.9", "gpt-50", "o10", "gpt-5/mine", "llama3.3:70b"])
def test_what_only_looks_alike_is_not_known(model):
    assert price_of(model) is None
    assert window_of(model) == 0


def test_each_token_costs_what_its_kind_costs():
    usage = Usage(input=3_000_000, cached=1_000_000, output=500_000, reasoning=100_000)
    assert cost(Price(5.0, 30.0, 0.5), usage) == 2 * 5.0 + 0.5 + 15.0


def test_where_the_price_is_not_known_neither_is_the_cost():
    assert cost(None, Usage(input=1)) is None


def test_nothing_costs_nothing():
    assert cost(Price(5.0, 30.0, 0.5), Usage()) == 0.0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_no_cost_is_negative_even_where_more_was_cached_than_came_in(tokens, cached, output):
    assert cost(Price(1.0, 2.0, 0.1), Usage(input=tokens, cached=cached, output=output)) >= 0


@pytest.mark.parametrize(
    "model",
    [
        "o1",
        "o1-mini",
        "openai/o1-pro",
        "O3",
        "o3-pro",
        "o3-2025-04-16",
        "deepseek/deepseek-r1:free",
        "deepseek-reasoner",
        "deepseek-v4-pro",
        "nvidia/nemotron-3-ultra",
        "nemotron-3-super-120b",
    ],
)
def test_some_think_in_silence(model):
    assert is_silent_reasoner(model)


@pytest.mark.parametrize(
    "model", ["", "o3-mini", "o4-mini", "o30", "gpt-5.5", "deepseek-chat", "o1/other", "my-o1"]
)
def test_others_do_not(model):
    assert not is_silent_reasoner(model)
