"""A typed Python function as a tool.

    @tool(reads=True)
    def add(a: int, b: Annotated[int, Meta(description="what to add")] = 0) -> int:
        "Adds two numbers."
        return a + b

The signature is the schema, the docstring is the description, and what a model sends is checked
against both before anything runs. Unless it says otherwise a function is taken to change things
and not to bear repeating, and a person is asked: to forget a word must cost a question, not money.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import partial, update_wrapper
from threading import Lock, Thread, get_native_id  # noqa: TID251 (see _Work)
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints, overload

import msgspec
from anyio import CapacityLimiter, from_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled, current_token
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.codec import canonical
from holdfast.core.messages import ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.tools.arguments import check_length

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Is a person asked? None: if the tool writes or uses the network. Words: yes, and that is why.
#: A function is given the arguments and says all of it.
Ask: TypeAlias = bool | str | Callable[[Any], Review] | None

#: What every wire lets a tool be called.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

#: Characters of the arguments of one call. They may be anything, of which a text is the quickest to
#: read, and are read and spelled out where everybody waits meanwhile.
MOST_ARGUMENTS = 256 * 1024

#: What a call returned, or what it raised.
_Answer: TypeAlias = tuple[Any, BaseException | None]

_CANNOT_ENCODE = (TypeError, ValueError, OverflowError, RecursionError)


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...


@overload
def tool(
    *,
    reads: bool = False,
    writes: bool = True,
    network: bool = False,
    repeatable: bool | None = None,
    parallel: bool = False,
    timeout: float = 600.0,
    output: int = 64 * 1024,
    ask: Ask = None,
    threads: int = 8,
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    reads: bool = False,
    writes: bool = True,
    network: bool = False,
    repeatable: bool | None = None,
    parallel: bool = False,
    timeout: float = 600.0,
    output: int = 64 * 1024,
    ask: Ask = None,
    threads: int = 8,
) -> Any:
    """Make a tool of a function that has types and a docstring. Raises TypeError if it has not.

    `reads` is short for `writes=False`. What does not write is repeatable unless it says that it
    is not. A parameter of type ToolUse is given the use, and the model does not hear of it.
    `threads` is how many calls of a function that is not async may be at work at once.
    """
    if min(timeout, output, threads) <= 0:
        raise ValueError("timeout, output and threads of a tool must be above 0")
    writes = writes and not reads
    options = ToolSpec(
        name="",
        writes=writes,
        network=network,
        repeatable=not writes if repeatable is None else repeatable,
        parallel=parallel,
        timeout=timeout,
        output=output,
    )
    make = partial(FunctionTool[..., Any], options=options, ask=ask, threads=threads)
    return make if function is None else make(function)


class FunctionTool(Generic[_P, _R]):
    """A tool that can still be called as the function it was made of."""

    def __init__(
        self, function: Callable[_P, _R], *, options: ToolSpec, ask: Ask = None, threads: int = 8
    ) -> None:
        name = _name(function)
        update_wrapper(self, function)
        signature = _Signature(name, function)
        self.spec = replace(
            options, name=name, description=_description(name, function), schema=signature.schema
        )
        #: What a model's arguments become, and what a function given as `ask` gets to see.
        self.arguments = signature.shape
        self._uses = signature.uses
        self._function, self._ask, self._threads = function, ask, threads
        # Places belong to an event loop: a thread that one has left behind cannot tell another
        # that it is done.
        self._places: RunVar[CapacityLimiter] = RunVar(f"threads of {name}")

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._function(*args, **kwargs)

    def review(self, arguments: str) -> Review:
        given = self._read(arguments)
        values = _values(given)
        lines = (f"{name}: {bytes(value).decode()}" for name, value in values.items())
        shown = "\n".join((self.spec.name, *lines))
        if callable(self._ask):
            seen = self._ask(given)
            # Nobody can agree to what is not shown.
            return seen if seen.subject else replace(seen, subject=shown)
        matters = self.spec.writes or self.spec.network
        asks = matters if self._ask is None else self._ask is not False
        return Review(
            gate="ask" if asks else "auto",
            reason=(self._ask if isinstance(self._ask, str) else "") or _reason(self.spec),
            subject=shown,
            # With what was not given: a default may be another one by the next call.
            key=canonical(msgspec.json.encode(values).decode()),
        )

    async def run(self, use: ToolUse) -> str:
        given = self._read(use.arguments)
        words = {name: getattr(given, name) for name in self.arguments.__struct_fields__}
        awaits = inspect.iscoroutinefunction(self._function)
        theirs = use if awaits else replace(use, progress=_from_a_thread(use.progress))
        uses = dict.fromkeys(self._uses, theirs)
        call = partial(cast("Callable[..., Any]", self._function), **words, **uses)
        try:
            if awaits:
                return _told(await call())
            result = await self._in_thread(call, use)
            return _told(await result if isinstance(result, Awaitable) else result)
        except SystemExit as error:
            # It would end the process, and every run in it.
            raise ToolError(f"{self.spec.name} tried to end the process it runs in") from error

    async def _in_thread(self, call: Callable[[], Any], use: ToolUse) -> Any:
        places = self._places_here()
        if places.available_tokens < 1:
            await use.progress(
                f"waiting for a thread; {places.borrowed_tokens} of {self._threads} are busy\n"
            )
        work = _Work(self.spec.name, call, places)
        await places.acquire_on_behalf_of(work)
        try:
            # It has its place, and keeps it for as long as it runs, waited for or not.
            return await work.wait()
        finally:
            if thread := work.leave():
                use.left(f"thread {thread} of tool {self.spec.name}: still running", work.going)

    def _places_here(self) -> CapacityLimiter:
        places = self._places.get(None)
        if places is None:
            places = CapacityLimiter(self._threads)
            self._places.set(places)
        return places

    def _read(self, arguments: str) -> Struct:
        check_length(self.spec.name, arguments, MOST_ARGUMENTS)
        try:
            return msgspec.json.decode(arguments, type=self.arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            name, schema = self.spec.name, self.spec.schema
            raise ToolError(
                f"{name} cannot use these arguments: {error}; its schema is {schema}"
            ) from error


class _Work:
    """One call in a thread, which may outlive whoever waits for it.

    A thread cannot be ended from outside, so its place is free when it is done and no sooner: else
    calls that hang would pile up without an end. It is no thread of anyio's, since a program that
    is about to end waits for those, be it for ever.
    """

    def __init__(self, name: str, call: Callable[[], Any], places: CapacityLimiter) -> None:
        self._name, self._call, self._places = name, call, places
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[_Answer] = self._loop.create_future()
        self._lock = Lock()
        self._thread = 0
        self._left = False

    async def wait(self) -> Any:
        """What comes of it. Raises what it raises."""
        await checkpoint_if_cancelled()
        Thread(target=self.work, name=f"tool {self._name}", daemon=True).start()
        result, error = await self._answer
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            # Nobody has pressed a key: that is heard elsewhere.
            raise SystemExit from error
        if error is not None:
            raise error
        return result

    def work(self) -> None:
        """In its thread."""
        with self._lock:
            if self._left:
                return
            self._thread = get_native_id()
        answer: _Answer
        try:
            answer = self._call(), None
        except BaseException as error:  # noqa: BLE001 - it is handed on
            answer = None, error
        self._over(answer)

    def leave(self) -> int:
        """Nobody waits for it any more. The thread that goes on, 0 if none does or will."""
        with self._lock:
            self._left = True
            if not self._thread:
                self._places.release_on_behalf_of(self)
            return self._thread

    def going(self) -> bool:
        """Its thread is still at it."""
        return bool(self._thread)

    def _over(self, answer: _Answer) -> None:
        with self._lock:
            self._thread = 0
            tell = self._give_back if self._left else partial(self._hand_over, answer)
        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            pass  # the loop is closed, and its places are gone with it

    def _give_back(self) -> None:
        self._places.release_on_behalf_of(self)

    def _hand_over(self, answer: _Answer) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)


class _Told:
    """Something to await, for whoever does so in a thread as well. It is over."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _from_a_thread(
    progress: Callable[[str], Awaitable[None]],
) -> Callable[[str], Awaitable[None]]:
    """To be called without an await, in a thread, which waits until the words are taken."""
    token = current_token()

    async def hand_on(text: str) -> None:
        await progress(text)

    def tell(text: str) -> _Told:
        from_thread.run(hand_on, text, token=token)
        return _Told()

    return tell


