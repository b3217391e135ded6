import asyncio
import functools
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Optional

import anyio
import anyio.from_thread
import pytest
from msgspec import Meta, Struct

from holdfast import open_app
from holdfast.core.events import ToolFinished
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.testing.scripted import Call, ScriptedModel
from holdfast.tools.function import MOST_ARGUMENTS, FunctionTool, _Work, tool


@tool(reads=True)
def add(a: int, b: Annotated[int, Meta(description="what to add", ge=0)] = 0) -> int:
    """Adds two numbers.

    They may be
        large.
    """
    return a + b


@tool(writes=True, network=True, timeout=30, output=10_000, ask="it costs money")
async def pay(use: ToolUse, euro: int) -> str:
    """Pays."""
    await use.progress(f"paying {euro}")
    return use.effect_id


class TestFunctionTool(ToolContract):
    @pytest.fixture
    def tool(self):
        return add


class Heard(list):
    """What a tool said on its way."""

    async def progress(self, text):
        self.append(text)


def use(heard=None, /, effect_id="call_1", left=None, **arguments):
    heard = Heard() if heard is None else heard
    return ToolUse(
        arguments=json.dumps(arguments),
        effect_id=effect_id,
        progress=heard.progress,
        left=lambda words, going: None if left is None else left.append((words, going)),
    )


def schema(made):
    return json.loads(made.spec.schema)


# --- what it says about itself


def test_a_tool_can_be_called_as_the_function_it_was():
    assert add(1, 2) == 3
    assert add.__name__ == "add"
    assert isinstance(add, FunctionTool)


def test_the_signature_is_the_schema_and_the_docstring_the_description():
    assert add.spec.name == "add"
    assert add.spec.description == "Adds two numbers.\n\nThey may be\n    large."
    assert schema(add) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "description": "what to add", "minimum": 0, "default": 0},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_tool_is_taken_to_write_and_to_bear_no_repeating_unless_it_says_otherwise():
    @tool
    def plain() -> None:
        """Does something."""

    spec = plain.spec
    assert (spec.writes, spec.network, spec.repeatable, spec.parallel) == (
        True,
        False,
        False,
        False,
    )
    assert (spec.timeout, spec.output) == (600.0, 64 * 1024)
    assert (add.spec.writes, add.spec.repeatable, add.spec.parallel) == (False, True, False)
    assert (pay.spec.network, pay.spec.timeout, pay.spec.output) == (True, 30, 10_000)


def test_what_only_reads_may_still_not_bear_repeating():
    @tool(writes=False, repeatable=False, parallel=True)
    def look() -> None:
        """Looks."""

    assert (look.spec.writes, look.spec.repeatable, look.spec.parallel) == (False, False, True)


class Colour(Enum):
    RED = "red"


class Point(Struct):
    x: int
    y: Optional[int] = None  # noqa: UP045 (both spellings must do)


class Line(Struct, tag="line"):
    ends: list[Point]


class Dot(Struct, tag="dot"):
    at: Annotated[Point, Meta(description="where it is")]


class Tree(Struct):
    children: "list[Tree]" = []


def test_a_schema_is_in_one_piece_without_references():
    @tool(reads=True)
    def draw(
        what: Line | Dot,
        how: Literal["thick", "thin"],
        colour: Colour = Colour.RED,
        names: dict[str, list[int]] | None = None,
        seen: frozenset[str] = frozenset({"b", "a"}),
    ) -> str:
        """Draws."""
        return ""

    assert "$" not in draw.spec.schema and "discriminator" not in draw.spec.schema
    properties = schema(draw)["properties"]
    dot = next(shape for shape in properties["what"]["anyOf"] if shape["title"] == "Dot")
    assert dot["properties"]["at"]["description"] == "where it is"
    assert dot["properties"]["at"]["properties"]["x"] == {"type": "integer"}
    assert properties["how"] == {"enum": ["thick", "thin"]}
    assert properties["colour"]["default"] == "red"
    assert properties["names"]["default"] is None
    assert properties["seen"]["default"] == ["a", "b"]
    assert schema(draw)["required"] == ["what", "how"]


