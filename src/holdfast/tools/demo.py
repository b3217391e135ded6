"""Two harmless tools, to see what a run does with one that reads and one that must be allowed."""

from __future__ import annotations

import platform
from time import strftime
from typing import Annotated, TypeVar

import anyio.lowlevel
import msgspec
from msgspec import Meta, Struct

from holdfast.core.messages import ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse

_Arguments = TypeVar("_Arguments", bound=Struct)


class LookAround:
    """Says where it is running. Reads, changes nothing, and may run beside other calls."""

    class Arguments(Struct, forbid_unknown_fields=True):
        pass

    spec = ToolSpec(
        name="look_around",
        description="Tells the time zone, the platform and the Python version. Changes nothing.",
        schema='{"type":"object","properties":{},"additionalProperties":false}',
        writes=False,
        repeatable=True,
        parallel=True,
        timeout=10.0,
    )

    def review(self, arguments: str) -> Review:
        _read(self.spec, self.Arguments, arguments)
        return Review()

    async def run(self, use: ToolUse) -> str:  # noqa: ARG002 (there are no arguments)
        await anyio.lowlevel.checkpoint()
        return (
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()},"
            f" time zone {strftime('%Z (UTC%z)')}"
        )


class KeepNote:
    """Keeps a note for as long as the process lives, once a person has agreed to it.

    A standing yes reaches as far as the tool: to every note.
    """

    class Arguments(Struct, forbid_unknown_fields=True):
        text: Annotated[str, Meta(min_length=1, max_length=10_000)]

    spec = ToolSpec(
        name="keep_note",
        description="Keeps a note in memory and says how many there are. A person is asked first.",
        schema='{"type":"object","properties":{"text":{"type":"string","minLength":1,'
        '"maxLength":10000,"description":"what to keep"}},"required":["text"],'
        '"additionalProperties":false}',
        timeout=10.0,
    )

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes.values())

    def review(self, arguments: str) -> Review:
        note = _read(self.spec, self.Arguments, arguments)
        return Review(
            gate="ask",
            reason="it keeps these words as a note until this process ends",
            subject=note.text,
            key="note",
        )

    async def run(self, use: ToolUse) -> str:
        note = _read(self.spec, self.Arguments, use.arguments)
        await anyio.lowlevel.checkpoint()
        # By effect, so that a use which is repeated is still one note.
        self._notes[use.effect_id] = note.text
        count = len(self._notes)
        return "kept; there is 1 note now" if count == 1 else f"kept; there are {count} notes now"


def _read(spec: ToolSpec, shape: type[_Arguments], arguments: str) -> _Arguments:
    """The arguments in their shape. Raises ToolError with what a model needs to do better."""
    try:
        return msgspec.json.decode(arguments, type=shape)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ToolError(
            f"{spec.name} cannot use these arguments: {error}; its schema is {spec.schema}"
        ) from error
