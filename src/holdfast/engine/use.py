"""One use of a tool: what it makes of the arguments, and what comes of running it.

Whatever a tool does, the run goes on: its errors, its time limit and its odd output are told to
the model. Only cancellation passes through, because only a scope cancels. A call that would take
a secret along is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from holdfast.calls.foreign import MOST_WORDS, cut_off, no_stray_cancel, told
from holdfast.core.codec import canonical
from holdfast.core.events import Outcome, ToolFinished, ToolProgressed
from holdfast.core.messages import Asked, BlobRef, ToolCall, ToolSpec, lone, storable
from holdfast.core.secrets import Secrets
from holdfast.core.state import RunState
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe
from holdfast.errors import ToolError, ToolTimeout
from holdfast.ports import Looks, Review, ToolUse

_T = TypeVar("_T")

#: By which a model reads on in an output that was shortened.
READ_ON = "read_output"

#: Characters of progress that are kept of one call.
PROGRESS_LIMIT = 1024 * 1024


def review_all(asked: Sequence[Asked], state: RunState, means: Means) -> tuple[ToolCall, ...]:
    """The calls of one reply. If one of them cannot be read none is run: it may be half of a plan."""
    calls = tuple(review(one, state, means) for one in asked)
    if all(_readable(one.arguments or "{}") for one in asked):
        return calls
    other = "not run: another call of the same reply could not be read"
    return tuple(call if call.problem else replace(call, problem=other) for call in calls)


def _readable(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def review(asked: Asked, state: RunState, means: Means) -> ToolCall:
    """The call under an id of ours, with what its tool makes of the arguments."""
    arguments = asked.arguments or "{}"
    harmless = _without_secrets(arguments, means.secrets)
    problem, seen = "", Review()
    try:
        if harmless != arguments:
            why = "its arguments contain a secret that must not leave this machine"
            raise ToolError(f"not run: {why}")
        seen = _look(asked.tool, arguments, state, means)
    except ToolError as error:
        problem = told(error)
    except Exception as error:  # noqa: BLE001 - foreign code; the model is told
        name = type(error).__name__
        problem = f"{asked.tool} could not read its arguments: {name}: {told(error)}"
    return ToolCall(
        id=means.new_id("call"),
        model_id=asked.model_id,
        tool=asked.tool,
        arguments=harmless,
        problem=shortened(storable(problem), means.secrets),
        gate=seen.gate,
        reason=seen.reason,
        subject=storable(seen.subject),
        key=storable(seen.key),
        binding=storable(seen.binding),
    )


class Look(NamedTuple):
    """What a second look at a call found: why it should not go on, or "", and what a yes is bound to."""

    why: str = ""
    binding: str = ""


async def look_again(
    call: ToolCall, state: RunState, means: Means, *, asking: bool = False
) -> Look:
    """Whether this call, which may go on as far as it was looked at, is still what was looked at.

    That may have been by a person, or by a process with other settings. A person who is being asked,
    or was, looks at what lies about as well: what the calls ahead of this one left.
    """
    tool = next(tool for tool in state.tools if tool.call.id == call.id)
    try:
        seen = _look(call.tool, call.arguments, state, means)
        found = await _contents(call, state, means) if asking or tool.asked else ""
    except Exception as error:  # noqa: BLE001 - foreign code; the model is told
        return Look(f"not run: {shortened(told(error), means.secrets)}")
    stricter = seen.gate == "refuse" or (seen.gate == "ask" and call.gate == "auto")
    if stricter and not (tool.answer and seen.gate == "ask"):
        return Look(
            f"not run: {seen.reason or 'it is not allowed any more'}; this was not so before"
        )
    # As it was recorded.
    mask = means.secrets.mask
    by_rule = call.gate == "ask" and not (asking or tool.answer)
    if by_rule and mask(storable(seen.key)) != call.key:
        # What came ahead of it may have made another thing of the same words.
        return Look("not run: no standing yes covers it now; ask for it again")
    subject, binding, found = (mask(storable(x)) for x in (seen.subject, seen.binding, found))
    bound = "\n".join(filter(None, (binding, found)))
    if (call.subject, call.binding) == (subject, binding if asking else bound):
        return Look(binding=bound)
    news = [line for line in bound.splitlines() if line not in call.binding.splitlines()]
    now = f" (now {news[0]})" if call.subject == subject and news else ""
    return Look(f"not run: it would not be what was looked at before{now}; ask for it again")


async def _contents(call: ToolCall, state: RunState, means: Means) -> str:
    tool: object = means.tools_for(state.accepted).get(call.tool)
    return str(await tool.contents(call.arguments)) if isinstance(tool, Looks) else ""


def _without_secrets(arguments: str, secrets: Secrets) -> str:
    """The same arguments, unless there is a secret in them, however it is spelled."""
    if not secrets:
        return arguments
    masked = secrets.mask(arguments)
    spelled_out = canonical(masked)
    return secrets.mask(spelled_out) if secrets.found(spelled_out) else masked


def shortened(words: str, secrets: Secrets) -> str:
    """As many of the words as are worth keeping. A cut must not leave most of a secret."""
    return words if len(words) < MOST_WORDS else secrets.mask_cut(words[:MOST_WORDS])


def _look(name: str, arguments: str, state: RunState, means: Means) -> Review:
    if state.spec(name) is None:
        names = ", ".join(spec.name for spec in state.accepted.tools) if state.accepted else ""
        raise ToolError(f"there is no tool {name!r}; there are: {names or 'none'}")
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ToolError(f"the arguments of {name} must be a JSON object: {error}") from error
    tools = means.tools_for(state.accepted)
    if name not in tools:
        return Review(gate="ask", reason=f"{name} was not at hand to look at this call")
    seen = tools[name].review(arguments)
    if not isinstance(seen, Review):
        raise ToolError(f"{name} does not say whether this may run, so it does not")
    return seen


#: Sentences of what a tool left behind that are kept, and characters of each.
MOST_TRACES = 100
LONGEST_TRACE = 300


class _Left(NamedTuple):
    words: str
    going: Callable[[], bool] | None

    def goes_on(self) -> bool:
        try:
            return self.going is None or bool(self.going())
        except Exception:  # noqa: BLE001 - foreign code; what cannot be told may well be so
            return True


@dataclass(frozen=True)
class Traces:
    """What tools that did not come to their end have said of themselves on their way out."""

    ended: list[str] = field(default_factory=list)
    _problems: list[str] = field(default_factory=list)
    _left: list[_Left] = field(default_factory=list)

    @property
    def left(self) -> tuple[str, ...]:
        """What goes on by now."""
        return tuple(one.words for one in self._left if one.goes_on())

    def told(self) -> dict[str, tuple[str, ...]]:
        """In the words of a receipt."""
        problems, ended = tuple(self._problems), tuple(self.ended)
        return {"problems": problems, "ended": ended, "left": self.left}

    def fail(self, words: str) -> None:
        self._note(self._problems, _trace(words))

    def end(self, words: str) -> None:
        self._note(self.ended, _trace(words))

    def leave(self, words: str, going: Callable[[], bool] | None = None) -> None:
        self._note(self._left, _Left(_trace(words), going))

    def take(self, other: Traces, *, cut: bool) -> None:
        """What is on the receipt of a stop: all that was `cut` off by it, and what goes on since before."""
        self._left[:] = [one for one in self._left if one.goes_on()]
        kept = [one for one in other._left if cut or (one.going and one.goes_on())]
        for mine, theirs in (self.ended, other.ended), (self._problems, other._problems):
            for words in theirs if cut else ():
                self._note(mine, words)
        for left in kept:
            self._note(self._left, left)

    @staticmethod
    def _note(kept: list[_T], one: _T) -> None:
        if len(kept) < MOST_TRACES:
            kept.append(one)


def _trace(words: str) -> str:
    return storable(str(words))[:LONGEST_TRACE]


async def use_tool(scribe: Scribe, means: Means, call: ToolCall, traces: Traces) -> None:
    """Run it within its time, and record what came of it. `traces` are kept of what is cut off."""
    spec = scribe.state.spec(call.tool)
    began = anyio.current_time()
    progress, own = _Progress(scribe, call.id), Traces()
    use = ToolUse(
        arguments=call.arguments,
        effect_id=call.id,
        progress=progress.report,
        ended=own.end,
        left=own.leave,
    )
    outcome: Outcome = "cancelled"
    try:
        came, output = await _run(use, call.tool, means, limit=spec.timeout if spec else 0.0)
        if came == "error" and cut_off():
            # It did not go quietly; it was cut off all the same.
            own.fail(f"{call.tool}: {means.secrets.mask(output)}")
            await anyio.lowlevel.checkpoint_if_cancelled()
        outcome = came
    finally:
        progress.end(cut=outcome != "ok")
        traces.take(own, cut=outcome == "cancelled")
    if outcome == "timeout":
        output = "; ".join((output, *own.ended, *own.left))
    # Before it is shortened, and before it becomes a blob.
    output = means.secrets.mask(output)
    seconds = round(anyio.current_time() - began, 6)
    finished = ToolFinished(call_id=call.id, outcome=outcome, output=output, seconds=seconds)
    most = spec.output if spec and spec.output > 0 else ToolSpec("").output
    finished, blobs = _kept(finished, most, read_on=scribe.state.spec(READ_ON) is not None)
    await scribe.record(finished, blobs=blobs)


async def _run(use: ToolUse, name: str, means: Means, *, limit: float) -> tuple[Outcome, str]:
    try:
        with anyio.move_on_after(limit or None) as time, no_stray_cancel(ToolError):
            return "ok", str(await means.tools[name].run(use))
        assert time.cancelled_caught
        return "timeout", str(ToolTimeout(name, limit))
    except ToolTimeout as error:
        return "timeout", str(error)
    except ToolError as error:
        return "error", f"{error.output}{shortened(told(error), means.secrets)}"
    except Exception as error:  # noqa: BLE001 - foreign code; the model is told
        return "error", f"{type(error).__name__}: {shortened(told(error), means.secrets)}"


def _kept(
    finished: ToolFinished, most: int, *, read_on: bool
) -> tuple[ToolFinished, dict[str, bytes]]:
    """What the model is told, and the whole of it where that is too much."""
    output = finished.output
    if (where := lone(output)) is not None:
        lost = f"it ran, but its output holds half a character at {where} and is lost"
        return replace(finished, outcome="error", output=lost), {}
    if len(output) <= most:
        return finished, {}
    body = output.encode()
    ref = BlobRef(sha256=sha256(body).hexdigest(), size=len(body))
    told = _shorten(output, most, ref if read_on else None)
    return replace(finished, output=told, blob=ref), {ref.sha256: body}


def _shorten(output: str, most: int, ref: BlobRef | None) -> str:
    """The beginning and the end, how much is left out between them, and how to read that."""
    head, tail = output[: most * 3 // 4], output[len(output) - most // 4 :]
    left_out = len(output) - len(head) - len(tail)
    how = f'; {READ_ON} with output "{ref.sha256}" and offset {len(head)} reads on' if ref else ""
    return f"{head}\n[… {left_out} characters left out; the whole output is kept{how} …]\n{tail}"


class _Progress:
    """What a tool reports on its way: so much and no more, and nothing once it has ended."""

    def __init__(self, scribe: Scribe, call_id: str) -> None:
        self._scribe, self._make = scribe, partial(_progress, call_id)
        self._left = PROGRESS_LIMIT
        self._over = False

    async def report(self, text: str) -> None:
        if self._over or self._left <= 0:
            return
        words = str(text)[: self._left]
        self._left -= len(words)
        await self._scribe.say(self._make, storable(words))
        if self._left or self._over:
            return
        self._scribe.end(self._make, cut=True)
        await self._scribe.say(self._make, "\n[… further progress is not kept]\n")

    def end(self, *, cut: bool) -> None:
        """The tool has ended, or was `cut` off."""
        self._over = True
        self._scribe.end(self._make, cut=cut)


def _progress(call_id: str, text: str) -> ToolProgressed:
    return ToolProgressed(call_id=call_id, text=text)
