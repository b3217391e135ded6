"""A model that needs no network: it shows what a run can do, and says that it is a demo.

On first acquaintance it looks around with a tool that only reads, then asks to keep a note,
which takes a person's yes, and answers to whatever came of that. Later it just talks, and asks
again when the word "note" comes up. Told "$ ls", it runs that in the terminal.

It decides from the conversation alone. So it goes on after a crash, an approval or a message
thrown in, as any model would, and the same conversation always gets the same reply.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence

import anyio
import msgspec
from msgspec import Struct

from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Chunk,
    Done,
    Heard,
    Message,
    Reasoning,
    Request,
    Said,
    Thought,
    ToolMessage,
    UserMessage,
    plain,
)
from holdfast.core.usage import Usage

#: The tools it knows how to use, if the request offers them.
LOOK = "look_around"
NOTE = "keep_note"
TERMINAL = "terminal"

#: Characters of somebody's words that it says back, and that it would keep.
_QUOTED = 200
_KEPT = 1000

_DEMO = "I am the built-in demo, not a real model: I think nothing and know nothing."

#: How the engine tells a model that a call was not carried out, and what the demo says to that.
#: The first that fits counts.
_REACTIONS = (
    ("said no", "You said no, so nothing was done, and I will not try it another way."),
    ("nobody answered", "Nobody answered in time, so nothing was done: silence is not a yes."),
    ("nobody can be asked", "There is nobody here to ask, so nothing was done."),
    (
        "unknown",
        "It was cut off, so I cannot tell whether anything was done. I leave it at that.",
    ),
)


#: Seconds before a word.
SLOWEST = 60.0


class Reply(Struct, frozen=True):
    """What the demo makes of a conversation."""

    thought: str
    text: str
    calls: tuple[Asked, ...] = ()


class DemoModel:
    """`pace` is the pause before each word, in seconds; an option of that name counts more."""

    def __init__(self, *, pace: float = 0.03) -> None:
        self._pace = pace

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        reply, pace = compose(request), self._paced(request.options.get("pace"))
        yield Heard()
        for piece in pieces(reply.thought):
            await anyio.sleep(pace)
            yield Thought(piece)
        for piece in pieces(reply.text):
            await anyio.sleep(pace)
            yield Said(piece)
        for call in reply.calls:
            yield Calling(call.tool)
        yield Done(
            calls=reply.calls,
            reasoning=(Reasoning(text=reply.thought, wire="demo"),),
            usage=_usage(request, reply),
        )

    def _paced(self, asked: object) -> float:
        if isinstance(asked, int | float) and 0 <= asked <= SLOWEST:
            return float(asked)
        return self._pace


def compose(request: Request) -> Reply:
    """The reply to this conversation, whatever there is of it."""
    met, exchange = _exchange(request.messages)
    offered = {spec.name for spec in request.tools}
    used = {
        call.tool
        for message in exchange
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    if TERMINAL in offered and (command := _command(exchange)):
        done = TERMINAL in used
        return _answer(exchange, at_hand=True) if done else _run(exchange, command)
    if not met and LOOK in offered - used:
        return _look(exchange)
    if NOTE in offered - used and (not met or _mentions_a_note(exchange)):
        return _ask(exchange)
    return _answer(exchange, at_hand=NOTE in offered)


def pieces(text: str) -> Iterator[str]:
    """The text word by word, each with the space that follows it."""
    return (found[0] for found in re.finditer(r"\S{1,40}\s*|\s+", text))


# --- the four things it can say ------------------------------------------------------------


def _run(exchange: Sequence[Message], command: str) -> Reply:
    return Reply(
        thought="A command. What it may do is not for me to decide.",
        text=f"{_opening(exchange)}I run that in the terminal.",
        calls=(Asked(TERMINAL, msgspec.json.encode({"command": command}).decode(), "demo_run"),),
    )


def _look(exchange: Sequence[Message]) -> Reply:
    return Reply(
        thought="A new conversation. I shall show what a run can do, beginning with a tool that"
        " only reads.",
        text=f"{_opening(exchange)}{_DEMO} But this run is a real one, so let me show you what it"
        " can do. First I look around, which changes nothing and needs nobody's approval.",
        calls=(Asked(LOOK, "{}", "demo_look"),),
    )


def _ask(exchange: Sequence[Message]) -> Reply:
    words = _words(exchange)[:_KEPT] or "(no words)"
    return Reply(
        thought="Keeping a note changes something. That is not for me to decide.",
        text=f"{_opening(exchange)}I would like to keep what you said as a note. That changes"
        " something, so a person is asked first.",
        calls=(Asked(NOTE, msgspec.json.encode({"text": words}).decode(), "demo_note"),),
    )


def _answer(exchange: Sequence[Message], *, at_hand: bool) -> Reply:
    if any(isinstance(message, ToolMessage) for message in exchange):
        thought, end = "I say what came of it, and am done.", "That was all I can show."
    elif at_hand:
        thought = "Something was said. I say it back."
        end = "Say the word “note”, and I shall ask whether I may keep what you said."
    else:
        thought = "There is nothing here that I could use."
        end = "I have no tools here, so talking is all I can do."
    return Reply(thought=thought, text=f"{_opening(exchange)}{end} {_DEMO}")


def _opening(exchange: Sequence[Message]) -> str:
    """What came since its last words: said back if it is a person's, reported if a tool's."""
    return "".join(f"{_reported(message)}\n\n" for message in _news(exchange))


def _reported(message: UserMessage | ToolMessage) -> str:
    if isinstance(message, UserMessage):
        words = " ".join(plain(message.parts).split())
        if not words:
            return "You sent me something without words, which I cannot read."
        return f"You said: “{words if len(words) <= _QUOTED else words[:_QUOTED] + '…'}”"
    if message.ok:
        return f"{message.tool} says: {message.output}."
    reactions = (said for sign, said in _REACTIONS if sign in message.output)
    return next(reactions, f"{message.tool} did not work: {message.output}.")


# --- reading the conversation --------------------------------------------------------------


def _exchange(messages: Sequence[Message]) -> tuple[bool, Sequence[Message]]:
    """Whether it has answered before, and all that came after that answer."""
    for place in range(len(messages), 0, -1):
        message = messages[place - 1]
        if isinstance(message, AssistantMessage) and not message.calls:
            return True, messages[place:]
    return False, messages


def _news(exchange: Sequence[Message]) -> Sequence[UserMessage | ToolMessage]:
    """What came after its last words."""
    news: list[UserMessage | ToolMessage] = []
    for message in exchange:
        if isinstance(message, AssistantMessage):
            news.clear()
        else:
            news.append(message)
    return news


def _words(exchange: Sequence[Message]) -> str:
    """What people said, all of it."""
    said = (plain(message.parts) for message in exchange if isinstance(message, UserMessage))
    return "\n".join(words for words in said if words.strip())


def _command(exchange: Sequence[Message]) -> str:
    """What is to be run, if the last thing that somebody said is a command."""
    said = [message for message in exchange if isinstance(message, UserMessage)]
    words = plain(said[-1].parts).strip() if said else ""
    return words.removeprefix("$ ").strip() if words.startswith("$ ") else ""


def _mentions_a_note(exchange: Sequence[Message]) -> bool:
    return re.search(r"\bnotes?\b", _words(exchange), re.IGNORECASE) is not None


def _usage(request: Request, reply: Reply) -> Usage:
    """A word counts as a token, so that there is something to add up."""
    read = [request.instructions, *map(_read, request.messages)]
    thought = len(reply.thought.split())
    return Usage(
        input=sum(len(text.split()) for text in read),
        output=thought + len(reply.text.split()),
        reasoning=thought,
    )


def _read(message: Message) -> str:
    if isinstance(message, UserMessage):
        return plain(message.parts)
    return message.text if isinstance(message, AssistantMessage) else message.output
