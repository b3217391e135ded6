"""What is known of widely used models by their names: price, window, and how they think.

A name is looked up by its last path part, the longest entry first, so that a dated version or a
router's spelling finds its family. Open models are not priced: their price is their host's.
Prices are in dollars for a million tokens and change without notice; a setting counts before
any of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from holdfast.core.usage import Usage

#: The protocols a model may speak.
WIRES = ("openai-chat", "openai-responses", "anthropic", "demo")


class Price(Struct, frozen=True):
    """For a million tokens. `cached` is for input that was read before.

    `written` is for input that is put aside to be read again; None where that costs no more.
    """

    input: float
    output: float
    cached: float
    written: float | None = None


class _Facts(NamedTuple):
    window: int
    price: Price


def _claude(window: int, fresh: float, output: float, cached: float) -> _Facts:
    """Putting input aside for five minutes costs a quarter more than reading it."""
    return _Facts(window, Price(fresh, output, cached, fresh * 1.25))


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
    "claude-fable-5": _claude(1_000_000, 10.0, 50.0, 1.0),
    "claude-opus-5-5": _claude(1_000_000, 4.0, 20.0, 0.2),
    "claude-opus-5": _claude(1_000_000, 5.0, 25.0, 0.5),
    "claude-opus-4-8": _claude(1_000_000, 5.0, 25.0, 0.5),
    "claude-opus-4-7": _claude(1_000_000, 5.0, 25.0, 0.5),
    "claude-opus-4-6": _claude(1_000_000, 5.0, 25.0, 0.5),
    "claude-opus-4-5": _claude(200_000, 5.0, 25.0, 0.5),
    "claude-opus-4": _claude(200_000, 15.0, 75.0, 1.5),
    "claude-sonnet-5": _claude(1_000_000, 2.0, 10.0, 0.2),
    "claude-sonnet-4-6": _claude(1_000_000, 3.0, 15.0, 0.3),
    "claude-sonnet-4": _claude(200_000, 3.0, 15.0, 0.3),
    "claude-haiku-4-5": _claude(200_000, 1.0, 5.0, 0.1),
    "demo": _Facts(0, Price(0.0, 0.0, 0.0)),
}

#: Whether it may think for minutes before it says a word. The smaller kin of one that does may not.
_SILENT = {
    "o1": True,
    "o3": True,
    "o3-mini": False,
    "gpt-5-pro": True,
    "gpt-5.2-pro": True,
    "gpt-5.4-pro": True,
    "gpt-5.5-pro": True,
    # Unless they are asked to, they do not show what they think.
    "claude-fable-5": True,
    "claude-haiku-5": True,
    "claude-opus-4-7": True,
    "claude-opus-4-8": True,
    "claude-opus-5": True,
    "claude-sonnet-5": True,
    "deepseek-r1": True,
    "deepseek-reasoner": True,
    "deepseek-v4": True,
    "nemotron-3-super": True,
    "nemotron-3-ultra": True,
}

#: Those of OpenAI that do not think, and so have no thoughts to seal.
_THOUGHTLESS = ("chatgpt-4o", "gpt-3.5", "gpt-4", "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5-chat")

#: Those of OpenAI that think, and take no limit but one that their thoughts count for as well.
_COUNTING = ("gpt-5", "gpt-5.1", "gpt-5.2", "gpt-5.4", "gpt-5.5", "o1", "o3", "o4-mini")

#: How a model of Anthropic's is made to think: by a budget of tokens, by being asked to, or by
#: itself. "" where it is another's, or too old to think at all.
Thinks: TypeAlias = Literal["budget", "asked", "itself", ""]

_THINKS: dict[str, Thinks] = {
    "claude": "itself",
    "claude-3": "",
    "claude-3-7": "budget",
    "claude-haiku-4": "budget",
    "claude-opus-4": "budget",
    "claude-opus-4-7": "asked",
    "claude-opus-4-8": "asked",
    "claude-sonnet-4": "budget",
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
    written = min(usage.written, usage.input - cached)
    fresh = usage.input - cached - written
    read = fresh * price.input + cached * price.cached
    kept = written * (price.input if price.written is None else price.written)
    return (read + kept + usage.output * price.output) / 1_000_000


def window_of(model: str) -> int:
    """Tokens that fit into one call. 0 where it is not known."""
    found = _find(model, _FACTS)
    return _FACTS[found].window if found else 0


def is_silent_reasoner(model: str) -> bool:
    found = _find(model, _SILENT)
    return _SILENT[found] if found else False


def seals_thoughts(model: str) -> bool:
    """Whether it can be asked for its thoughts under a seal. Who cannot refuses to be asked."""
    return _find(model.removeprefix("ft:"), _THOUGHTLESS) is None


def counts_thoughts(model: str) -> bool:
    """Whether the longest reply is to be named with its thoughts."""
    return _find(model.removeprefix("ft:"), _COUNTING) is not None


def thinks(model: str) -> Thinks:
    found = _find(model, _THINKS)
    return _THINKS[found] if found else ""


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
