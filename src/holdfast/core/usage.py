"""Tokens and money, added up."""

from __future__ import annotations

from msgspec import Struct

#: What a token is guessed at, where nobody counts.
CHARACTERS_A_TOKEN = 4


class Usage(Struct, frozen=True, omit_defaults=True):
    """What one or several model calls used. All but `input`, `output` and `cost` are parts of them.

    `cached` is the input that was read before, `written` what was put aside to be. `estimated` is
    the input nobody counted for us: of a call that was hung up on. `cost` is None where a price is
    not known.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: int = 0
    cost: float | None = 0.0
    written: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated + other.estimated,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
            written=self.written + other.written,
        )


class Budget(Struct, frozen=True):
    """How much one run may use. 0 means no limit.

    `seconds` counts the time spent in model calls and tools as measured by the worker that
    spent it. Waiting for a person, in the queue or in a back-off costs nothing, and a jump of
    the wall clock changes nothing.
    """

    turns: int = 90
    seconds: float = 0.0
    tokens: int = 0
    money: float = 0.0

    def spent(self, *, turns: int, seconds: float, usage: Usage) -> str | None:
        """The sentence to end on when a limit is reached, or None while there is room."""
        if self.turns and turns >= self.turns:
            return f"the run used its {self.turns} turns without coming to an end"
        if self.seconds and seconds >= self.seconds:
            return f"the run used its {self.seconds:g} s of work without coming to an end"
        if self.tokens and usage.total >= self.tokens:
            return f"the run used {usage.total} of its {self.tokens} tokens"
        if self.money and usage.cost is None:
            return f"the price of this model is not known, so {self.money:g} in money cannot be kept to"
        if self.money and usage.cost is not None and usage.cost >= self.money:
            return f"the run used {usage.cost:.4f} of its {self.money:g} in money"
        return None