def test_a_type_that_contains_itself_keeps_its_references():
    @tool(reads=True)
    def climb(tree: Tree) -> str:
        """Climbs."""
        return ""

    assert schema(climb)["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema(climb)["$defs"]["Tree"]["properties"]["children"]["items"]
    assert climb.review('{"tree":{"children":[{"children":[]}]}}').gate == "auto"


async def test_a_default_that_no_model_can_be_told_of_works_all_the_same():
    mark = object()

    @tool(reads=True)
    async def look(at: Any = mark) -> str:
        """Looks."""
        return str(at is mark)

    assert schema(look)["properties"] == {"at": {}}
    assert look.review("{}").subject == "look"
    assert await look.run(use()) == "True"


async def test_a_method_of_an_object_can_be_a_tool():
    class Counter:
        def __init__(self):
            self.count = 0

        async def up(self, by: int = 1) -> int:
            """Counts up."""
            self.count += by
            return self.count

    counter = Counter()
    assert await tool(reads=True)(counter.up).run(use(by=4)) == "4"
    assert counter.count == 4


def no_words(a: int) -> int:
    return a


def any_number(*numbers: int) -> None:
    """Takes any number."""


def any_names(**names: int) -> None:
    """Takes any names."""


def nameless(a: int, /) -> None:
    """Takes it by its place."""


def untyped(a) -> None:
    """Takes anything."""


def untellable(a: complex) -> None:
    """Takes a number."""


def unknown(a: "NoSuchType") -> None:  # noqa: F821
    """Takes something that there is not."""


def ambiguous(a: Point | Tree) -> None:
    """Takes one of two that look the same."""


def mangled(__a: int) -> None:  # noqa: PYI063 (that is the point)
    """Takes something with an odd name."""


def yields() -> None:
    """Yields."""
    yield


async def yields_later() -> None:
    """Yields."""
    yield


def größe() -> None:  # noqa: PLC2401 (that is the point)
    """Has a name that no wire takes."""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_words, "the tool no_words needs a docstring"),
        (any_number, "the parameter numbers of the tool any_number stands for any number"),
        (any_names, "the parameter names of the tool any_names stands for any number"),
        (nameless, "the parameter a of the tool nameless has no name to a caller"),
        (untyped, "the parameter a of the tool untyped needs a type"),
        (untellable, "the parameter a of the tool untellable has a type that no model"),
        (unknown, "the parameter a of the tool unknown has a type .* 'NoSuchType' is not defined"),
        (ambiguous, "the parameter a of the tool ambiguous has a type"),
        (mangled, "the parameter __a of the tool mangled has"),
        (yields, "the tool yields yields"),
        (yields_later, "the tool yields_later yields"),
        (größe, "up to 64 plain letters"),
        (lambda: None, "up to 64 plain letters"),
        (functools.partial(any_number), "a tool is made of a function"),
        (Point, "a tool is made of a function"),
    ],
)
def test_what_cannot_be_a_tool_says_so_when_it_is_made(function, said):
    with pytest.raises(TypeError, match=said):
        tool(function)


@pytest.mark.parametrize("limit", [{"timeout": 0}, {"output": 0}, {"threads": 0}])
def test_a_limit_that_lets_nothing_through_is_refused(limit):
    with pytest.raises(ValueError, match="must be above 0"):
        tool(**limit)


# --- what it makes of a call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"a":"1"}', r"add cannot use these arguments: Expected `int`, got `str` - at `\$\.a`"),
        ("{}", "missing required field `a`.*its schema is"),
        ('{"a":1,"c":2}', "unknown field `c`"),
        ('{"a":1,"b":-1}', r">= 0.*\$\.b"),
        ('{"a":1.5}', "Expected `int`, got `float`"),
        ("[1]", "Expected `object`, got `array`"),
        ("a = 1", "malformed"),
        ('{"a":"\ud800"}', "surrogates"),
        ('{"a":' + "[" * 100_000, "add cannot use these arguments"),
    ],
)
async def test_bad_arguments_are_explained_and_never_run(arguments, said):
    with pytest.raises(ToolError, match=said):
        add.review(arguments)
    with pytest.raises(ToolError, match=said):
        await add.run(ToolUse(arguments=arguments, effect_id="", progress=Heard().progress))


