"""Arguments of a call, read into the shape that a tool gave them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from holdfast.errors import ToolError

Shape = TypeVar("Shape", bound=Struct)


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
    try:
        return msgspec.json.decode(arguments, type=shape)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ToolError(
            f"{tool} cannot use these arguments: {error}; its schema is {schema(shape)}"
        ) from error