# --- what a function says about itself ------------------------------------------------------------


class _Signature:
    """The parameters of a function as a Struct, its schema, and the names that take the use."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        fields: list[tuple[str, Any, Any]] = []
        uses: list[str] = []
        self._defaults: dict[str, Any] = {}
        for parameter, hint in _parameters(name, function):
            if hint is ToolUse:
                uses.append(parameter.name)
                continue
            options = msgspec.field()
            if parameter.default is not parameter.empty:
                self._defaults[parameter.name] = parameter.default
                options = msgspec.field(default_factory=partial(_same, parameter.default))
            fields.append((parameter.name, hint, options))
        self.uses = tuple(uses)
        self.shape = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        self.schema = msgspec.json.encode(self._schema()).decode()

    def _schema(self) -> dict[str, Any]:
        schema = _without_references(msgspec.json.schema(self.shape))
        del schema["title"]
        for name, default in self._defaults.items():
            try:
                shown = msgspec.json.decode(msgspec.json.encode(default, order="deterministic"))
            except _CANNOT_ENCODE:
                continue  # it works all the same, but no model can be told of it
            schema["properties"][name]["default"] = shown
        return schema


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not inspect.isroutine(function) or not _NAME.fullmatch(name):
        raise TypeError(
            f"a tool is made of a function with a name of up to 64 plain letters, not of {function!r}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"the tool {name} yields; a tool returns, and tells its progress by a ToolUse"
        )
    return name


def _description(name: str, function: Callable[..., Any]) -> str:
    description = inspect.cleandoc(function.__doc__ or "")
    if not description:
        raise TypeError(f"the tool {name} needs a docstring: it is all that a model knows of it")
    return description


def _parameters(name: str, function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    known = getattr(inspect.unwrap(function), "__globals__", {})
    for parameter in inspect.signature(function).parameters.values():
        where = f"the parameter {parameter.name} of the tool {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{where} stands for any number of arguments; name each of them")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{where} has no name to a caller; a model gives arguments by name")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{where} needs a type")
        yield parameter, _type(where, parameter, known)


def _type(where: str, parameter: inspect.Parameter, known: Mapping[str, Any]) -> Any:
    """What the annotation means, written out or as a string, if it is something JSON can hold."""
    one = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hint = get_type_hints(one, dict(known), include_extras=True)[parameter.name]
        if hint is not ToolUse:
            msgspec.defstruct("Parameter", [(parameter.name, hint)])
            msgspec.json.Decoder(hint)
            msgspec.json.schema(hint)
    except (NameError, AttributeError, SyntaxError, RuntimeError, *_CANNOT_ENCODE) as error:
        raise TypeError(f"{where} has a type that no model can be told of: {error}") from error
    return hint


def _same(value: Any) -> Any:
    """The default is the very object that the function would have taken."""
    return value


def _without_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in one piece, for endpoints that follow no references.

    A type that contains itself needs them, and keeps them.
    """
    shapes = schema["$defs"]

    def expand(node: Any, above: tuple[str, ...]) -> Any:
        match node:
            case {"$ref": str(reference), **rest}:
                name = reference.rpartition("/")[2]
                if name in above:
                    raise RecursionError(name)
                return {**expand(shapes[name], (*above, name)), **rest}
            case {"anyOf": [*_], "discriminator": _, **rest}:
                return expand({**rest, "anyOf": node["anyOf"]}, above)
            case dict():
                return {key: expand(value, above) for key, value in node.items()}
            case list():
                return [expand(value, above) for value in node]
        return node

    try:
        return cast("dict[str, Any]", expand({"$ref": schema["$ref"]}, ()))
    except RecursionError:
        root = shapes.pop(schema["$ref"].rpartition("/")[2])
        return {**root, "$defs": shapes}


# --- words ----------------------------------------------------------------------------------------


def _reason(spec: ToolSpec) -> str:
    does = ("may change things",) * spec.writes + ("uses the network",) * spec.network
    return f"it {' and '.join(does)}" if does else ""


def _values(given: Struct) -> dict[str, msgspec.Raw]:
    """The call, an argument each as JSON, with what it takes for those that were not given."""
    values: dict[str, msgspec.Raw] = {}
    for field in given.__struct_fields__:
        try:
            value = msgspec.json.encode(getattr(given, field), order="deterministic")
        except _CANNOT_ENCODE:
            continue  # a default of the function's own, which no model can have set
        values[field] = msgspec.Raw(value)
    return values


def _told(result: object) -> str:
    if result is None:
        return "done"
    if isinstance(result, str):
        return result
    try:
        return msgspec.json.encode(result).decode()
    except _CANNOT_ENCODE:
        return str(result)
