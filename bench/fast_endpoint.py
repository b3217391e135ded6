"""A model endpoint that costs little: it counts, one number a tick, for as many as like to listen.

    python bench/fast_endpoint.py

Prints its port and stays until its standard input is closed. It speaks the three wires as far as
a stream of text goes. The name of the model says what is wanted: "n=200" is 200 pieces of text;
with "first=N" the first of them is said in tick N, and with "every=N" only each N ticks one. Ticks
are counted from where the clock of the machine began, so that whoever listens knows when each
piece was due.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from time import monotonic
from typing import Any, Protocol, cast

import anyio
import anyio.to_thread

#: Seconds.
TICK = 0.02

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_NO_MORE = b"0\r\n\r\n"


def tick(now: float) -> int:
    """The number of the tick that it is now."""
    return int(now / TICK)


def word(number: int) -> str:
    return f"{number} "


def words(count: int) -> str:
    return "".join(map(word, range(count)))


# --- the wires -----------------------------------------------------------------------------


class Wire(Protocol):
    """How one wire says it, as a stream that could be the real one's."""

    def opening(self) -> bytes: ...

    def piece(self, number: int) -> bytes: ...

    def end(self, count: int) -> bytes: ...


def _data(value: object, kind: str = "") -> bytes:
    """An event, in a chunk of its own."""
    name = f"event: {kind}\n" if kind else ""
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    body = f"{name}data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


class Chat:
    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, number: int) -> bytes:
        return self._chunk({"content": word(number)})

    def end(self, count: int) -> bytes:
        usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}
        return self._chunk({}, "stop") + _data(self._around([], usage)) + _data("[DONE]")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data(self._around([choice], None))

    def _around(self, choices: list[Any], usage: object) -> dict[str, Any]:
        return {
            "id": "chatcmpl-BkQ7vZ3nq0W5o2x8",
            "object": "chat.completion.chunk",
            "created": 1750000000,
            "model": "counter",
            "service_tier": "default",
            "system_fingerprint": "fp_07871e2ad8",
            "choices": choices,
            "usage": usage,
        }


_PLACE: dict[str, Any] = {"item_id": "msg_0", "output_index": 0, "content_index": 0}


class Responses:
    def opening(self) -> bytes:
        begun = self._response("in_progress", [], None)
        return (
            self._event("response.created", 0, response=begun)
            + self._event("response.in_progress", 1, response=begun)
            + self._event(
                "response.output_item.added", 2, output_index=0, item=self._item("in_progress", [])
            )
            + self._event("response.content_part.added", 3, **_PLACE, part=self._part(""))
        )

    def piece(self, number: int) -> bytes:
        kind, said = "response.output_text.delta", word(number)
        return self._event(kind, number + 4, **_PLACE, delta=said, logprobs=[])

    def end(self, count: int) -> bytes:
        text, at = words(count), count + 4
        item = self._item("completed", [self._part(text)])
        usage = {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 9 + count,
        }
        whole = self._response("completed", [item], usage)
        return (
            self._event("response.output_text.done", at, **_PLACE, text=text, logprobs=[])
            + self._event("response.content_part.done", at + 1, **_PLACE, part=self._part(text))
            + self._event("response.output_item.done", at + 2, output_index=0, item=item)
            + self._event("response.completed", at + 3, response=whole)
        )

    def _event(self, kind: str, number: int, **fields: Any) -> bytes:
        return _data({"type": kind, "sequence_number": number, **fields}, kind)

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    def _item(self, status: str, parts: list[Any]) -> dict[str, Any]:
        fields = {"type": "message", "role": "assistant", "status": status, "content": parts}
        return {"id": "msg_0", **fields}

    def _response(self, status: str, output: list[Any], usage: object) -> dict[str, Any]:
        return {
            "id": "resp_0",
            "object": "response",
            "created_at": 1750000000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "model": "counter",
            "output": output,
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
            "metadata": {},
        }


class Messages:
    def opening(self) -> bytes:
        message: dict[str, Any] = {
            "id": "msg_0",
            "type": "message",
            "role": "assistant",
            "model": "counter",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 9, "output_tokens": 1},
        }
        block = {"type": "text", "text": ""}
        return (
            self._event("message_start", message=message)
            + self._event("content_block_start", index=0, content_block=block)
            + self._event("ping")
        )

    def piece(self, number: int) -> bytes:
        delta = {"type": "text_delta", "text": word(number)}
        return self._event("content_block_delta", index=0, delta=delta)

    def end(self, count: int) -> bytes:
        why, usage = {"stop_reason": "end_turn", "stop_sequence": None}, {"output_tokens": count}
        return (
            self._event("content_block_stop", index=0)
            + self._event("message_delta", delta=why, usage=usage)
            + self._event("message_stop")
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        return _data({"type": kind, **fields}, kind)


class Frames:
    """What one wire says, made once and sent to everyone."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.opening = _HEAD + wire.opening()
        self.pieces: list[bytes] = []
        self._ends: dict[int, bytes] = {}

    def end(self, count: int) -> bytes:
        if count not in self._ends:
            self.pieces += map(self._wire.piece, range(len(self.pieces), count))
            self._ends[count] = self._wire.end(count) + _NO_MORE
        return self._ends[count]


# --- the server ----------------------------------------------------------------------------


class Endpoint:
    def __init__(self) -> None:
        self.frames = {
            "/v1/chat/completions": Frames(Chat()),
            "/v1/responses": Frames(Responses()),
            "/v1/messages": Frames(Messages()),
        }
        self.live: set[Caller] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all: what is due is written, whether the tick came in time or late."""
        number = tick(monotonic())
        for caller in tuple(self.live):
            caller.say(number)
        loop.call_later((number + 1) * TICK - monotonic(), self.start, loop)


class Caller(asyncio.Protocol):
    """One connection, and at most one call on it at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # One of uvloop is one in all but its class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._endpoint.live.discard(self)

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, blank, body = self._asked.partition(b"\r\n\r\n")
        if blank and len(body) >= _length(head.split(b"\r\n")):
            self._asked = b""
            self._answer(head.split(b" ", 2)[1].decode(), json.loads(body))

    def _answer(self, path: str, asked: dict[str, Any]) -> None:
        frames = self._endpoint.frames.get(path)
        if frames is None:
            self._transport.write(_NOT_FOUND)
            return
        wanted = dict(pair.split("=") for pair in asked["model"].split())
        self._count = int(wanted["n"])
        self._first = int(wanted.get("first", tick(monotonic()) + 1))
        self._every = int(wanted.get("every", 1))
        self._said, self._pieces, self._end = 0, frames.pieces, frames.end(self._count)
        self._transport.write(frames.opening)
        self._endpoint.live.add(self)

    def say(self, now: int) -> None:
        due = min((now - self._first) // self._every + 1, self._count)
        if due <= self._said:
            return
        said = b"".join(self._pieces[self._said : due])
        self._said = due
        if due == self._count:
            said += self._end
            self._endpoint.live.discard(self)
        self._transport.write(said)


def _length(lines: Iterable[bytes]) -> int:
    fields = (line.lower().partition(b":") for line in lines)
    return next((int(value) for name, _, value in fields if name == b"content-length"), 0)


async def main() -> None:
    loop, endpoint = asyncio.get_running_loop(), Endpoint()
    server = await loop.create_server(lambda: Caller(endpoint), "127.0.0.1", 0, backlog=4096)
    endpoint.start(loop)
    print(server.sockets[0].getsockname()[1], flush=True)
    await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})
