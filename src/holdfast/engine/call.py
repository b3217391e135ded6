"""One attempt at a model's reply: the intent, the stream, and what came of it.

A reply is accepted whole or not at all. Its text is made of the very pieces that were
streamed, so what a viewer saw and what is on record cannot differ.
"""

from __future__ import annotations

from functools import partial
from typing import Self

import anyio
from msgspec.structs import replace

from holdfast.calls.foreign import told
from holdfast.calls.line import attempt
from holdfast.core.codec import decode_history, encode
from holdfast.core.events import (
    Event,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    ReasoningStreamed,
    RunAccepted,
    RunWaiting,
    TextStreamed,
)
from holdfast.core.fit import fit
from holdfast.core.messages import (
    BlobRef,
    Chunk,
    Done,
    Message,
    Request,
    Said,
    Thought,
    Unstreamed,
    characters,
    lone,
    mend,
    pictures,
    storable,
)
from holdfast.core.plan import CallModel, ending
from holdfast.core.retry import CUT_SHORT
from holdfast.core.run import untold
from holdfast.core.state import RunState
from holdfast.engine.coalesce import Maker
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe, answered
from holdfast.engine.use import review_all, shortened
from holdfast.errors import BadReply, InvalidRequest, ModelError

#: Calls in one reply, and characters in all of it. A model that wants more has lost its way.
MOST_CALLS = 128
MOST_TEXT = 16 * 1024 * 1024


async def call_model(
    scribe: Scribe, means: Means, step: CallModel, first: tuple[Event, ...] = ()
) -> None:
    """Wait for a place, and call unless a stop came first.

    `first` are events that go before whatever is recorded of it.
    """

    async def busy() -> None:
        nonlocal first
        await scribe.record(*first, RunWaiting(what="place", name=step.model))
        first = ()

    async with means.line(step.model).endpoint.place(busy):
        if not scribe.state.stopping:
            await _call(scribe, means, step, first)


async def _call(scribe: Scribe, means: Means, step: CallModel, first: tuple[Event, ...]) -> None:
    """Record the intent, look once more, call, and record the reply or the failure."""
    accepted = scribe.state.accepted
    assert accepted is not None
    choice = next(choice for choice in accepted.models if choice.name == step.model)
    history = await _before(means, scribe.lease.run_id, accepted)
    request = _request(scribe.state, choice, history)
    patience = choice.patience.grown(choice.grows, characters=characters(request))
    called = ModelCalled(turn=step.turn, attempt=step.attempt, model=step.model, patience=patience)
    await scribe.record(*first, called)
    if scribe.state.stopping:
        return
    # Once more: what was said just before the intent is on record as heard.
    request = _request(scribe.state, choice, history)
    request = await _with_pictures(replace(request, messages=fit(request.messages)), means)
    began = anyio.current_time()
    ear = _Ear(scribe, step)
    try:
        with ear:
            done = await attempt(means.line(step.model), request, patience, ear.hear)
        reply = ear.reply(done, means, seconds=round(anyio.current_time() - began, 6))
    except ModelError as error:
        failed = ModelFailed(
            turn=step.turn,
            attempt=step.attempt,
            reason=storable(error.reason),
            message=shortened(told(error), means.secrets),
            status=error.status,
            retry_after=error.retry_after,
            waited=round(error.waited, 6),
            seconds=round(anyio.current_time() - began, 6),
        )
        await scribe.record(failed)
    else:
        await scribe.record(reply, end=ending(scribe.state, reply))


def _request(state: RunState, choice: ModelChoice, history: tuple[Message, ...]) -> Request:
    """What the model is asked, as things stand."""
    accepted = state.accepted
    assert accepted is not None
    cut_short = bool(state.failures) and state.failures[-1].reason == CUT_SHORT
    return Request(
        model=choice.name,
        instructions=accepted.instructions,
        messages=(*history, *state.conversation, *untold(state)),
        tools=accepted.tools,
        options=choice.options,
        connect=choice.patience.connect,
        stretch=2 if cut_short else 1,
    )


