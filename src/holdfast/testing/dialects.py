"""How each wire puts a reply: the frames of a stream, or one body. Pure; `endpoint` sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, assert_never

from holdfast.core.usage import Usage
from holdfast.testing.replies import Block, Payload, Reply, encoded

#: What a model proves its thoughts with: a signature, or the encrypted content.
SEAL = "sealed"

#: Seconds since 1970 at which every reply was made.
MADE = 1_700_000_000


class ChatReply(Reply):
    """`/chat/completions`"""

    reasons: ClassVar = {"tools": "tool_calls", "refusal": "content_filter"}

    def _frame(self, payload: Payload) -> bytes:
        return b"data: %b\n\n" % encoded(payload)

    def _chunk(self, choices: Sequence[Payload], usage: Payload | None = None) -> Payload:
        chunk = self._object("chat.completion.chunk", choices)
        return chunk | ({"usage": usage} if self._counts() else {})

    def _choice(self, delta: Payload, reason: str | None = None) -> Payload:
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": reason}])

    def _opening(self) -> Sequence[Payload]:
        return [self._choice({"role": "assistant", "content": ""})]

    def _starting(self, block: Block) -> Sequence[Payload]:
        if block.kind != "call":
            return []
        called = {"index": self._calls().index(block)} | _chat_call(block)
        return [self._choice({"tool_calls": [called]})]

    def _delta(self, block: Block, piece: str) -> Payload:
        if block.kind == "call":
            more = {"index": self._calls().index(block), "function": {"arguments": piece}}
            return self._choice({"tool_calls": [more]})
        return self._choice({_CHAT_FIELDS[block.kind]: piece})

    def _finishing(self) -> Sequence[Payload]:
        return [self._choice({}, self.reason)]

    def _ending(self) -> Sequence[Payload | bytes]:
        counted = [self._chunk([], self._usage())] if self._counts() else []
        return [*counted, b"data: [DONE]\n\n"]

    def whole(self) -> Payload:
        message: Payload = {"role": "assistant", "content": self._said("text") or None}
        if thought := self._said("thought"):
            message["reasoning_content"] = thought
        if calls := self._calls():
            message["tool_calls"] = [_chat_call(block) for block in calls]
        choice = {"index": 0, "message": message, "finish_reason": self.reason}
        return self._object("chat.completion", [choice]) | {"usage": self._usage()}

    def _object(self, kind: str, choices: Sequence[Payload]) -> Payload:
        return {
            "id": "chatcmpl-1",
            "object": kind,
            "created": MADE,
            "model": self.model,
            "choices": choices,
        }

    def _usage(self) -> Payload:
        return _used(self.usage, "prompt", "completion")

    def _calls(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == "call"]

    def _counts(self) -> bool:
        return bool((self.asked.get("stream_options") or {}).get("include_usage"))


class ResponsesReply(Reply):
    """`/responses`"""

    #: The status of the response; what is not listed is the detail of an incomplete one.
    reasons: ClassVar = {
        "stop": "completed",
        "tools": "completed",
        "length": "max_output_tokens",
        "refusal": "content_filter",
    }

    _sent_before = 0

    def _frame(self, payload: Payload) -> bytes:
        number, self._sent_before = self._sent_before, self._sent_before + 1
        return super()._frame(payload | {"sequence_number": number})

    def _opening(self) -> Sequence[Payload]:
        return [self._event(word, response=self._response()) for word in ("created", "in_progress")]

    def _emptiness(self) -> list[bytes]:
        return self._sent([self._event("in_progress", response=self._response())])

    def _starting(self, block: Block) -> Sequence[Payload]:
        return [
            self._event("output_item.added", **self._item(block, "in_progress")),
            *self._part(block, "added", ""),
        ]

    def _delta(self, block: Block, piece: str) -> Payload:
        word, _, place = _TEXTS[block.kind]
        return self._event(f"{word}.delta", **_at(block), **place, delta=piece)

    def _closing(self, block: Block) -> Sequence[Payload]:
        word, field, place = _TEXTS[block.kind]
        return [
            self._event(f"{word}.done", **_at(block), **place, **{field: block.text}),
            *self._part(block, "done", block.text),
            self._event("output_item.done", **self._item(block, self._status(block))),
        ]

    def _part(self, block: Block, what: str, text: str) -> Sequence[Payload]:
        if block.kind == "call":
            return []
        place, part = _TEXTS[block.kind][2], _part(block.kind, text)
        return [self._event(f"{_PARTS[block.kind]}.{what}", **_at(block), **place, part=part)]

    def _finishing(self) -> Sequence[Payload]:
        whole = self.whole()
        return [self._event(whole["status"], response=whole)]

    def whole(self) -> Payload:
        items = [self._item(block, self._status(block))["item"] for block in self.blocks]
        ended = {"output": items, "usage": _used(self.usage, "input", "output")}
        if self.reason == "completed":
            return self._response(status="completed", **ended)
        why = {"reason": self.reason}
        return self._response(status="incomplete", incomplete_details=why, **ended)

    def _event(self, word: str, **fields: Any) -> Payload:
        return {"type": f"response.{word}", **fields}

    def _response(self, **fields: Any) -> Payload:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": MADE,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": [],
            "usage": None,
        } | fields

    def _status(self, block: Block) -> str:
        """Of a block that has ended: the last one of a reply cut short is cut short itself."""
        cut_short = self.reason not in ("", "completed") and block is self.blocks[-1]
        return "incomplete" if cut_short else "completed"

    def _item(self, block: Block, status: str) -> Payload:
        """The item as it stands: with nothing in it while it is in progress."""
        done = status != "in_progress"
        parts = [_part(block.kind, block.text)] if done else []
        item: Payload = {"id": _at(block)["item_id"], "type": _ITEMS[block.kind]}
        match block.kind:
            case "text":
                item |= {"status": status, "role": "assistant", "content": parts}
            case "thought":
                asked_for = "reasoning.encrypted_content" in (self.asked.get("include") or ())
                item |= {"summary": parts}
                item |= {"encrypted_content": SEAL} if done and asked_for else {}
            case "call":
                item |= {"status": status, "call_id": block.model_id}
                item |= {"name": block.tool, "arguments": block.text}
            case other:
                assert_never(other)
        return {"output_index": block.index, "item": item}


class MessagesReply(Reply):
    """`/messages`"""

    reasons: ClassVar = {"stop": "end_turn", "length": "max_tokens", "tools": "tool_use"}

    def _opening(self) -> Sequence[Payload]:
        started = self._message(content=[], usage=self._usage(output=1))
        return [{"type": "message_start", "message": started}]

    def _ping(self) -> Payload | bytes:
        return {"type": "ping"}

    def _starting(self, block: Block) -> Sequence[Payload]:
        empty = _content(Block(block.kind, block.index, block.tool, block.model_id), seal="")
        return [{"type": "content_block_start", "index": block.index, "content_block": empty}]

    def _delta(self, block: Block, piece: str) -> Payload:
        kind, field = _DELTAS[block.kind]
        return self._changed(block, {"type": kind, field: piece})

    def _closing(self, block: Block) -> Sequence[Payload]:
        stopped = {"type": "content_block_stop", "index": block.index}
        if block.kind != "thought":
            return [stopped]
        return [self._changed(block, {"type": "signature_delta", "signature": SEAL}), stopped]

    def _finishing(self) -> Sequence[Payload]:
        delta = {"stop_reason": self.reason, "stop_sequence": None}
        used = {"output_tokens": self.usage.output}
        return [{"type": "message_delta", "delta": delta, "usage": used}]

    def _ending(self) -> Sequence[Payload | bytes]:
        return [{"type": "message_stop"}]

    def whole(self) -> Payload:
        content = [_content(block, seal=SEAL) for block in self.blocks]
        usage = self._usage(output=self.usage.output)
        return self._message(content=content, stop_reason=self.reason, usage=usage)

    def _changed(self, block: Block, delta: Payload) -> Payload:
        return {"type": "content_block_delta", "index": block.index, "delta": delta}

    def _message(self, **fields: Any) -> Payload:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "stop_reason": None,
            "stop_sequence": None,
        } | fields

    def _usage(self, *, output: int) -> Payload:
        # This wire does not count the cached part among the input.
        return {
            "input_tokens": self.usage.input - self.usage.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.usage.cached,
            "output_tokens": output,
        }


#: Who speaks where: the end of the path, and how a reply is put there.
DIALECTS: Mapping[str, type[Reply]] = {
    "/chat/completions": ChatReply,
    "/responses": ResponsesReply,
    "/messages": MessagesReply,
}

_CHAT_FIELDS = {"text": "content", "thought": "reasoning_content"}

_ITEMS = {"text": "message", "thought": "reasoning", "call": "function_call"}

_PARTS = {"text": "content_part", "thought": "reasoning_summary_part"}

#: What the responses wire calls the text of a block, what holds it, and where that stands.
_TEXTS: Mapping[str, tuple[str, str, Payload]] = {
    "text": ("output_text", "text", {"content_index": 0}),
    "thought": ("reasoning_summary_text", "text", {"summary_index": 0}),
    "call": ("function_call_arguments", "arguments", {}),
}

_DELTAS = {
    "text": ("text_delta", "text"),
    "thought": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


def _chat_call(block: Block) -> Payload:
    function = {"name": block.tool, "arguments": block.text}
    return {"id": block.model_id, "type": "function", "function": function}


def _used(usage: Usage, asked: str, answered: str) -> Payload:
    return {
        f"{asked}_tokens": usage.input,
        f"{asked}_tokens_details": {"cached_tokens": usage.cached},
        f"{answered}_tokens": usage.output,
        f"{answered}_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


def _at(block: Block) -> Payload:
    return {"item_id": f"item_{block.index}", "output_index": block.index}


def _part(kind: str, text: str) -> Payload:
    if kind == "thought":
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _content(block: Block, *, seal: str) -> Payload:
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "thought":
            return {"type": "thinking", "thinking": block.text, "signature": seal}
        case "call":
            called = {"type": "tool_use", "id": block.model_id, "name": block.tool}
            return called | {"input": _parsed(block.text)}
        case other:
            assert_never(other)


def _parsed(arguments: str) -> Any:
    """The arguments as a value, which that wire wants, or as they are if they are none."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments
