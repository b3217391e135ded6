import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.usage import Usage
from holdfast.models.catalog import (
    WIRES,
    Price,
    cost,
    counts_thoughts,
    is_silent_reasoner,
    price_of,
    seals_thoughts,
    thinks,
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
        ("claude-sonnet-4-5-20250929", Price(3.0, 15.0, 0.3, 3.75), 200_000),
        ("anthropic/claude-sonnet-4.6", Price(3.0, 15.0, 0.3, 3.75), 1_000_000),
        ("anthropic/claude-opus-4.6", Price(5.0, 25.0, 0.5, 6.25), 1_000_000),
        ("anthropic/claude-opus-5.5", Price(4.0, 20.0, 0.2, 5.0), 1_000_000),
        ("claude-opus-4@20250514", Price(15.0, 75.0, 1.5, 18.75), 200_000),
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


def test_putting_input_aside_has_a_price_of_its_own_where_it_costs_more():
    usage = Usage(input=3_000_000, cached=1_000_000, written=1_500_000)
    assert cost(Price(4.0, 20.0, 0.4, 5.0), usage) == 0.5 * 4.0 + 0.4 + 1.5 * 5.0
    assert cost(Price(4.0, 20.0, 0.4), usage) == 2 * 4.0 + 0.4


def test_where_the_price_is_not_known_neither_is_the_cost():
    assert cost(None, Usage(input=1)) is None


def test_nothing_costs_nothing():
    assert cost(Price(5.0, 30.0, 0.5), Usage()) == 0.0


COUNTS = st.integers(0, 10**9)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_cost_is_negative_even_where_more_was_cached_than_came_in(
    tokens, cached, written, output
):
    usage = Usage(input=tokens, cached=cached, written=written, output=output)
    assert cost(Price(1.0, 2.0, 0.1, 1.25), usage) >= 0


@pytest.mark.parametrize(
    "model",
    [
        "o1",
        "o1-mini",
        "openai/o1-pro",
        "O3",
        "o3-pro",
        "o3-2025-04-16",
        "gpt-5-pro",
        "openai/gpt-5.2-pro",
        "gpt-5.5-pro-2026-04-23",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "anthropic/claude-opus-5.5",
        "claude-opus-4-8",
        "claude-haiku-5-5",
        "claude-fable-5-1",
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
    "model",
    [
        "",
        "o3-mini",
        "o4-mini",
        "o30",
        "gpt-5.5",
        "claude-sonnet-4-6",
        "deepseek-chat",
        "o1/other",
        "my-o1",
    ],
)
def test_others_do_not(model):
    assert not is_silent_reasoner(model)


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-5", "o3", "openai/gpt-5-mini", "gpt", "mine"])
def test_who_thinks_can_be_asked_for_sealed_thoughts(model):
    assert seals_thoughts(model)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4.1",
        "gpt-4.1-mini-2025-04-14",
        "gpt-4o",
        "gpt-4-turbo",
        "gpt-4",
        "gpt-3.5-turbo",
        "chatgpt-4o-latest",
        "gpt-5-chat-latest",
        "openai/gpt-4o-mini",
        "ft:gpt-4o-mini:ada",
    ],
)
def test_who_does_not_think_has_nothing_to_seal(model):
    assert not seals_thoughts(model)


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("claude-3-7-sonnet-20250219", "budget"),
        ("claude-opus-4-20250514", "budget"),
        ("claude-opus-4-1", "budget"),
        ("anthropic/claude-sonnet-4.6", "budget"),
        ("claude-haiku-4-5-20251001", "budget"),
        ("claude-opus-4-7", "asked"),
        ("claude-opus-4.8", "asked"),
        ("claude-opus-5", "itself"),
        ("claude-sonnet-5-5", "itself"),
        ("claude-fable-5-1", "itself"),
        ("claude-new-9", "itself"),
        ("claude-3-5-haiku-20241022", ""),
        ("claude-3-opus-20240229", ""),
        ("deepseek-v4-pro", ""),
        ("", ""),
    ],
)
def test_how_a_model_is_made_to_think(model, how):
    assert thinks(model) == how


@pytest.mark.parametrize("model", ["gpt-5", "openai/gpt-5.4-mini", "o1-mini", "ft:o4-mini:me"])
def test_who_thinks_counts_its_thoughts(model):
    assert counts_thoughts(model)


@pytest.mark.parametrize("model", ["gpt-4o", "gpt", "llama-3", "o10", "mine"])
def test_of_others_that_is_not_known(model):
    assert not counts_thoughts(model)
