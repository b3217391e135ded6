"""Which calls need a yes, and how far a yes reaches.

Fails closed: what cannot be asked is not done. A standing yes never covers a doubt: when a crash
hid whether a writing call took effect, the same call again is always put to a person, who is
shown which call it repeats.

A standing yes covers calls of the same key. Where a key ends in a list of words, a person may
write "..." as the last word of a rule, for whatever follows; no call has a key like that.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.messages import ToolCall
from holdfast.core.run import effects
from holdfast.core.state import Grant, RunState, ToolState

Denial: TypeAlias = Literal["denied", "expired", "refused"]


#: Only these are a yes.
YES = frozenset({"once", "session", "always"})


#: How a rule that covers whatever follows ends.
AND_SO_ON = ',"..."]'


class Allowed(Struct, frozen=True):
    """It may run now; `rule` is the standing yes it runs by, if nobody was asked."""

    rule: str = ""


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


def verdict(state: RunState, tool: ToolState, standing: Iterable[Grant] | None = None) -> Verdict:
    """May this call run? `standing` are the rules that hold now; None: those granted in this run."""
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


def digest(call: ToolCall) -> str:
    """The sum of what a yes is given to: this very call, and all that it depends on."""
    shown = (call.id, call.tool, call.arguments, call.subject, call.binding)
    return sha256(msgspec.json.encode(shown)).hexdigest()


def _unasked(state: RunState, call: ToolCall, standing: Iterable[Grant] | None) -> Verdict:
    doubt = _doubt(state, call)
    if not doubt and call.gate == "auto":
        return Allowed()
    grant = _grant(call, state.grants if standing is None else standing)
    if not doubt and grant:
        return Allowed(grant.rule)
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
    return next((state.doubts[one] for one in effects(state, call) if one in state.doubts), "")


def _grant(call: ToolCall, grants: Iterable[Grant]) -> Grant | None:
    fitting = (grant for grant in grants if grant.tool == call.tool and covers(grant.key, call.key))
    return next(fitting, None)


def covers(rule: str, key: str) -> bool:
    """A rule of this key reaches a call of that one."""
    if not key or key.endswith(AND_SO_ON):
        return False
    if not rule.endswith(AND_SO_ON):
        return rule == key
    words = rule.removesuffix(AND_SO_ON)
    return key == f"{words}]" or key.startswith(f"{words},")
