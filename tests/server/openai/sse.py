"""What came over the line, taken apart."""

from typing import Any, NamedTuple

import msgspec

DONE = "[DONE]"


class Sent(NamedTuple):
    """An event as a client has it; `name` is "" where it has none."""

    name: str
    data: Any


def blocks(sent):
    if not sent:
        return []
    parts = sent.split(b"\n\n")
    assert parts.pop() == b""
    return parts


def events(sent):
    """Those a client sees. Comments are passed over, as by any client."""
    return [_event(block) for block in blocks(sent) if not block.startswith(b":")]


def comments(sent):
    return [block.decode() for block in blocks(sent) if block.startswith(b":")]


def _event(block):
    assert b"\r" not in block
    *head, data = block.split(b"\n")
    assert len(head) <= 1
    assert all(line.startswith(b"event: ") for line in head)
    body = data.removeprefix(b"data: ")
    assert body != data
    name = head[0].removeprefix(b"event: ").decode() if head else ""
    return Sent(name, DONE if body == b"[DONE]" else msgspec.json.decode(body))


def stream(projection, journal):
    return b"".join(projection.frames(recorded) for recorded in journal)
