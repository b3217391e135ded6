"""A list of what is left to do, for a model that would lose the thread.

The model sends the whole list each time, and is shown it. Nothing is kept here: the calls are in the
journal, so a run that is taken up elsewhere has its list, and no second copy can disagree with it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.errors import ToolError
from holdfast.tools.function import tool

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=1000, description="what is to be done")]
    state: Literal["pending", "in_progress", "done"] = "pending"


@tool(reads=True, timeout=10.0)
async def todo(
    items: Annotated[
        list[Item],
        Meta(max_length=100, description="the whole list, in order; it replaces the last one"),
    ],
) -> str:
    """Writes down the steps of a task and how far each has come.

    Worth it for work of three steps or more. Send the whole list whenever it changes: have one item
    in_progress while you work on it, and mark it done as soon as it is, not before.
    """
    states = Counter(item.state for item in items)
    if states["in_progress"] > 1:
        raise ToolError(
            f"{states['in_progress']} items are in_progress; work on one at a time, and leave the"
            " others pending"
        )
    if not items:
        return "the list is empty"
    counts = (
        f"{states['done']} of {len(items)} done, {states['in_progress']} in progress,"
        f" {states['pending']} pending"
    )
    return "\n".join([counts, *(_line(item) for item in items)])


def _line(item: Item) -> str:
    return f"{_MARKS[item.state]} {' '.join(item.text.split())}"
