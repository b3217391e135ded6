"""What is known of widely used models by their names: price, window, and who thinks in silence.

A name is looked up by its last path part, the longest entry first, so that a dated version or a
router's spelling finds its family. Open models are not priced: their price is their host's.
Prices are in dollars for a million tokens and change without notice; a setting counts before
any of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from holdfast.core.usage import Usage

#: The protocols a model may speak.
WIRES = ("openai-chat", "openai-responses", "anthropic", "demo")


class Price(Struct, frozen=True):
    """For a million tokens. `cached` is for input that was read before."""

    input: float
    output: float
    cached: float


class _Facts(NamedTuple):
    window: int
    price: Price


_FACTS = {
    "gpt-5.5": _Facts(1_050_000, Price(5.0, 30.0, 0.5)),
    "gpt-5.5-pro": _Facts(1_050_000, Price(30.0, 180.0, 30.0)),
    "gpt-5.4": _Facts(1_050_000, Price(2.5, 15.0, 0.25)),
    "gpt-5.4-mini": _Facts(400_000, Price(0.75, 4.5, 0.075)),
    "gpt-5.4-nano": _Facts(400_000, Price(0.2, 1.25, 0.02)),
    "gpt-5.4-pro": _Facts(1_050_000, Price(30.0, 180.0, 30.0)),
    "gpt-5.2": _Facts(400_000, Price(1.75, 14.0, 0.175)),
    "gpt-5.2-pro": _Facts(400_000, Price(21.0, 168.0, 21.0)),
    "gpt-5.1": _Facts(400_000, Price(1.25, 10.0, 0.125)),
    "gpt-5": _Facts(400_000, Price(1.25, 10.0, 0.125)),
    "gpt-5-mini": _Facts(400_000, Price(0.25, 2.0, 0.025)),
    "gpt-5-nano": _Facts(400_000, Price(0.05, 0.4, 0.005)),
    "gpt-5-pro": _Facts(400_000, Price(15.0, 120.0, 15.0)),
    "gpt-4.1": _Facts(1_047_576, Price(2.0, 8.0, 0.5)),
    "gpt-4.1-mini": _Facts(1_047_576, Price(0.4, 1.6, 0.1)),
    "gpt-4.1-nano": _Facts(1_047_576, Price(0.1, 0.4, 0.025)),
    "gpt-4o": _Facts(128_000, Price(2.5, 10.0, 1.25)),
    "gpt-4o-mini": _Facts(128_000, Price(0.15, 0.6, 0.075)),
    "o1": _Facts(200_000, Price(15.0, 60.0, 7.5)),
    "o1-mini": _Facts(128_000, Price(1.1, 4.4, 0.55)),
    "o1-pro": _Facts(200_000, Price(150.0, 600.0, 150.0)),
    "o3": _Facts(200_000, Price(2.0, 8.0, 0.5)),
    "o3-mini": _Facts(200_000, Price(1.1, 4.4, 0.55)),
    "o3-pro": _Facts(200_000, Price(20.0, 80.0, 20.0)),
    "o4-mini": _Facts(200_000, Price(1.1, 4.4, 0.275)),
    "claude-fable-5": _Facts(1_000_000, Price(10.0, 50.0, 1.0)),
    "claude-opus-5-5": _Facts(1_000_000, Price(4.0, 20.0, 0.2)),
    "claude-opus-5": _Facts(1_000_000, Price(5.0, 25.0, 0.5)),
    "claude-opus-4-8": _Facts(1_000_000, Price(5.0, 25.0, 0.5)),
    "claude-opus-4-7": _Facts(1_000_000, Price(5.0, 25.0, 0.5)),
    "claude-opus-4-6": _Facts(1_000_000, Price(5.0, 25.0, 0.5)),
    "claude-opus-4-5": _Facts(200_000, Price(5.0, 25.0, 0.5)),
    "claude-opus-4": _Facts(200_000, Price(15.0, 75.0, 1.5)),
    "claude-sonnet-5": _Facts(1_000_000, Price(2.0, 10.0, 0.2)),
    "claude-sonnet-4-6": _Facts(1_000_000, Price(3.0, 15.0, 0.3)),
    "claude-sonnet-4": _Facts(200_000, Price(3.0, 15.0, 0.3)),
    "claude-haiku-4-5": _Facts(200_000, Price(1.0, 5.0, 0.1)),
    "demo": _Facts(0, Price(0.0, 0.0, 0.0)),
}

#: Whether it may think for minutes before it says a word. The smaller kin of one that does may not.
_SILENT = {
    "o1": True,
    "o3": True,
    "o3-mini": False,
    "deepseek-r1": True,
    "deepseek-reasoner": True,
    "deepseek-v4": True,
    "nemotron-3-super": True,
    "nemotron-3-ultra": True,
}


def price_of(model: str) -> Price | None:
    """None where it is not known."""
    found = _find(model, _FACTS)
    return _FACTS[found].price if found else None


def cost(price: Price | None, usage: Usage) -> float | None:
    """What this much comes to, in dollars. None where the price is not known."""
    if price is None:
        return None
    cached = min(usage.cached, usage.input)
    fresh = usage.input - cached
    return (fresh * price.input + cached * price.cached + usage.output * price.output) / 1_000_000


def window_of(model: str) -> int:
    """Tokens that fit into one call. 0 where it is not known."""
    found = _find(model, _FACTS)
    return _FACTS[found].window if found else 0


def is_silent_reasoner(model: str) -> bool:
    found = _find(model, _SILENT)
    return _SILENT[found] if found else False


def _find(model: str, names: Iterable[str]) -> str | None:
    name = model.rpartition("/")[2].lower()
    if name.startswith("claude-"):
        # The maker writes 4-5, routers write 4.5. With others a dot tells versions apart.
        name = name.replace(".", "-")
    known = (slug for slug in names if _begins(name, slug))
    return max(known, key=len, default=None)


def _begins(name: str, slug: str) -> bool:
    """Whole words only: o1 is not in o10, nor gpt-4 in gpt-4.1."""
    return name.startswith(slug) and name[len(slug) :][:1] in ("", "-", ":", "@")
