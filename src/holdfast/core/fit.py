"""A conversation made to fit every wire. The record stays as it is; only what is sent is mended.

Runs end anywhere: between a call and its result, in the middle of a word, before any answer. And a
history may come from anywhere. Endpoints refuse a whole conversation for the least of that, so
each that goes out is one they all accept: people and the model take turns, people first, and
behind each call stands its one result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import RunCancelled
from holdfast.core.messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holdfast.core.run import untold
from holdfast.core.state import RunState
from holdfast.core.transcript import taken_back

#: What stands where something must.
_NO_RESULT = "no result of this call is known; whether it took effect is unknown"
_NO_WORDS = "[no words]"
_EARLIER = "[what was said before this is not known]"

#: What follows the words of a reply that has no end, and stands for one that was not to come.
CUT_OFF = "[the reply was cut off here]"
STOPPED = "[this was stopped before there was a reply]"

#: Ids and names that every wire takes.
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class _Use(Struct):
    """A call on its way out: its id there, and its result once that is found."""

    call: ToolCall
    result: ToolMessage | None = None


class _Turn(Struct):
    """What one side says: a person's parts, or a model's words and the tools it uses then."""

    parts: list[Part] = []
    id: str = ""
    reply: AssistantMessage | None = None
    #: What it says more before it uses a tool.
    more: list[str] = []
    uses: tuple[_Use, ...] = ()


def conversation(state: RunState) -> tuple[Message, ...]:
    """What later runs of the session are shown of this one; nothing if it was taken back.

    Not what its model thought, which is for the eyes of people. Words that a person saw of a
    reply without an end are in it, and say so. What was stopped before there were any says so, too:
    else it would be asked for again, in one breath with what a person says next.
    """
    if taken_back(state):
        return ()
    attempt = state.attempt
    words = "".join(attempt.text) if attempt else ""
    cut = (AssistantMessage(text=f"{words.rstrip()}\n\n{CUT_OFF}"),) if words.strip() else ()
    # What is still untold came after those words.
    messages = (*state.conversation, *cut, *untold(state))
    if isinstance(state.ended, RunCancelled) and _unanswered(messages):
        messages = (*messages, AssistantMessage(text=STOPPED))
    return tuple(
        replace(message, reasoning=()) if isinstance(message, AssistantMessage) else message
        for message in messages
    )


def _unanswered(messages: Sequence[Message]) -> bool:
    return bool(messages) and isinstance(messages[-1], UserMessage)


def fit(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same conversation, as every wire accepts it."""
    return tuple(message for turn in _turns(messages) for message in _spoken(turn))


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    #: Calls that wait for their results, by the ids they came with.
    open_uses: dict[str, list[_Use]] = {}
    taken: set[str] = set()
    numbers = count(1)
    for message in messages:
        match message:
            case UserMessage(parts=parts):
                _hear(turns, parts, message.id)
            case AssistantMessage():
                uses = tuple(_Use(_named(call, taken, numbers)) for call in message.calls)
                _reply(turns, message, uses)
                # Of calls with one id, the latest have a claim to what follows.
                open_uses |= {call.id: [] for call in message.calls}
                for call, use in zip(message.calls, uses, strict=True):
                    open_uses[call.id].append(use)
            case _:
                if waiting := open_uses.get(message.call_id):
                    waiting.pop(0).result = message
    return turns


def _hear(turns: list[_Turn], parts: tuple[Part, ...], id: str) -> None:
    """A person speaks. Who got no answer and spoke again said both."""
    visible = [part for part in parts if isinstance(part, Image) or part.text.strip()]
    if turns and turns[-1].reply is None:
        turns[-1].parts += visible
    else:
        turns.append(_Turn(parts=visible, id=id))


def _reply(turns: list[_Turn], reply: AssistantMessage, uses: tuple[_Use, ...]) -> None:
    """The model speaks. What it said in two messages without a word between is one."""
    if not reply.text.strip() and not uses:
        return
    if not turns:
        turns.append(_Turn(parts=[Text(_EARLIER)]))
    last = turns[-1]
    if last.reply is None:
        turns.append(_Turn(reply=reply, uses=uses))
    elif not last.uses:
        last.more.append(reply.text)
        last.uses = uses
    else:
        turns.append(_Turn(reply=reply, uses=uses))


def _spoken(turn: _Turn) -> Iterator[Message]:
    if turn.reply is None:
        yield UserMessage(parts=tuple(turn.parts) or (Text(_NO_WORDS),), id=turn.id)
        return
    reply = turn.reply
    if turn.more:
        # A seal is good for its own place only, so thoughts do not move along.
        said = (text for text in (reply.text, *turn.more) if text.strip())
        reply = AssistantMessage(text="\n\n".join(said))
    yield replace(reply, calls=tuple(use.call for use in turn.uses))
    for use in turn.uses:
        call_id, tool = use.call.id, use.call.tool
        if use.result is None:
            yield ToolMessage(call_id=call_id, tool=tool, output=_NO_RESULT, ok=False)
        else:
            yield replace(use.result, call_id=call_id, tool=tool)


def _named(call: ToolCall, taken: set[str], numbers: Iterator[int]) -> ToolCall:
    """The call under an id that no other has, and under a name that could be a tool's."""
    id = call.id
    while id in taken or not _PLAIN_ID.fullmatch(id):
        id = f"call_{next(numbers)}"
    taken.add(id)
    name = _ODD.sub("_", call.tool)[:_LONGEST_NAME] or "unknown"
    return replace(call, id=id, tool=name)
