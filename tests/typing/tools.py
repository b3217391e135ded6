"""Checked by mypy and never run: a function that becomes a tool keeps its types."""

from typing import Any, assert_type

from holdfast.ports import Review, Tool, ToolUse
from holdfast.tools.function import FunctionTool, tool
from holdfast.tools.output import read_output
from holdfast.tools.todo import todo


@tool
def add(a: int, b: int = 0) -> int:
    """Adds."""
    return a + b


@tool(writes=True, network=True, timeout=30, ask="it costs money")
async def pay(use: ToolUse, euro: int) -> str:
    """Pays."""
    return use.effect_id


def judge(given: Any) -> Review:
    return Review(gate="ask", subject=str(given.euro))


@tool(ask=judge, threads=2, reads=True, parallel=True, output=1000, repeatable=False)
def look(euro: int) -> list[str]:
    """Looks."""
    return []


async def no_blob(name: str) -> bytes:
    return b""


assert_type(add(1, b=2), int)
assert_type(look(3), list[str])
tools: list[Tool] = [add, pay, look, todo, read_output(no_blob)]
a_tool: FunctionTool[[int], list[str]] = look

add("1")  # type: ignore[arg-type]
add(1, c=2)  # type: ignore[call-arg]
tool(reads="yes")  # type: ignore[call-overload]


async def call(use: ToolUse) -> None:
    assert_type(await pay(use, euro=3), str)
    assert_type(await add.run(use), str)
    assert_type(add.review("{}"), Review)
