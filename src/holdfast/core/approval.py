"""Which calls need a yes, and how far a yes reaches.

Fails closed: what cannot be asked is not done. A standing yes never covers a doubt: when a crash
hid whether a writing call took effect, the same call again is always put to a person, who is
shown which call it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.messages import ToolCall
from holdfast.core.run import effect
from holdfast.core.state import Grant, RunState, ToolState

Denial: TypeAlias = Literal["denied", "expired", "refused"]


#: Only these are a yes.
YES = frozenset({"once", "session", "always"})


class Allowed(Struct, frozen=True):
    """It may run now."""


class Ask(Struct, frozen=True):
    """A person has to be asked; `doubt` is the earlier call this one may repeat."""

    reason: str
    doubt: str = ""


class Waiting(Struct, frozen=True):
    """A person has been asked and has not answered."""


class Forbidden(Struct, frozen=True):
    """It will not run, and the model is told why in these words."""

    outcome: Denial
    why: str


Verdict: TypeAlias = Allowed | Ask | Waiting | Forbidden


def verdict(state: RunState, tool: ToolState, standing: Iterable[Grant]) -> Verdict:
    """May this call run? `standing` are the rules of the session and the workspace."""
    call = tool.call
    if call.gate == "refuse":
        return Forbidden(
            "refused", call.reason or "this is not allowed here, and nobody can allow it"
        )
    if tool.expired:
        return Forbidden(
            "expired", "nobody answered in time; silence is not consent, so it was not run"
        )
    if tool.answer in YES:
        return Allowed()
    if tool.answer:
        return Forbidden("denied", "the person who was asked said no; do not try it another way")
    if tool.asked:
        return Waiting()
    return _unasked(state, call, standing)


def _unasked(state: RunState, call: ToolCall, standing: Iterable[Grant]) -> Verdict:
    doubt = _doubt(state, call)
    if not doubt and (call.gate == "auto" or _granted(call, (*state.grants, *standing))):
        return Allowed()
    if state.accepted is None or state.accepted.approval == "deny":
        return Forbidden("refused", "this needs a person's approval, and nobody can be asked here")
    if doubt:
        return Ask(
            "an earlier call just like this one was cut off and may have taken effect", doubt
        )
    return Ask(call.reason)


def _doubt(state: RunState, call: ToolCall) -> str:
    spec = state.spec(call.tool)
    if not state.doubts or (spec and not spec.writes):
        return ""
    return state.doubts.get(effect(call), "")


def _granted(call: ToolCall, grants: Iterable[Grant]) -> bool:
    return bool(call.key) and any(
        (grant.tool, grant.key) == (call.tool, call.key) for grant in grants
    )