def test_what_neither_writes_nor_uses_the_network_runs_unasked():
    assert add.review('{"a":1}').gate == "auto"


@pytest.mark.parametrize(
    ("options", "gate", "reason"),
    [
        ({}, "ask", "it may change things"),
        ({"reads": True, "network": True}, "ask", "it uses the network"),
        ({"network": True}, "ask", "it may change things and uses the network"),
        ({"ask": False}, "auto", "it may change things"),
        ({"reads": True, "ask": True}, "ask", ""),
        ({"reads": True, "ask": "it is loud"}, "ask", "it is loud"),
        ({"ask": ""}, "ask", "it may change things"),
    ],
)
def test_what_may_do_harm_asks_unless_it_says_that_it_need_not(options, gate, reason):
    @tool(**options)
    def clap() -> None:
        """Claps."""

    review = clap.review("{}")
    assert (review.gate, review.reason) == (gate, reason)


def test_a_yes_is_to_the_whole_call_and_stands_for_the_very_same_only():
    @tool
    def send(to: str, text: str, copies: int = 1, tags: set[str] = frozenset()) -> None:
        """Sends."""

    review = send.review('{"to":"ada","text":"two\\nlines","tags":["b","a"]}')
    assert review.subject == 'send\nto: "ada"\ntext: "two\\nlines"\ncopies: 1\ntags: ["a","b"]'
    assert review.key == '{"copies":1,"tags":["a","b"],"text":"two\\nlines","to":"ada"}'
    same = send.review(
        '{ "copies":1, "text":"two\\nlines", "tags":["a","b","a"], "to":"\\u0061da" }'
    )
    assert same == review
    assert send.review('{"to":"ada","text":"two lines"}').key != review.key


def test_a_yes_does_not_reach_what_a_default_has_become_since():
    def version(default):
        @tool
        def pay(euro: float = default) -> None:
            """Pays."""

        return pay

    assert version(5).review("{}").key == version(5).review('{"euro":5.0}').key
    assert version(5).review("{}").key != version(5000).review("{}").key


def test_arguments_have_a_length_that_can_be_read_at_once():
    with pytest.raises(ToolError, match="add was given 262,155 characters of arguments"):
        add.review('{"a":1' + " " * MOST_ARGUMENTS + ',"b"}')


def test_a_tool_may_judge_its_calls_itself():
    def judge(given):
        if given.euro > 100:
            return Review(gate="refuse", reason="too much")
        return Review(gate="ask", subject=f"{given.euro} euro", key="pay")

    @tool(ask=judge)
    def spend(euro: int) -> None:
        """Spends."""

    assert spend.review('{"euro":7}') == Review(gate="ask", subject="7 euro", key="pay")
    refused = spend.review('{"euro":101}')
    assert (refused.gate, refused.subject) == ("refuse", "spend\neuro: 101")


# --- running


async def test_the_use_is_handed_on_and_the_model_does_not_hear_of_it():
    heard = Heard()
    assert "use" not in pay.spec.schema
    assert await pay.run(use(heard, "call_7", euro=3)) == "call_7"
    assert heard == ["paying 3"]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("as it is", "as it is"),
        (None, "done"),
        (3, "3"),
        ([1, "a"], '[1,"a"]'),
        (Point(1), '{"x":1,"y":null}'),
        (1 + 2j, "(1+2j)"),
        (["\ud800"], "['\\ud800']"),
    ],
)
async def test_a_result_is_told_in_words(result, told):
    @tool
    async def give() -> object:
        """Gives."""
        return result

    assert await give.run(use()) == told


@pytest.mark.real_time
async def test_a_function_that_is_not_async_keeps_nobody_waiting():
    here = threading.get_ident()

    @tool
    def where() -> bool:
        """Tells whether it runs beside the loop."""
        return threading.get_ident() != here

    assert await where.run(use()) == "true"


