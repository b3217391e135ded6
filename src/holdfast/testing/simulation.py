"""A world of workers, people and misfortune, in virtual time, from one seed.

    world = World(seed=7)
    await world.live()      # raises AssertionError, naming the seed, if a promise is broken

One store, a few workers, many runs. A nemesis crashes, cuts off and slows workers, fills
the store and moves the clock; models stall, break and misbehave; people stop, answer twice, answer
late and change their minds. When it is over every journal is held against what everyone
was promised and what was really done. Run it on VirtualTimeLoop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from random import Random

import anyio

from holdfast.calls.tasks import task_group
from holdfast.core.events import (
    FINAL,
    ApprovalAnswered,
    ApprovalRequested,
    Choice,
    Event,
    ModelChoice,
    ModelReplied,
    ModelRetracted,
    Recorded,
    RunAccepted,
    RunStarted,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    Unknown,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Chunk,
    Done,
    Heard,
    Request,
    Said,
    Text,
    Thought,
    ToolCall,
    UserMessage,
)
from holdfast.core.run import effect, replay
from holdfast.core.watchdog import Patience
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.worker import Worker
from holdfast.errors import Conflict, ModelRefused, ModelUnavailable, NotFound, ToolError
from holdfast.ports import Review, ToolUse
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Crash, FaultyStore, MortalTool
from holdfast.testing.scripted import ScriptedTool

#: Virtual seconds after which a run that has not ended is said to hang.
FOR_EVER = 100_000.0

#: Virtual seconds between two blows of the nemesis, on average, and how long it goes on.
BLOWS = 20.0
STORM = 300.0


@dataclass
class Story:
    """One run as the people around it lived it."""

    seen: list[Recorded] = field(default_factory=list)
    stopped: bool = False
    told: list[str] = field(default_factory=list)


class World:
    def __init__(self, seed: int, *, runs: int = 50, workers: int = 3) -> None:
        self.seed = seed
        self._random = Random(seed)
        self._skew = 0.0
        self._count = 0
        self.store = MemoryStore(now=self._clock)
        self._pay = ScriptedTool("pay", work=self._work, review=_price)
        self._look = ScriptedTool(
            "look", work=self._work, writes=False, repeatable=True, parallel=True
        )
        self._lines = [FaultyStore(self.store) for _ in range(workers)]
        self._people = runs
        self._door = Runs(self._means(FaultyStore(self.store)))
        self.stories: dict[str, Story] = {}

    async def live(self) -> None:
        """Let everything happen, then check what was promised."""
        with anyio.move_on_after(FOR_EVER) as time:
            async with task_group() as world:
                for place in range(len(self._lines)):
                    world.start_soon(self._host, place)
                world.start_soon(self._nemesis)
                async with task_group() as people:
                    for number in range(self._people):
                        people.start_soon(self._person, f"run_{number}")
                world.cancel_scope.cancel()
        if time.cancelled_caught:
            stuck = [id for id, story in self.stories.items() if not _ended(story.seen)]
            raise AssertionError(f"seed {self.seed}: these runs never ended: {stuck}")
        await self.check()

    async def check(self) -> None:
        """Hold every journal against what was promised and what was really done."""
        effects = Counter((*self._pay.effects, *self._look.effects))
        for run_id, story in self.stories.items():
            journal = list(await self.store.read(run_id))
            try:
                check(journal, story, effects)
            except AssertionError as broken:
                raise AssertionError(f"seed {self.seed}, {run_id}: {broken}") from broken

    # --- workers and what befalls them

    async def _host(self, place: int) -> None:
        """A machine whose worker is started again whenever it is gone."""
        while True:
            line = self._lines[place] = FaultyStore(self.store)
            worker = Worker(self._means(line), name=self._name("worker"), ttl=10.0)
            with anyio.CancelScope() as life:
                line.on_death = life.cancel
                try:
                    await worker.run()
                except Crash:
                    pass
            await anyio.sleep(self._random.uniform(0.1, 30.0))

    async def _nemesis(self) -> None:
        while anyio.current_time() < STORM:
            await anyio.sleep(self._random.expovariate(1 / BLOWS))
            line = self._random.choice(self._lines)
            match self._random.randrange(7):
                case 0 | 1:
                    line.die()
                case 2:
                    line.cut = True
                case 3:
                    line.delay = self._random.uniform(0.0, 4.0)
                case 4:
                    line.full = True
                case 5:
                    line.down = True
                case 6:
                    self._skew += self._random.uniform(-86400.0, 86400.0)
            if self._random.random() < 0.5:
                self._mend()
        self._mend()

    def _mend(self) -> None:
        for line in self._lines:
            line.cut, line.full, line.down, line.delay = False, False, False, 0.0

    def _means(self, line: FaultyStore) -> Means:
        return Means(
            store=line,
            models={"first": self, "second": self},
            tools={
                "pay": MortalTool(self._pay, line),
                "look": MortalTool(self._look, line),
            },
            clock=self._clock,
            new_id=self._name,
        )

    def _clock(self) -> float:
        return 1e9 + self._skew + anyio.current_time()

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    # --- models and tools

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """A model on an ordinary bad day."""
        chance = self._random.random()
        if chance < 0.05:
            await anyio.sleep_forever()
        if chance < 0.4:
            yield Heard()
        for _ in range(self._random.randrange(3)):
            if self._random.random() < 0.3:
                await anyio.sleep(1.5)
            yield self._random.choice((Said, Thought))(self._name("word") + " ")
        if chance < 0.10:
            await anyio.sleep_forever()
        if chance < 0.15:
            raise ModelUnavailable("the line broke", reason="reset")
        if chance < 0.16:
            raise ModelRefused("there is no such model", status=404)
        if chance >= 0.20:
            yield Calling()
            yield Done(calls=self._wanted(request))

    def _wanted(self, request: Request) -> tuple[Asked, ...]:
        replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if replies >= self._random.choice((1, 2, 3)):
            return ()
        tools = ("pay", "look", "look", "pay", "fly")
        return tuple(
            Asked(
                tool=self._random.choice(tools),
                arguments=self._random.choice(('{"euro":1}', '{"euro":2}', '{ "euro": 2 }', "{")),
                model_id="call_0",
            )
            for _ in range(self._random.choice((0, 1, 1, 2, 3)))
        )

    async def _work(self, use: ToolUse) -> str:
        await anyio.sleep(self._random.choice((0.0, 0.5, 20.0)))
        if self._random.random() < 0.1:
            raise ToolError("it did not work")
        if self._random.random() < 0.3:
            await use.progress("half-way\n")
        return "done"

    # --- people

    async def _person(self, run_id: str) -> None:
        await anyio.sleep(self._random.uniform(0.0, STORM / 2))
        story = self.stories[run_id] = Story()
        await self._door.accept(self._order(), run_id=run_id)
        async with task_group() as hands:
            if self._random.random() < 0.3:
                hands.start_soon(self._stop, run_id, story)
            if self._random.random() < 0.3:
                hands.start_soon(self._add, run_id, story)
            async for recorded in self._door.follow(run_id):
                story.seen.append(recorded)
                if isinstance(recorded.event, ApprovalRequested):
                    hands.start_soon(self._answer, run_id, recorded.event.approval_id)

    def _order(self) -> RunAccepted:
        patience = Patience(first=20.0, between=20.0, whole=120.0)
        return RunAccepted(
            input=(Text("do something"),),
            models=(
                ModelChoice("first", patience=patience),
                ModelChoice("second", patience=patience),
            ),
            tools=(self._pay.spec, self._look.spec),
            approval_timeout=200.0,
        )

    async def _stop(self, run_id: str, story: Story) -> None:
        await anyio.sleep(self._random.expovariate(1 / 60.0))
        for _ in range(self._random.randrange(1, 3)):
            try:
                await self._door.stop(run_id, by="someone")
            except Conflict:
                return
            story.stopped = True

    async def _add(self, run_id: str, story: Story) -> None:
        await anyio.sleep(self._random.expovariate(1 / 60.0))
        message = self._name("msg")
        try:
            await self._door.add(run_id, (Text("and this"),), message_id=message)
        except Conflict:
            return
        story.told.append(message)

    async def _answer(self, run_id: str, approval_id: str) -> None:
        if self._random.random() < 0.1:
            return
        choices: list[Choice] = ["once", "once", "once", "session", "always", "deny"]
        for _ in range(self._random.choice((1, 1, 2))):
            await anyio.sleep(self._random.expovariate(1 / 60.0))
            try:
                await self._door.answer(
                    run_id, self._random.choice(choices), approval_id=approval_id, by="someone"
                )
            except (Conflict, NotFound):
                return


def _price(arguments: str) -> Review:
    """Two euros need a yes."""
    return Review(gate="ask" if "2" in arguments else "auto", reason="money", key=arguments)


# --- what was promised -------------------------------------------------------------------


def check(journal: list[Recorded], story: Story, effects: Counter[str]) -> None:
    """Hold one journal against what people saw and what was really done."""
    events = [recorded.event for recorded in journal]
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1)), "gaps"
    assert story.seen == journal, "a follower saw something else than the journal"
    assert [isinstance(event, FINAL) for event in events].count(True) == 1, "not one end"
    assert _ended(journal), "something after the end"
    state = replay(journal)
    assert state == replay(journal), "two replays differ"
    epochs = [event.epoch for event in events if isinstance(event, RunStarted)]
    assert epochs == sorted(set(epochs)), "a worker came back with an old epoch"
    assert not story.stopped or state.status is Status.CANCELLED, "stopped, yet not cancelled"
    shown = {message.id for message in state.conversation if isinstance(message, UserMessage)}
    if state.status is Status.COMPLETED:
        assert set(story.told) <= shown, "an accepted message was never shown to the model"
    _check_words(journal)
    _check_effects(events, effects)


def _ended(journal: list[Recorded]) -> bool:
    return bool(journal) and isinstance(journal[-1].event, FINAL)


def _check_words(journal: list[Recorded]) -> None:
    """A viewer who forgets what is retracted sees each reply once, and exactly."""
    words: list[tuple[int, str]] = []
    for recorded in journal:
        match recorded.event:
            case TextStreamed(text=text):
                words.append((recorded.seq, text))
            case ModelRetracted(after=after):
                words = [(seq, text) for seq, text in words if seq <= after]
            case ModelReplied(text=text):
                assert "".join(word for _, word in words) == text, "the words do not add up"
                words = []
            case _:
                pass


def _check_effects(events: list[Event | Unknown], effects: Counter[str]) -> None:
    """No call took effect unasked, after a stop, or more often than it may."""
    ledger = _Ledger()
    for event in events:
        ledger.enter(event)
    for id, call in ledger.calls.items():
        starts = ledger.starts[id]
        assert effects[id] <= starts, f"{id} took effect without a start, or after a stop"
        assert starts <= (3 if call.tool == "look" else 1), f"{id} was started too often"


class _Ledger:
    """Who was asked what, and what was started, kept without the help of `fold`."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.starts: Counter[str] = Counter()
        self._asked: dict[str, str] = {}
        self._allowed: set[str] = set()
        self._granted: set[str] = set()
        self._doubtful: set[str] = set()
        self._stopped = False

    def enter(self, event: Event | Unknown) -> None:
        if self._stopped:
            return
        match event:
            case ModelReplied(calls=new):
                self.calls |= {call.id: call for call in new}
            case ApprovalRequested(approval_id=approval, call_id=id):
                self._asked[approval] = id
            case ApprovalAnswered(approval_id=approval, choice=choice) if approval in self._asked:
                self._answer(self._asked.pop(approval), choice)
            case StopRequested():
                self._stopped = True
            case ToolFinished(call_id=id, outcome="unknown") if self.calls[id].tool == "pay":
                self._doubtful.add(effect(self.calls[id]))
            case ToolStarted(call_id=id):
                self._start(id, self.calls[id])
            case _:
                pass

    def _answer(self, id: str, choice: Choice) -> None:
        if choice != "deny":
            self._allowed.add(id)
        if choice in ("session", "always"):
            self._granted.add(self.calls[id].key)

    def _start(self, id: str, call: ToolCall) -> None:
        self.starts[id] += 1
        certain = effect(call) not in self._doubtful
        unasked = call.gate == "auto" or call.key in self._granted
        assert id in self._allowed or (certain and unasked), f"{id} was started unasked"