async def _before(means: Means, run_id: str, accepted: RunAccepted) -> tuple[Message, ...]:
    """What was said before the run: what came with the request, or else in its session."""
    if accepted.history or not accepted.session_id or accepted.recall == 0:
        return await _history(means, accepted)
    said = await means.recall.before(means.store, accepted.session_id, run_id)
    return said[-accepted.recall :] if accepted.recall else said


async def _history(means: Means, accepted: RunAccepted) -> tuple[Message, ...]:
    """The conversation that came with the request."""
    chains = [await answered(means.store.chain(ref.sha256)) for ref in accepted.history]
    return decode_history(body for chain in chains for body in chain)


async def _with_pictures(request: Request, means: Means) -> Request:
    blobs = {ref.sha256: await _blob(means, ref) for ref in pictures(request.messages)}
    return replace(request, blobs=blobs)


async def _blob(means: Means, ref: BlobRef) -> bytes:
    return await answered(means.store.blob(ref.sha256))


class _Ear:
    """Takes chunks in, has them written, and remembers what was written for the reply.

    Inside its `with` more may be held back than half a character: see `Scribe.dictate`.
    """

    def __init__(self, scribe: Scribe, step: CallModel) -> None:
        self._scribe, self._step = scribe, step
        self._texts: list[str] = []
        self._size = 0
        self._heard = False
        self._held: dict[type[Chunk], str] = {}
        self._make: dict[type[Chunk], Maker] = {
            Said: partial(_text, step.turn, step.attempt),
            Thought: partial(_reasoning, step.turn, step.attempt),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        cut = error is not None
        rests = {kind: self._scribe.end(make, cut=cut) for kind, make in self._make.items()}
        self._texts.append(rests[Said])

    async def hear(self, chunk: Chunk) -> None:
        shown = isinstance(chunk, Said | Thought) and await self._hear_text(chunk)
        if not shown and not self._heard:
            # Readers learn that the model is alive; a tool call shows nothing until it is whole.
            turn, attempt = self._step.turn, self._step.attempt
            one_piece = isinstance(chunk, Unstreamed)
            heard = ModelHeard(turn=turn, attempt=attempt, unstreamed=one_piece)
            await self._scribe.record(heard)
        self._heard = not isinstance(chunk, Unstreamed)

    async def _hear_text(self, chunk: Said | Thought) -> str:
        kind = type(chunk)
        whole, self._held[kind] = mend(self._held.get(kind, "") + chunk.text)
        if lone(whole) is not None:
            raise BadReply("the model sent half a character")
        self._count(len(whole))
        if chunk.last:
            shown = self._scribe.gather(self._make[kind], whole)
        else:
            shown = await self._scribe.dictate(self._make[kind], whole) if whole else ""
        if isinstance(chunk, Said):
            self._texts.append(shown)
        return shown

    def reply(self, done: Done, means: Means, *, seconds: float) -> ModelReplied:
        if any(self._held.values()):
            raise BadReply("the model ended in the middle of a character")
        if len(done.calls) > MOST_CALLS:
            count = len(done.calls)
            raise BadReply(f"the model asked for {count} calls at once; {MOST_CALLS} is the limit")
        for asked in done.calls:
            self._count(len(asked.tool) + len(asked.arguments) + len(asked.model_id or ""))
        for thought in done.reasoning:
            self._count(len(thought.text) + len(thought.seal))
        reply = ModelReplied(
            turn=self._step.turn,
            attempt=self._step.attempt,
            text="".join(self._texts),
            reasoning=done.reasoning,
            calls=review_all(done.calls, self._scribe.state, means),
            stop=done.stop,
            usage=done.usage,
            seconds=seconds,
            model=done.model,
        )
        try:
            encode(reply)
        except InvalidRequest as error:
            raise BadReply(f"the model's reply cannot be kept: {error}") from error
        return reply

    def _count(self, characters: int) -> None:
        self._size += characters
        if self._size > MOST_TEXT:
            raise BadReply(
                f"the model's reply is longer than {MOST_TEXT} characters", reason="too_large"
            )


def _text(turn: int, attempt: int, text: str) -> TextStreamed:
    return TextStreamed(turn=turn, attempt=attempt, text=text)


def _reasoning(turn: int, attempt: int, text: str) -> ReasoningStreamed:
    return ReasoningStreamed(turn=turn, attempt=attempt, text=text)
