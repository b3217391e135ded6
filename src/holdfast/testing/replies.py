"""A reply in the making, before any wire has put it into words. Pure; `dialects` has the words.

A reply is a row of blocks: text, a thought, or a call of a tool. A block is open until something
else begins, so a fault after half the arguments of a call finds that call open, as it would in
the world.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from holdfast.core.messages import lone
from holdfast.core.usage import Usage

Payload: TypeAlias = dict[str, Any]

#: What a reply is said to have used unless its script knows better.
USAGE = Usage(input=10, output=5)


@dataclass
class Block:
    """One piece of a reply. `text` is what has been said of it so far, or a call's arguments."""

    kind: Literal["text", "thought", "call"]
    index: int
    tool: str = ""
    model_id: str = ""
    text: str = ""


class Reply(ABC):
    """One reply in the making. Each method gives the bytes to send, frame by frame.

    Asked for one body, it sends nothing before its end. `reasons` is what the wire calls the
    reasons we have a word for; any other is passed on as it is.
    """

    reasons: ClassVar[Mapping[str, str]]

    def __init__(self, asked: Payload, usage: Usage = USAGE) -> None:
        self.asked, self.usage = asked, usage
        self.model = str(asked.get("model", ""))
        self.streamed = bool(asked.get("stream"))
        self.blocks: list[Block] = []
        self.reason = ""
        self._begun = False
        self._open: Block | None = None

    # --- what can be said

    def begin(self) -> list[bytes]:
        """What comes before anything is said. Sent once, however often it is asked for."""
        begun, self._begun = self._begun, True
        return [] if begun else self._sent(self._opening())

    def say(self, text: str) -> list[bytes]:
        return self._spoken("text", text)

    def think(self, text: str) -> list[bytes]:
        return self._spoken("thought", text)

    def call(self, tool: str, arguments: str, model_id: str) -> list[bytes]:
        """The arguments come in two pieces, and the call stays open."""
        half = len(arguments) // 2
        begun = self._start(Block("call", len(self.blocks), tool, model_id))
        return begun + self._more(arguments[:half]) + self._more(arguments[half:])

    def finish(self, reason: str = "") -> list[bytes]:
        """Why the reply ends, and no more. Without a reason the ordinary one."""
        called = any(block.kind == "call" for block in self.blocks)
        reason = reason or ("tools" if called else "stop")
        self.reason = self.reasons.get(reason, reason)
        return self.begin() + self._close() + self._sent(self._finishing())

    def end(self) -> list[bytes]:
        """All that is left to say, the reason included if none was given."""
        finish = [] if self.reason else self.finish()
        return finish + (self._sent(self._ending()) if self.streamed else [encoded(self.whole())])

    def cut(self) -> list[bytes]:
        """What there is when the body breaks off: half of it, where it is a single one."""
        body = b"".join([] if self.streamed else self.end())
        return [body[: len(body) // 2]] if body else []

    def ping(self, *, empty: bool) -> list[bytes]:
        """A sign of life that is none of the model's. `empty` is one dressed up as an event."""
        if not self.streamed:
            return [b"\n"]
        return self._emptiness() if empty else self._sent([self._ping()])

    # --- how it is put together

    def _spoken(self, kind: Literal["text", "thought"], text: str) -> list[bytes]:
        goes_on = self._open is not None and self._open.kind == kind
        begun = [] if goes_on else self._start(Block(kind, len(self.blocks)))
        return begun + self._more(text)

    def _start(self, block: Block) -> list[bytes]:
        before = self.begin() + self._close()
        self.blocks.append(block)
        self._open = block
        return before + self._sent(self._starting(block))

    def _more(self, piece: str) -> list[bytes]:
        assert self._open is not None
        self._open.text += piece
        return self._sent([self._delta(self._open, piece)])

    def _close(self) -> list[bytes]:
        block, self._open = self._open, None
        return self._sent(self._closing(block)) if block else []

    def _emptiness(self) -> list[bytes]:
        return self.say("") if self._open is None else self._more("")

    def _sent(self, frames: Sequence[Payload | bytes]) -> list[bytes]:
        if not self.streamed:
            return []
        return [f if isinstance(f, bytes) else self._frame(f) for f in frames]

    def _frame(self, payload: Payload) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), encoded(payload))

    # --- what each wire has its own way of

    @abstractmethod
    def whole(self) -> Payload: ...

    @abstractmethod
    def _opening(self) -> Sequence[Payload]: ...

    @abstractmethod
    def _starting(self, block: Block) -> Sequence[Payload]: ...

    @abstractmethod
    def _delta(self, block: Block, piece: str) -> Payload: ...

    @abstractmethod
    def _finishing(self) -> Sequence[Payload]: ...

    def _closing(self, block: Block) -> Sequence[Payload]:
        return []

    def _ending(self) -> Sequence[Payload | bytes]:
        return []

    def _ping(self) -> Payload | bytes:
        return b": keep-alive\n\n"

    def _said(self, kind: str) -> str:
        return "".join(block.text for block in self.blocks if block.kind == kind)


def encoded(payload: Payload) -> bytes:
    """As JSON, half a character spelled as an escape, since UTF-8 has no way to put it."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    if lone(text) is not None:
        text = json.dumps(payload, separators=(",", ":"))
    return text.encode()
