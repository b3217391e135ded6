"""A run's journal as a stream of chat completion chunks.

Such a stream cannot take words back. A reader sees a break where an attempt was given up, and then
the new one; what is stored stays exact. Whatever else there is to tell goes beside the words, for
they are kept by the client and come back as history: progress of tools as events with a name, each
of them an empty chunk as well, since the official clients take every event for a chunk; what is
waited for as comments; and that a person is asked both as such an event and among the thoughts,
which people are shown and nobody sends back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from holdfast.core.events import (
    FINAL,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    ModelCalled,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import ToolCall
from holdfast.core.state import Pending, RunState
from holdfast.server.frames import BREAK, Fields, Try, approval, find_tool, short
from holdfast.server.openai.ending import Ending, ending, hermes, spent
from holdfast.server.openai.ids import completion_id
from holdfast.server.openai.reading import BLANK, Reading, frame, waiting

DONE = b"data: [DONE]\n\n"

PROGRESS = "hermes.tool.progress"
APPROVAL = "hermes.approval.request"
SETTLED = "hermes.approval.responded"

_EMOJI = "🔧"
_MOST_LABEL = 120


class ChatProjection:
    """One reader's view of a run, who is told all of it.

    It is fed the journal from its first event on. `retracted` are the attempts that are taken back
    in what is stored already, as `frames.retracted_attempts` finds them: nobody is shown those.
    """

    def __init__(
        self,
        run_id: str,
        *,
        include_usage: bool = False,
        retracted: AbstractSet[Try] = frozenset[Try](),
    ) -> None:
        self._run_id, self._include_usage, self._retracted = run_id, include_usage, retracted
        self._reading = Reading()
        self._head: Fields = {}
        #: Which kinds of words of the attempt under way were shown, and whether there are any of
        #: an earlier turn.
        self._shown: dict[str, None] = {}
        self._said = self._thought = False
        #: Words of the attempt under way that are to have a shape: clients take all that is said for
        #: it, so nothing is said before it is known to stand and to be the answer.
        self._held: list[str] = []
        self._tell: Mapping[type[Any], Callable[[Any, RunState], Iterator[bytes]]] = {
            RunAccepted: self._accepted,
            ModelCalled: self._called,
            TextStreamed: self._text,
            ReasoningStreamed: self._reasoning,
            ModelRetracted: self._taken_back,
            ModelReplied: self._replied,
            ToolStarted: self._started,
            ToolFinished: self._finished,
            ApprovalRequested: self._requested,
            ApprovalAnswered: self._settled,
            ApprovalExpired: self._settled,
            **dict.fromkeys(FINAL, self._ended),
        }

    def frames(self, recorded: Recorded) -> bytes:
        """What the reader is sent for the journal's next event; often nothing."""
        before = self._reading.take(recorded)
        self._head = self._head or self._common()
        tell = self._tell.get(type(recorded.event))
        told = b"".join(tell(recorded.event, before)) if tell else b""
        return told + waiting(recorded, self._reading.now)

    # --- one function an event -----------------------------------------------------------

    def _accepted(self, _event: RunAccepted, _before: RunState) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def _called(self, _event: ModelCalled, _before: RunState) -> Iterator[bytes]:
        # Somebody spoke when the last reply stood, so it was not the answer.
        yield from self._let_go(self._think)
        self._thought = self._thought or "reasoning_content" in self._shown
        self._shown = {}

    def _text(self, event: TextStreamed, _before: RunState) -> Iterator[bytes]:
        if (event.turn, event.attempt) in self._retracted:
            return
        if self._reading.shaped:
            self._held.append(event.text)
        else:
            yield from self._say(event.text)

    def _reasoning(self, event: ReasoningStreamed, _before: RunState) -> Iterator[bytes]:
        if (event.turn, event.attempt) not in self._retracted:
            yield from self._think(event.text)

    def _taken_back(self, _event: ModelRetracted, _before: RunState) -> Iterator[bytes]:
        for kind in self._shown:
            yield self._chunk({kind: BREAK})
        self._shown, self._held = {}, []

    def _replied(self, event: ModelReplied, before: RunState) -> Iterator[bytes]:
        # What was said before a call, or while somebody spoke, is not the answer. Whether anything
        # else is shows only at the end.
        if event.calls or before.inputs:
            yield from self._let_go(self._think)
        self._said = self._said or "content" in self._shown
        self._thought = self._thought or "reasoning_content" in self._shown

    def _started(self, event: ToolStarted, before: RunState) -> Iterator[bytes]:
        if before.stopping:
            # The stop stands before the intent, so it did not start.
            return
        call = find_tool(self._reading.now, event.call_id).call
        label = short(" ".join((call.subject or call.arguments).split()), _MOST_LABEL)
        yield from self._progress(call, emoji=_EMOJI, label=label, status="running")

    def _finished(self, event: ToolFinished, before: RunState) -> Iterator[bytes]:
        tool = find_tool(before, event.call_id)
        if tool.starts:
            yield from self._progress(tool.call, status="completed")

    def _progress(self, call: ToolCall, **fields: str) -> Iterator[bytes]:
        # Some tools are nobody's business, by the custom of this wire.
        if not call.tool.startswith("_"):
            yield self._event(PROGRESS, {"tool": call.tool, "toolCallId": call.id, **fields})

    def _requested(self, event: ApprovalRequested, _before: RunState) -> Iterator[bytes]:
        pending = _pending(self._reading.now, event.approval_id)
        # One that came after a stop is put to nobody.
        if pending:
            asked = approval(pending, find_tool(self._reading.now, event.call_id))
            may = {"approval_choices": asked["choices"]}
            yield self._event(APPROVAL, {"run_id": self._run_id, **asked, **may})
            remark = (
                f"[{event.tool} waits for somebody's yes: {short(event.subject, _MOST_LABEL)}."
                f" Answer with POST /v1/runs/{self._run_id}/approval]"
            )
            yield self._chunk({"reasoning_content": f"{BLANK}{remark}{BLANK}"})

    def _settled(
        self, event: ApprovalAnswered | ApprovalExpired, before: RunState
    ) -> Iterator[bytes]:
        if _pending(before, event.approval_id):
            choice = event.choice if isinstance(event, ApprovalAnswered) else "expired"
            told = {"approval_id": event.approval_id, "choice": choice}
            yield self._event(SETTLED, {"run_id": self._run_id, **told})

    def _ended(self, _event: object, _before: RunState) -> Iterator[bytes]:
        yield from self._let_go(self._say)
        end, usage = ending(self._reading.now), spent(self._reading.now.usage)
        last = {**self._head, **self._usage(None), "choices": [_choice({}, end.finish_reason)]}
        if end.code:
            last["hermes"] = hermes(end, partial=self._said or "content" in self._shown)
        if end.failed:
            # Nobody reads on after this, so all there is to say goes with it.
            yield frame({**last, **self._usage(usage), "error": _error(end)})
        else:
            yield frame(last)
            if self._include_usage:
                yield frame({**self._head, "choices": [], "usage": usage})
        yield DONE

    # --- chunks --------------------------------------------------------------------------

    def _common(self) -> Fields:
        return {
            "id": completion_id(self._run_id),
            "object": "chat.completion.chunk",
            "created": self._reading.created,
            "model": self._reading.model,
        }

    def _let_go(self, tell: Callable[[str], Iterator[bytes]]) -> Iterator[bytes]:
        held, self._held = "".join(self._held), []
        if held:
            yield from tell(held)

    def _say(self, text: str) -> Iterator[bytes]:
        if self._said and "content" not in self._shown:
            yield self._words("content", BLANK)
        yield self._words("content", text)

    def _think(self, text: str) -> Iterator[bytes]:
        if self._thought and "reasoning_content" not in self._shown:
            yield self._words("reasoning_content", BLANK)
        yield self._words("reasoning_content", text)

    def _words(self, kind: str, text: str) -> bytes:
        self._shown[kind] = None
        return self._chunk({kind: text})

    def _chunk(self, delta: Mapping[str, str]) -> bytes:
        return frame({**self._head, **self._usage(None), "choices": [_choice(delta)]})

    def _event(self, name: str, fields: Fields) -> bytes:
        # An approval has an id and choices of its own, told under other names as well.
        return frame({**fields, **self._head, "choices": [_choice({})]}, name=name)

    def _usage(self, usage: Fields | None) -> Fields:
        return {"usage": usage} if self._include_usage else {}


def _choice(delta: Mapping[str, str], finish_reason: str | None = None) -> Fields:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def _error(end: Ending) -> Fields:
    return {"message": end.message, "type": "server_error", "param": None, "code": end.code}


def _pending(state: RunState, approval_id: str) -> Pending | None:
    waiting = (p for p in state.pending if p.request.approval_id == approval_id)
    return next(waiting, None)
