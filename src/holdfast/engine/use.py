"""One use of a tool: what it makes of the arguments, and what comes of running it.

Whatever a tool does, the run goes on: its errors, its time limit and its odd output are told to
the model. Only cancellation passes through, because only a scope cancels. A call that would take
a secret along is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from holdfast.calls.foreign import MOST_WORDS, no_stray_cancel, told
from holdfast.core.codec import canonical
from holdfast.core.events import Outcome, ToolFinished, ToolProgressed
from holdfast.core.messages import Asked, BlobRef, ToolCall, lone, storable
from holdfast.core.secrets import Secrets
from holdfast.core.state import RunState
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe
from holdfast.errors import ToolError, ToolTimeout
from holdfast.ports import Review, ToolUse

#: Characters of output a model is shown of one call. The whole is kept as a blob.
OUTPUT_LIMIT = 64 * 1024

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
        subject=seen.subject,
        key=seen.key,
    )


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
    if name not in means.tools:
        return Review(gate="ask", reason=f"{name} was not at hand to look at this call")
    seen = means.tools[name].review(arguments)
    if not isinstance(seen, Review):
        raise ToolError(f"{name} does not say whether this may run, so it does not")
    return seen


async def use_tool(scribe: Scribe, means: Means, call: ToolCall) -> None:
    """Run it within its time, and record what came of it."""
    spec = scribe.state.spec(call.tool)
    limit = spec.timeout if spec and spec.timeout else None
    began = anyio.current_time()
    outcome: Outcome = "error"
    progress = _Progress(scribe, call.id)
    try:
        with anyio.move_on_after(limit) as time, no_stray_cancel(ToolError):
            use = ToolUse(arguments=call.arguments, effect_id=call.id, progress=progress.report)
            outcome, output = "ok", str(await means.tools[call.tool].run(use))
        if time.cancelled_caught:
            raise ToolTimeout(call.tool, limit or 0.0)
    except ToolTimeout as error:
        outcome, output = "timeout", str(error)
    except ToolError as error:
        outcome, output = "error", shortened(told(error), means.secrets)
    except Exception as error:  # noqa: BLE001 - foreign code; the model is told
        words = shortened(told(error), means.secrets)
        outcome, output = "error", f"{type(error).__name__}: {words}"
    finally:
        progress.end(cut=outcome != "ok")
    # Before it is shortened, and before it becomes a blob.
    output = means.secrets.mask(output)
    finished, blobs = _result(call, outcome, output, round(anyio.current_time() - began, 6))
    await scribe.record(finished, blobs=blobs)


def _result(
    call: ToolCall, outcome: Outcome, output: str, seconds: float
) -> tuple[ToolFinished, dict[str, bytes]]:
    if (where := lone(output)) is not None:
        outcome = "error"
        output = f"{call.tool} ran, but its output holds half a character at {where} and is lost"
    if len(output) <= OUTPUT_LIMIT:
        told = ToolFinished(call_id=call.id, outcome=outcome, output=output, seconds=seconds)
        return told, {}
    body = output.encode()
    ref = BlobRef(sha256=sha256(body).hexdigest(), size=len(body))
    told = ToolFinished(
        call_id=call.id, outcome=outcome, output=_shorten(output), blob=ref, seconds=seconds
    )
    return told, {ref.sha256: body}


def _shorten(output: str) -> str:
    """The beginning and the end, and how much is left out between them."""
    head, tail = output[: OUTPUT_LIMIT * 3 // 4], output[-OUTPUT_LIMIT // 4 :]
    left_out = len(output) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters left out; the whole output is kept …]\n{tail}"


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