@pytest.mark.real_time
async def test_a_function_in_a_thread_can_tell_its_progress():
    heard = Heard()

    @tool
    def count(use: ToolUse, to: int) -> int:
        """Counts."""
        use.progress("counting")
        return to

    assert await count.run(use(heard, to=3)) == "3"
    assert heard == ["counting"]


@pytest.mark.real_time
async def test_what_is_told_from_a_thread_may_be_awaited_as_anywhere():
    heard = Heard()

    @tool
    def count(use: ToolUse) -> str:
        """Counts."""

        async def tell():
            await use.progress("counting")

        anyio.run(tell)
        return "done"

    assert await count.run(use(heard)) == "done"
    assert heard == ["counting"]


@pytest.mark.real_time
async def test_a_function_that_returns_something_to_await_is_awaited():
    def wrapped(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*args, **kwargs)

        return call

    @tool
    @wrapped
    async def later(a: int) -> int:
        """Takes a moment."""
        return a

    assert await later.run(use(a=3)) == "3"


@pytest.mark.real_time
async def test_errors_of_a_function_pass_through():
    @tool
    def fail(how: str) -> None:
        """Fails."""
        raise {"tool": ToolError("no"), "own": ZeroDivisionError("oh"), "stop": StopIteration()}[
            how
        ]

    with pytest.raises(ToolError, match="no"):
        await fail.run(use(how="tool"))
    with pytest.raises(ZeroDivisionError, match="oh"):
        await fail.run(use(how="own"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await fail.run(use(how="stop"))


@pytest.mark.real_time
async def test_a_function_that_wants_to_end_the_process_does_not():
    @tool
    def leave() -> None:
        """Leaves."""
        sys.exit(3)

    @tool
    async def leave_too() -> None:
        """Leaves."""
        sys.exit(3)

    for made in (leave, leave_too):
        with pytest.raises(ToolError, match=f"{made.spec.name} tried to end the process"):
            await made.run(use())


@pytest.mark.real_time
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
async def test_nor_does_one_that_pretends_that_somebody_else_wants_it(error):
    @tool
    def pretend() -> None:
        """Pretends."""
        raise error

    with pytest.raises(ToolError, match="pretend tried to end the process"):
        await pretend.run(use())


@pytest.mark.real_time
async def test_a_function_in_a_thread_may_have_a_loop_of_its_own():
    @tool
    def nest() -> str:
        """Runs a loop."""
        return anyio.run(anyio.lowlevel.checkpoint) or "ran"

    assert await nest.run(use()) == "ran"


# --- threads that outlive their use


class Stuck:
    """A tool that hangs until it is let go, and which threads it hung in."""

    def __init__(self, **options):
        self.threads = []
        self._go = threading.Event()
        self.entered = threading.Semaphore(0)

        @tool(**options)
        def hang(use: ToolUse, deaf: bool = True) -> str:
            """Hangs."""
            self.threads.append(threading.get_native_id())
            self.entered.release()
            self._go.wait(30)
            return "went on"

        self.tool = hang

    @contextmanager
    def let_go(self):
        try:
            yield
        finally:
            self._go.set()

    def go(self):
        self._go.set()

    async def wait(self):
        """Until one more has begun to hang."""
        while not self.entered.acquire(blocking=False):
            await anyio.sleep(0.001)


@pytest.mark.real_time
async def test_a_thread_that_goes_on_when_cut_off_is_named():
    stuck, left = Stuck(), []
    with stuck.let_go():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stuck.tool.run, use(left=left))
            await stuck.wait()
            tasks.cancel_scope.cancel()
        ((words, going),) = left
        assert words == f"thread {stuck.threads[0]} of tool hang: still running" and going()


@pytest.mark.real_time
async def test_a_call_that_waits_for_a_thread_says_so_and_leaves_nothing_behind():
    stuck, left, heard = Stuck(threads=2), [], Heard()
    with stuck.let_go():
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(stuck.tool.run, use())
                await stuck.wait()
            with anyio.move_on_after(0.02) as time:
                await stuck.tool.run(use(heard, left=left))
            tasks.cancel_scope.cancel()
    assert time.cancelled_caught
    assert heard == ["waiting for a thread; 2 of 2 are busy\n"]
    assert left == [] and len(stuck.threads) == 2


@pytest.mark.real_time
async def test_a_thread_that_hangs_keeps_its_place_until_it_is_done():
    stuck, heard = Stuck(threads=1), Heard()
    with stuck.let_go():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stuck.tool.run, use())
            await stuck.wait()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(0.02) as time:
            await stuck.tool.run(use(heard))
        assert time.cancelled_caught and "1 of 1 are busy" in heard[0]
    with anyio.fail_after(5):
        assert await stuck.tool.run(use()) == "went on"


