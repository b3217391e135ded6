"""Arguments of a call, read into the shape that a tool gave them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from holdfast.errors import ToolError

Shape = TypeVar("Shape", bound=Struct)

#: Characters of the arguments of one call. They are read where everybody waits meanwhile.
MOST_ARGUMENTS = 1024 * 1024


def schema(shape: type[Struct]) -> str:
    """The JSON Schema of a flat shape, as a model is shown it: one object, and no references."""
    (_,), definitions = msgspec.json.schema_components((shape,))
    (whole,) = definitions.values()
    for field in whole["properties"].values():
        if "enum" in field:
            # Not every endpoint infers it.
            field["type"] = "string"
    plain: dict[str, Any] = {
        "type": "object",
        "properties": whole["properties"],
        "required": whole["required"],
        "additionalProperties": False,
    }
    return msgspec.json.encode(plain).decode()


def read_arguments(tool: str, shape: type[Shape], arguments: str) -> Shape:
    """The arguments in their shape. Raises ToolError with what a model needs to do better."""
    check_length(tool, arguments)
    try:
        return msgspec.json.decode(arguments, type=shape)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ToolError(
            f"{tool} cannot use these arguments: {error}; its schema is {schema(shape)}"
        ) from error


def check_length(tool: str, arguments: str, most: int = MOST_ARGUMENTS) -> None:
    """Raise ToolError for what is too long to be read at once."""
    if len(arguments) > most:
        raise ToolError(
            f"{tool} was given {len(arguments):,} characters of arguments, and takes at most"
            f" {most:,} in one call"
        )
