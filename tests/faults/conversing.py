"""Conversations on a server that is killed: `python -m tests.faults.conversing SEED KILLS FOLDER`.

It loads everything once, and a nursery that was forked off before anything began forks a server for
each life. People keep three sessions going over HTTP: they say things, put what waits in other words,
take it back, steer, interrupt, answer what they are asked, and remember what they were told. Two readers
follow each session. The server is killed at random moments; after each death, and again when it
is back, every session is read and held against all that was ever seen of it, see `conversed`.
Prints what happened, and how often.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import anyio

from holdfast.config import read_settings
from holdfast.core.messages import AssistantMessage, UserMessage
from holdfast.host import serve
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from tests.faults.conversed import (
    check,
    check_end,
    check_file,
    check_heard,
    reply_words,
    shelf,
    where,
    write_line,
)
from tests.faults.killed import be_born
from tests.faults.serving import CUT

#: Sessions that are kept going at a time, and deaths they live through before others begin.
SESSIONS, DEATHS = 3, 12

#: Readers of each session.
READERS = 2

#: Seconds after it was ready, or after its birth, at which a server is killed, at most.
LONGEST, LONGEST_BIRTH = 1.5, 0.15

#: Seconds for what must happen soon.
PATIENCE = 60

#: How much of what was said lately, and is known to have been taken in, is sent again.
AGAIN, LATELY = 0.2, 10

#: Messages that wait in a session before people have patience.
MOST_WAITING = 3

#: What people are told who come too late.
TOO_LATE = frozenset(
    {"run_begun", "run_ended", "run_stopping", "run_not_accepting_steer", "message_not_found"}
)

#: What people do, and how often.
ACTS = {"say": 6, "edit": 4, "remove": 2, "steer": 4, "answer": 8, "stop": 0.5, "read": 2}

CONFIG = """
[models.script]
wire = "demo"
[tools]
terminal = false
"""


# --- the server ---------------------------------------------------------------------------


async def be_served(folder, pipe):
    """In a child: a server with a model and tools of ours."""
    model = ScriptedModel()
    model._choose = partial(choose, folder)
    tools = (
        ScriptedTool("look", work=partial(act, folder), writes=False, repeatable=True),
        ScriptedTool("pay", work=partial(act, folder), review=Review(gate="ask")),
    )
    settings = read_settings(
        port="0", data=str(folder / "data"), config=str(folder / "holdfast.toml")
    )
    await serve(
        settings,
        lambda address: os.write(pipe, b"open %b\n" % address.encode()),
        models={settings.default_model: model},
        tools=tools,
    )


def choose(folder, request):
    """What the model says follows from what it was shown, which it writes down first."""
    shown = [line for message in request.messages for line in shown_lines(message)]
    write_line(folder / "shown", json.dumps(shown))
    label, tools, turn = where(shown)
    said = [step for word in reply_words(shown) for step in (word, Silence(0.01))]
    if turn < len(tools):
        said.append(Call(tools[turn], json.dumps({"n": f"{label}.{turn}"})))
    return said


def shown_lines(message):
    if isinstance(message, UserMessage):
        return [("user", part.text) for part in message.parts]
    if isinstance(message, AssistantMessage):
        return [("model", message.text)]
    return [("tool", message.output)]


async def act(folder, use):
    write_line(folder / "effects", f"{use.effect_id} {use.arguments}")
    await anyio.sleep(0.06)
    return f"done {use.arguments}"


# --- the nursery --------------------------------------------------------------------------


class Nursery:
    """Forks servers from a process that has done nothing else yet, and tells how they ended."""

    def __init__(self, folder):
        self._orders, theirs = os.pipe(), os.pipe()
        self._news = theirs[0]
        if not (child := os.fork()):
            self._breed(folder, self._orders[0], theirs[1])
        self.pid, self._child = child, 0
        os.close(self._orders[0])
        os.close(theirs[1])

    def _breed(self, folder, orders, news):
        os.close(self._orders[1])
        while os.read(orders, 1):
            if not (child := os.fork()):
                be_born(partial(be_served, folder), news)
            os.write(news, b"born %d\n" % child)
            dead = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            os.write(news, b"dead %d\n" % dead.si_status)
            # As long as it is not buried, nobody else can have its number.
            os.read(orders, 1)
            os.waitpid(child, 0)
        os._exit(0)

    @asynccontextmanager
    async def server(self):
        """One that has been born, and is dead at the end."""
        os.write(self._orders[1], b".")
        self._child = int(await self.hear("born"))
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                self.kill()
                status = int(await self.hear("dead"))
                os.write(self._orders[1], b".")
            assert status == signal.SIGKILL, f"it died by itself: {status}"

    def kill(self):
        os.kill(self._child, signal.SIGKILL)

    async def hear(self, word):
        """What comes with this word. What comes before it is not waited for."""
        said = b""
        with anyio.fail_after(PATIENCE):
            while not (said.startswith(word.encode()) and said.endswith(b"\n")):
                await anyio.wait_readable(self._news)
                said = (b"" if said.endswith(b"\n") else said) + os.read(self._news, 1)
        return said.decode().removeprefix(word)

    def close(self):
        os.close(self._orders[1])
        os.waitpid(self.pid, 0)
        os.close(self._news)


# --- people -------------------------------------------------------------------------------


class Cut(Exception):
    """The server went away before it answered."""


@dataclass
class Message:
    """What somebody said. `may_be` are all the words it may have by now, the last told ones first.

    `removal` and `sent` are "no", "asked" (and nobody knows), or "yes".
    """

    id: str
    may_be: list[str]
    sent: str = "asked"
    removal: str = "no"
    steered: bool = False
    run_id: str = ""
    #: What is to become of it while a run is under way; "" if it was said to a run.
    busy: str = ""

    def __post_init__(self):
        self.first = self.may_be[0]


@dataclass
class Session:
    id: str
    messages: list[Message] = field(default_factory=list)
    answers: dict = field(default_factory=dict)
    #: What was seen last of each entry, and how often its turn had been taken back by then.
    seen: dict = field(default_factory=dict)
    readers: list = field(default_factory=list)

    @property
    def own(self):
        """Those that are runs of their own, or may be."""
        return [message for message in self.messages if not message.steered]


class People:
    def __init__(self, folder, chance, tally):
        self.folder, self.chance, self.tally = folder, chance, tally
        self.sessions = []
        self._http = self._url = None
        self._count = 0
        #: Set when it is a good moment for the server to die.
        self.moment = anyio.Event()

    def begin(self, number):
        self.sessions = [Session(f"ses_{number}_{n}") for n in range(SESSIONS)]
        for session in self.sessions:
            session.readers = [Reader(session.id) for _ in range(READERS)]

    @asynccontextmanager
    async def calling(self, url):
        """A server is there, at this address."""
        self._url, self.moment = url.strip(), anyio.Event()
        key = (self.folder / "data" / "api_key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers) as self._http:
            yield

    async def ask(self, method, path, body=None, **headers):
        """The status and what was said. Raises Cut."""
        try:
            async with self._http.request(
                method, self._url + path, json=body, headers=headers
            ) as answer:
                return answer.status, await answer.json()
        except CUT as error:
            raise Cut from error

    def open(self, path, headers):
        return self._http.get(self._url + path, headers=headers)

    async def look(self, session):
        """The transcript as the server tells it, None if there is none."""
        entries, earlier = [], ""
        while True:
            path = f"/v1/sessions/{session.id}/messages?limit=200&before={earlier}"
            status, told = await self.ask("GET", path)
            if status == 404:
                return None
            assert status == 200, told
            entries = told["data"] + entries
            earlier = told["earlier"]
            if not earlier:
                return entries

    async def read(self, session):
        """Look, with care."""
        with shelf(self.folder) as store:
            before = store.runs(session.id)
        entries = await self.look(session)
        if entries is None:
            assert not before, f"{session.id} is gone"
            return
        with shelf(self.folder) as store:
            check(session, entries, before, store.runs(session.id))
        self.tally["looks"] += 1

    def perhaps_die(self, odds):
        if self.chance.random() < odds:
            self.moment.set()

    def label(self, kind="m"):
        self._count += 1
        return f"{kind}{self._count}"

    async def talk(self, session):
        """Until the server goes away."""
        try:
            await self.send_again(session)
            while True:
                (act,) = self.chance.choices(list(ACTS), ACTS.values())
                await getattr(self, act)(session)
                await anyio.sleep(self.chance.uniform(0, 0.02))
        except Cut:
            self.tally["cut_off"] += 1

    async def send_again(self, session):
        """What nobody knows to have been taken in is sent again, and now and then what they do."""
        for message in [m for m in session.messages[-LATELY:] if m.busy]:
            if message.sent == "asked" or self.chance.random() < AGAIN:
                await self._send(session, message)

    async def say(self, session):
        status, told = await self.ask("GET", f"/v1/sessions/{session.id}/queue")
        if status == 200 and len(told["data"]) >= MOST_WAITING:
            return
        tools = self.chance.choices(["look", "pay"], [1, 2], k=self.chance.randrange(3))
        id = self.label()
        message = Message(id, [" ".join((id, *tools))])
        busy = ["queue", "interrupt", "reject", "steer"]
        message.busy = self.chance.choices(busy, [8, 1, 1, 2])[0]
        session.messages.append(message)
        await self._send(session, message)

    async def _send(self, session, message):
        body = {"input": message.first, "message_id": message.id, "on_busy": message.busy}
        body["session_id"] = session.id
        self.perhaps_die(0.04)
        status, told = await self.ask("POST", "/v1/runs", body, **{"Idempotency-Key": message.id})
        if status == 409:
            assert told["error"]["code"] == "session_busy", told
            session.messages.remove(message)
            self.tally["rejected"] += 1
            return
        assert status == 202, told
        assert message.sent == "asked" or told["run_id"] == message.run_id, (told, message)
        message.sent, message.run_id = "yes", told["run_id"]
        message.steered = told["status"] == "steered"
        self.tally["said_again" if told["replayed"] else f"said_{told['status']}"] += 1

    def _waiting(self, session):
        """A message that may still wait."""
        told = [m for m in session.own[-MOST_WAITING:] if m.sent == "yes" and m.removal == "no"]
        return self.chance.choice(told) if told else None

    async def edit(self, session):
        if message := self._waiting(session):
            text = f"{message.id}.{self.label('e')} {self.chance.choice(['', 'look', 'pay'])}"
            message.may_be.append(text)
            path = f"/v1/sessions/{session.id}/queue/{message.id}"
            status, told = await self.ask("PATCH", path, {"input": text})
            if status == 200:
                message.may_be = [text]
                self.tally["edited"] += 1
            else:
                assert told["error"]["code"] in TOO_LATE, told
                message.may_be.remove(text)

    async def remove(self, session):
        if message := self._waiting(session):
            message.removal = "asked"
            path = f"/v1/sessions/{session.id}/queue/{message.id}"
            status, told = await self.ask("DELETE", path)
            assert status == 200 or told["error"]["code"] in TOO_LATE, told
            message.removal = "yes" if status == 200 else "no"
            self.tally["removed"] += status == 200

    async def steer(self, session):
        if session.own and (run_id := session.own[-1].run_id):
            id = self.label("s")
            message = Message(id, [f"{id} and mind this"], steered=True, run_id=run_id)
            session.messages.append(message)
            body = {"input": message.may_be[0], "message_id": id}
            status, told = await self.ask("POST", f"/v1/runs/{run_id}/steer", body)
            assert status == 200 or told["error"]["code"] in TOO_LATE, told
            message.sent = "yes" if status == 200 else "no"
            self.tally["steered"] += status == 200

    async def answer(self, session):
        """Whatever is asked, now and then by two at once."""
        for one in await self.look(session) or ():
            if one["kind"] == "approval" and one.get("state", "pending") == "pending":
                async with anyio.create_task_group() as tasks:
                    for choice in self.chance.sample(
                        ["once", "deny"], k=self.chance.choice([1, 2])
                    ):
                        tasks.start_soon(self._answer, session, one, choice)

    async def _answer(self, session, asked, choice):
        known = session.answers.setdefault(asked["id"], {"yes": [], "asked": []})
        known["asked"].append(choice)
        try:
            body = {"choice": choice, "approval_id": asked["id"]}
            status, _ = await self.ask("POST", f"/v1/runs/{asked['run_id']}/approval", body)
        except Cut:
            return  # nobody knows
        known["asked"].remove(choice)
        if status == 200:
            known["yes"].append(choice)
            self.tally["answered"] += 1
            # What was allowed is under way.
            self.perhaps_die(0.2)

    async def stop(self, session):
        if session.own and (run_id := session.own[-1].run_id):
            status, told = await self.ask("POST", f"/v1/runs/{run_id}/stop")
            self.tally["stopped"] += status == 200 and told["status"] == "stopping"


# --- readers ------------------------------------------------------------------------------


class Reader:
    """Somebody who follows a session over all its deaths. `frames` are those it has got for good."""

    def __init__(self, session_id):
        self.session_id = session_id
        self.ids, self.frames = [], []

    async def follow(self, people):
        """As long as the line holds."""
        path = f"/v1/sessions/{self.session_id}/events"
        try:
            while True:
                headers = {"Last-Event-ID": self.ids[-1]} if self.ids else {}
                async with people.open(path, headers) as answer:
                    if answer.status == 200:
                        await self._take(answer.content.iter_any())
                # Nobody has said anything yet, or a server left.
                await anyio.sleep(0.02)
        except CUT:
            people.tally["lines_cut"] += 1

    def has_heard(self, place):
        return bool(self.ids) and self.ids[-1] == place

    async def _take(self, pieces):
        """A frame without an id belongs to the next one that has it."""
        heard, early = b"", []
        async for piece in pieces:
            *blocks, heard = (heard + piece).split(b"\n\n")
            for block in blocks:
                if block.startswith(b":"):
                    continue
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
                early.append(json.loads(fields[b"data"]))
                if b"id" in fields:
                    self.ids.append(fields[b"id"].decode())
                    self.frames += early
                    early = []


# --- all of it ----------------------------------------------------------------------------


async def live(folder, nursery, people, *, seconds, early):
    """One life of the server, and what people do in it."""
    async with nursery.server():
        if early:
            await anyio.sleep(seconds * LONGEST_BIRTH / LONGEST)
            return
        async with people.calling(await nursery.hear("open")):
            for session in people.sessions:
                await people.read(session)
            async with anyio.create_task_group() as tasks:
                for session in people.sessions:
                    tasks.start_soon(people.talk, session)
                    for reader in session.readers:
                        tasks.start_soon(reader.follow, people)
                with anyio.move_on_after(seconds):
                    await people.moment.wait()
                nursery.kill()


async def settle(folder, nursery, people):
    """A life in which everything comes to its end."""
    async with nursery.server(), people.calling(await nursery.hear("open")):
        with anyio.fail_after(PATIENCE):
            for session in people.sessions:
                await people.send_again(session)
                if not session.messages:
                    # Each life was over before anybody had said a word.
                    await people.say(session)
            while not all_ended(folder, people):
                for session in people.sessions:
                    await people.answer(session)
                await anyio.sleep(0.02)
        for session in people.sessions:
            await people.read(session)
            await catch_up(folder, people, session)


async def catch_up(folder, people, session):
    """Everybody hears the rest, and somebody who comes only now hears all of it."""
    with shelf(folder) as store:
        end = store.end(session.id)
    late = Reader(session.id)
    for reader in (*session.readers, late):
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.follow, people)
                while not reader.has_heard(end):
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
    check_heard(session, late)
    people.tally["frames"] += sum(len(reader.frames) for reader in session.readers)


def all_ended(folder, people):
    with shelf(folder) as store:
        return all(
            place == "ended"
            for session in people.sessions
            for _, place, _ in store.runs(session.id)
        )


async def converse(folder, nursery, seed, kills):
    tally, chance = Counter(), random.Random(seed)
    people = People(folder, chance, tally)
    number = 0
    while tally["kills"] < kills:
        number += 1
        people.begin(number)
        for _ in range(min(DEATHS, kills - tally["kills"])):
            seconds, early = chance.uniform(0, LONGEST), chance.random() < 0.2
            await live(folder, nursery, people, seconds=seconds, early=early)
            tally["kills"] += 1
            await check_file(folder, people)
        await settle(folder, nursery, people)
        await check_file(folder, people)
        check_end(folder, people)
        tally["sessions"] += len(people.sessions)
    return tally


def main(seed, kills, folder):
    (folder / "holdfast.toml").write_text(CONFIG)
    nursery = Nursery(folder)
    try:
        tally = anyio.run(converse, folder, nursery, seed, kills)
    finally:
        nursery.close()
    json.dump(tally, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