@pytest.mark.real_time
async def test_a_call_that_is_cut_off_before_its_thread_begins_never_runs_and_frees_its_place():
    ran, left = [], []

    @tool(threads=1)
    def note() -> None:
        """Notes that it ran."""
        ran.append(1)

    for _ in range(50):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await note.run(use(left=left))
    assert ran == [] and left == []
    assert await note.run(use()) == "done"


@pytest.mark.real_time
async def test_places_are_given_back_once_however_close_the_cut_is_to_the_beginning_or_the_end():
    """A race on purpose: what was said to go on has run in the end, and nothing ran twice."""
    done, left = [], {number: [] for number in range(200)}

    @tool(threads=2)
    def note(number: int) -> None:
        """Notes that it ran."""
        done.append(number)

    for number, said in left.items():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note.run, use(left=said, number=number))
            for _ in range(number % 5):
                await asyncio.sleep(0)  # noqa: TID251 (one turn of the loop, and no more)
            tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        for number in (1000, 1001):
            assert await note.run(use(number=number)) == "done"
    assert len(done) == len(set(done))
    assert {number for number, said in left.items() if said} <= set(done)


@pytest.mark.real_time
async def test_work_that_nobody_waits_for_any_more_does_not_begin():
    """The thread may be told just before it begins, which no test can time."""
    ran, places = [], anyio.CapacityLimiter(1)
    work = _Work("note", partial(ran.append, 1), places)
    await places.acquire_on_behalf_of(work)
    assert work.leave() == 0
    work.work()
    assert ran == [] and places.borrowed_tokens == 0


@pytest.mark.real_time
def test_a_thread_may_outlive_the_loop_that_started_it():
    stuck = Stuck(threads=1)

    async def hang_and_leave():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stuck.tool.run, use())
            await stuck.wait()
            tasks.cancel_scope.cancel()

    async def go():
        stuck.go()
        return await stuck.tool.run(use())

    with stuck.let_go():
        anyio.run(hang_and_leave)
        # Another loop, and places of its own.
        assert anyio.run(go) == "went on"


ENDS = """
import threading, anyio
from holdfast import tool
from holdfast.ports import ToolUse

begun = threading.Event()

@tool
def hang() -> None:
    "Hangs."
    begun.set()
    threading.Event().wait()

async def main():
    use = ToolUse("{}", "call_1", None, left=lambda words, _: print(words.split()[-1]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hang.run, use)
        while not begun.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()

anyio.run(main)
"""


@pytest.mark.real_time
def test_a_program_whose_tool_hangs_in_a_thread_can_end():
    done = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, timeout=20, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "running\n", "")


@pytest.mark.real_time
async def test_a_function_can_be_used_in_a_run():
    model = ScriptedModel([Call("add", '{"a":1,"b":2}')], [Call("add", '{"a":"x"}')], ["done"])
    async with open_app(models={"scripted": model}, tools=[add]) as app:
        run_id = await app.runs.accept(app.prepare("add"))
        journal = [recorded.event async for recorded in app.runs.follow(run_id)]
    good, bad = (event for event in journal if isinstance(event, ToolFinished))
    assert (good.outcome, good.output) == ("ok", "3")
    assert bad.outcome != "ok"
    assert "Expected `int`, got `str`" in model.requests[-1].messages[-1].output
