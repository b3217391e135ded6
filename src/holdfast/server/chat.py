"""A conversation as older clients have it: messages with roles, and one answer to each.

Behind it are runs like any other, so whoever leaves finds the answer later, and what is said here is
only another way of saying what is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from holdfast.core.entries import Card, Entry, Reply, Said
from holdfast.core.events import FINAL
from holdfast.core.messages import plain
from holdfast.core.transcript import transcribe
from holdfast.server.bodies import message_id, read_object, text
from holdfast.server.content import read_parts
from holdfast.server.conversations import read_instructions
from holdfast.server.frames import Fields
from holdfast.server.one_line import one_line
from holdfast.server.problems import malformed
from holdfast.server.requests import RunRequest
from holdfast.server.service import Service
from holdfast.server.streams import RunStream

#: The tool whose progress is what a model thinks.
THINKING = "_thinking"


Spoken: TypeAlias = dict[str, Any]


def read_chat(session_id: str, body: bytes) -> RunRequest:
    """Raises Problem."""
    fields = read_object(body)
    said = fields.get("message") or fields.get("input")
    blobs: dict[str, bytes] = {}
    parts = read_parts(said, "message", blobs) if isinstance(said, str | list) else ()
    if not parts:
        raise malformed("Missing 'message' field", param="message", code="missing_message")
    told = (
        read_instructions(fields, name, code="invalid_system_message")
        for name in ("system_message", "instructions")
    )
    return RunRequest(
        parts=parts,
        blobs=blobs,
        session_id=session_id,
        message_id=message_id(fields),
        instructions=next(filter(None, told), ""),
        model=text(fields, "model"),
    )


def spoken(entries: Iterable[Entry]) -> list[Spoken]:
    """A transcript as messages of people, models and tools. What happened to runs is left out."""
    messages: list[Spoken] = []
    calling: dict[tuple[str, int], Spoken] = {}
    for entry in entries:
        match entry:
            case Said(parts=parts):
                messages.append(_message(entry, "user", plain(parts)))
            case Reply(text=words, reasoning=thought):
                reply = _message(entry, "assistant", words)
                messages.append({**reply, "reasoning": thought} if thought else reply)
                calling[entry.run_id, entry.turn] = messages[-1]
            case Card():
                if (entry.run_id, entry.turn) not in calling:
                    messages.append(_message(entry, "assistant", ""))
                    calling[entry.run_id, entry.turn] = messages[-1]
                calling[entry.run_id, entry.turn].setdefault("tool_calls", []).append(_call(entry))
                if entry.state == "done":
                    messages.append(_result(entry))
    return messages


def _message(entry: Entry, role: str, content: str) -> Spoken:
    return {
        "id": entry.id,
        "role": role,
        "content": content,
        "timestamp": entry.at,
        "run_id": entry.run_id,
    }


def _call(card: Card) -> Spoken:
    function = {"name": card.name, "arguments": card.arguments}
    return {"id": card.id, "type": "function", "function": function}


def _result(card: Card) -> Spoken:
    told = _message(card, "tool", card.result)
    return {**told, "id": f"{card.id}.result", "tool_call_id": card.id, "tool_name": card.name}


class ChatStream(RunStream):
    """A run as the answer to one message. Its events have names, and count from 1."""

    def __init__(self, service: Service, run_id: str, session_id: str) -> None:
        super().__init__(service, run_id, after=0)
        self._session_id = session_id
        self.headers = [(b"x-run-id", run_id.encode())]
        self._count = 0
        self._message_id = f"{run_id}.answer"
        #: Whether the answer has been said to begin.
        self._answering = False

    async def tell(self) -> None:
        at = self._service.clock()
        await self.put(self._named("run.started", at, {}))
        async with aclosing(self._service.follow(self._run_id)) as events:
            async for recorded in events:
                told = [*_read(self._view.frames(recorded))]
                if isinstance(recorded.event, FINAL):
                    await self.put(await self._end(told[-1]), last=True)
                    return
                if named := b"".join(map(self._tell, told)):
                    await self.put(named)
        deleted = {"message": "the run was deleted", "code": "run_not_found"}
        await self.put(self._fail(self._service.clock(), deleted), last=True)

    def _tell(self, told: Fields) -> bytes:
        found = _NAMES.get(told["event"])
        if found is None:
            return b""
        name, fields = found(told)
        if name != "assistant.delta":
            return self._named(name, told["timestamp"], fields)
        fields = {**fields, "message_id": self._message_id}
        return self._begin(told["timestamp"]) + self._named(name, told["timestamp"], fields)

    def _begin(self, at: float) -> bytes:
        if self._answering:
            return b""
        self._answering = True
        message = {"id": self._message_id, "role": "assistant"}
        return self._named("message.started", at, {"message": message})

    async def _end(self, told: Fields) -> bytes:
        at = told["timestamp"]
        if told["event"] != "run.completed":
            return self._fail(at, _trouble(told))
        answer = {"message_id": self._message_id, "content": told["output"]}
        whole = {"completed": True, "partial": bool(told["incomplete"]), "interrupted": False}
        # What was said in a session stays there, though the run may be deleted at this moment.
        journal = await self._service.store.read(self._run_id, deleted=True)
        messages = spoken(transcribe(self._run_id, 0, journal))
        return (
            self._begin(at)
            + self._named("assistant.completed", at, {**answer, **whole})
            + self._named("run.completed", at, {"messages": messages, "usage": told["usage"]})
            + self._named("done", at, {})
        )

    def _fail(self, at: float, trouble: Fields) -> bytes:
        return self._named("error", at, trouble) + self._named("done", at, {})

    def _named(self, name: str, at: float, fields: Fields) -> bytes:
        self._count += 1
        whose = {"session_id": self._session_id, "run_id": self._run_id}
        told = {**whose, "seq": self._count, "ts": at, **fields}
        return b"event: %b\ndata: %b\n\n" % (name.encode(), one_line(told))

    def farewell(self) -> bytes:
        return self._named("server.draining", self._service.clock(), {})


def _read(frames: bytes) -> Iterator[Fields]:
    """What is told in these frames, each of which has its data on one line."""
    for line in frames.split(b"\n"):
        if line.startswith(b"data: "):
            yield msgspec.json.decode(line.removeprefix(b"data: "))


def _trouble(told: Fields) -> Fields:
    if told["event"] == "run.cancelled":
        return {"message": "the run was stopped", "code": "run_cancelled"}
    return {"message": told["error"], "code": told["code"]}


def _tool(told: Fields) -> Fields:
    return {"tool_name": told["tool"], "tool_call_id": told["call_id"]}


def _started(told: Fields) -> tuple[str, Fields]:
    more = {"preview": told["preview"], "args": told["args"]}
    return "tool.started", {**_tool(told), **more}


def _finished(told: Fields) -> tuple[str, Fields]:
    name = "tool.failed" if told["error"] else "tool.completed"
    return name, {**_tool(told), "duration": told["duration"], "result": told["result"]}


def _as_it_is(told: Fields) -> tuple[str, Fields]:
    known = ("event", "run_id", "timestamp")
    return told["event"], {name: value for name, value in told.items() if name not in known}


#: What each event of a run is called here, and what is told of it.
_NAMES: Mapping[str, Callable[[Fields], tuple[str, Fields]]] = {
    "message.delta": lambda told: ("assistant.delta", {"delta": told["delta"]}),
    "reasoning.delta": lambda told: (
        "tool.progress",
        {"tool_name": THINKING, "delta": told["delta"]},
    ),
    "tool.started": _started,
    "tool.progress": lambda told: ("tool.progress", {**_tool(told), "delta": told["text"]}),
    "tool.completed": _finished,
    # Whoever is not told of these waits for nothing.
    "approval.request": _as_it_is,
    "approval.responded": _as_it_is,
    "approval.expired": _as_it_is,
}
