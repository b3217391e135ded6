"""A server somewhere, talked to as if the runs were here.

By http.client, which is loaded in no time; a command is not a place to wait for a library.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from socket import gaierror
from time import time  # noqa: TID251 - what people are shown is measured by it
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

import anyio
import msgspec

from holdfast.cli.bell import LONGEST, Bell
from holdfast.cli.dial import Patience, connect, exchange
from holdfast.cli.row import Row
from holdfast.config.addresses import web_address
from holdfast.config.tables import Setting
from holdfast.core.codec import recall
from holdfast.core.entries import Entry
from holdfast.core.events import FINAL, Choice, Recorded, RunAccepted
from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.errors import (
    ConfigError,
    Conflict,
    HoldfastError,
    InvalidRequest,
    NotFound,
    RunFinished,
    StoreUnavailable,
)

T = TypeVar("T")

#: Seconds for an answer, or for a sign of life on a stream; and for who wants to leave.
PATIENCE = 30.0
HURRY = 4.0

#: Seconds for which a server may be gone.
GONE = 60.0

#: Runs in one page, at most.
PAGE = 100

#: Entries of a transcript in one page, at most.
ENTRIES = 200

_LIVE = ("queued", "running", "waiting_for_approval", "stopping")

#: What is raised where what came is no answer.
_NO_ANSWER = (OSError, anyio.BrokenResourceError, http.client.HTTPException, ValueError)


class _Line(msgspec.Struct):
    """An event as it stands in the journal, to the byte."""

    seq: int
    at: float
    event: msgspec.Raw


class _Journal(msgspec.Struct):
    data: list[_Line]


class _Page(msgspec.Struct):
    data: list[dict[str, Any]]
    next: str


class Started(msgspec.Struct):
    run_id: str
    status: str = "started"


class _Rows(msgspec.Struct):
    data: list[Row]
    next: str


class _Messages(msgspec.Struct):
    data: list[Entry]
    earlier: str


class _Taken(msgspec.Struct):
    session_id: str
    runs: int


class _Settled(msgspec.Struct):
    approval_ids: tuple[str, ...]
    problems: tuple[str, ...] = ()


class _Refusal(msgspec.Struct):
    error: dict[str, Any]


def _say_nothing(_text: str) -> None: ...


class Far:
    """`key` is what the server wants to see. `warn` is told when a server that is followed is gone.
    `pin` is the SHA-256 of the certificate that it has to show, if that is known."""

    def __init__(self, url: str, key: str, *, pin: str = "") -> None:
        self._url, self._parts, self._key, self._pin = url, _address(url), key, pin
        self._base = self._parts.path.rstrip("/")
        self.warn: Callable[[str], None] = _say_nothing
        #: What nobody knows before the next answer has come.
        self._unknown = ""
        self._patience, self._gone = Patience(PATIENCE), inf

    @contextmanager
    def owning_up(self) -> Iterator[None]:
        """Whoever leaves by Ctrl-C in the middle of this is told what is not known then."""
        try:
            yield
        except KeyboardInterrupt:
            if self._unknown:
                print(f"! left: {self._unknown}", file=sys.stderr)
            raise

    # --- what is asked

    def submit(
        self, prompt: str, *, model: str, approval: str, session: str = "", busy: str = "queue"
    ) -> Started:
        """What became of it: the run that carries it, and whether that could begin."""
        body = {"input": prompt, "approval": approval, **({"model": model} if model else {})}
        if session:
            body |= {"session_id": session, "on_busy": busy}
        with self._in_doubt("whether the run has begun is not known"):
            return self._ask("POST", "/v1/runs", body, type=Started)

    def journal(self, run_id: str, after: int = 0) -> list[Recorded]:
        return _events(self._ask("GET", _journal_path(run_id, after), type=_Journal))

    def runs(self, *, page: int = PAGE, status: str = "") -> Iterator[dict[str, Any]]:
        """How each run stands, the newest first, asked for a page at a time."""
        after = ""
        while True:
            path = f"/v1/runs?limit={min(page, PAGE)}&after={after}&status={status}"
            told = self._ask("GET", path, type=_Page)
            yield from told.data
            if not (after := told.next):
                return

    def unfinished(self) -> list[str]:
        """Runs that have not ended, the oldest first."""
        live = [told for status in _LIVE for told in self.runs(status=status)]
        began = {told["run_id"]: told["created_at"] for told in live}
        return sorted(began, key=lambda run_id: began[run_id])

    def find(self, word: str) -> str:
        """The run that is meant by the beginning of its id. Raises NotFound or InvalidRequest."""
        whole = word if word.startswith("run_") else f"run_{word}"
        if whole == "run_":
            # What a script left empty must not mean the only one there is.
            raise NotFound("run", word)
        with suppress(NotFound):  # it may be the beginning of one
            return self._ask("GET", _path(whole), type=Started).run_id
        ids = (told["run_id"] for told in self.runs())
        return _only("run", word, [id for id in ids if id == word or id.startswith(whole)])

    # --- sessions

    def sessions(
        self, *, archived: bool | None = False, deleted: bool = False, page: int = PAGE
    ) -> Iterator[Row]:
        """How each session is, as a list goes, asked for a page at a time."""
        wanted = {None: "all", True: "true", False: "false"}[archived]
        after = ""
        while True:
            query = f"limit={min(page, PAGE)}&archived={wanted}&after={quote(after, safe='')}"
            path = f"/v1/sessions?{query}{'&deleted=true' if deleted else ''}"
            told = self._ask("GET", path, type=_Rows)
            yield from told.data
            if not (after := told.next):
                return

    def session(self, session_id: str) -> Row:
        return self._ask("GET", _session_path(session_id), type=Row)

    def messages(self, session_id: str) -> Iterator[Entry]:
        """What was said in a session, the last first, asked for a page at a time."""
        before = ""
        while True:
            path = f"{_session_path(session_id)}/messages?limit={ENTRIES}&before={before}"
            told = self._ask("GET", path, type=_Messages)
            yield from reversed(told.data)
            if not (before := told.earlier):
                return

    def find_session(self, word: str, *, deleted: bool = False) -> str:
        """The session that is meant by the beginning of its id. Raises NotFound or InvalidRequest."""
        starts = (word, f"ses_{word}") if word else ()
        for whole in starts:
            with suppress(NotFound):  # it may be the beginning of one
                return self.session(whole).session_id
        listed = list(self.sessions(archived=None))
        if deleted:
            listed += self.sessions(archived=None, deleted=True)
        for start in starts:
            if found := [row.session_id for row in listed if row.session_id.startswith(start)]:
                return _only("session", word, found)
        raise NotFound("session", word)

    def change_session(self, session_id: str, fields: object) -> None:
        self._ask("PATCH", _session_path(session_id), fields, type=Row)

    def delete_session(self, session_id: str) -> None:
        self._ask("DELETE", _session_path(session_id), type=dict[str, Any])

    def restore_session(self, session_id: str) -> None:
        self._ask("POST", f"{_session_path(session_id)}/restore", {}, type=Row)

    def export_session(self, session_id: str, format: str) -> bytes:
        return self._fetch("GET", f"{_session_path(session_id)}/export?format={format}")

    def import_session(self, body: bytes, *, as_new: bool) -> tuple[str, int]:
        path = f"/v1/sessions/import{'?as_new=true' if as_new else ''}"
        taken = self._understood(self._fetch("POST", path, body), _Taken)
        return taken.session_id, taken.runs

    # --- how it is asked

    def _ask(self, method: str, path: str, body: object = None, *, type: type[T]) -> T:
        data = None if body is None else json.dumps(body).encode()
        return self._understood(self._fetch(method, path, data), type)

    def _understood(self, told: bytes, type: type[T]) -> T:
        try:
            return msgspec.json.decode(told, type=type)
        except ValueError as error:
            raise self._silent(error) from error

    def _fetch(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = connect(self._parts, self._pin, PATIENCE)
        try:
            connection.request(method, self._base + path, body, self._headers(body))
            # Closed by itself: where the server hangs up, the connection does not do it.
            with connection.getresponse() as answer:
                told = answer.read()
        except _NO_ANSWER as error:
            raise self._silent(error) from error
        finally:
            connection.close()
        if answer.status < 400:
            return told
        raise self._refused(answer.status, told, path)

    async def _call(self, method: str, path: str, body: object = None, *, type: type[T]) -> T:
        """As `_ask`, and can be left at any moment."""
        data = None if body is None else json.dumps(body).encode()
        try:
            status, told = await exchange(
                (self._parts, self._pin),
                (method, self._base + path, self._headers(data), data or b""),
                self._patience,
            )
        except _NO_ANSWER as error:
            raise self._silent(error) from error
        if status < 400:
            return self._understood(told, type)
        raise self._refused(status, told, path)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        kind = {} if body is None else {"Content-Type": "application/json"}
        # An empty key would be a wrong one, and wrong ones are counted.
        return {**({"Authorization": f"Bearer {self._key}"} if self._key else {}), **kind}

    def _refused(self, status: int, told: bytes, path: str) -> HoldfastError:
        if status == 401 and not self._key:
            return ConfigError(
                f"the server at {self._url} wants a key, and there is none for it here; set"
                " HOLDFAST_API_KEY to its own"
            )
        return _refused(status, told, path)

    @contextmanager
    def _in_doubt(self, unknown: str) -> Iterator[None]:
        """Until there is an answer of some kind."""
        self._unknown = unknown
        try:
            yield
            self._unknown = ""
        except StoreUnavailable:
            raise
        except HoldfastError:
            self._unknown = ""
            raise

    def _silent(self, error: Exception) -> StoreUnavailable:
        why = str(error) or "it said nothing in time"
        # To who was never reached nothing was said.
        doubt = self._unknown and not isinstance(error, ConnectionRefusedError | gaierror)
        unknown = f"; {self._unknown}" if doubt else ""
        return StoreUnavailable(f"the server at {self._url} does not answer: {why}{unknown}")

    # --- as an attendant wants it

    #: What is wrong here is told by what is asked.
    trouble: HoldfastError | None = None
    full = False

    def clock(self) -> float:
        return time()

    def has(self, _kind: str, _name: str, _accepted: RunAccepted | None) -> bool:
        """What is missing there may well come while we wait."""
        return True

    async def read(self, run_id: str) -> Sequence[Recorded]:
        return await self._journal(run_id)

    async def _journal(self, run_id: str, after: int = 0) -> list[Recorded]:
        return _events(await self._call("GET", _journal_path(run_id, after), type=_Journal))

    async def state(self, run_id: str) -> RunState:
        return replay(await self.read(run_id))

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        """What is on record past `after`, and what comes, until the run has ended.

        A server that goes away is waited for: what comes then is what was missed, in order.
        """
        bell = Bell(self._parts, self._key, run_id, self._pin, self._patience)
        try:
            while True:
                for recorded in await self._news(run_id, after):
                    after = recorded.seq
                    yield recorded
                    if isinstance(recorded.event, FINAL):
                        return
                await bell.wait(after)
        finally:
            await bell.hang_up()

    async def _news(self, run_id: str, after: int) -> Sequence[Recorded]:
        """Raises StoreUnavailable once the server has been gone for too long."""
        since, told = anyio.current_time(), False
        while True:
            try:
                news = await self._journal(run_id, after)
            except StoreUnavailable as error:
                if anyio.current_time() - since >= min(GONE, self._gone):
                    raise
                if not told:
                    self.warn(f"{error}; it is asked again")
                told = True
                await anyio.sleep(LONGEST)
                continue
            if told:
                self.warn("the server answers again")
            return news

    async def stop(self, run_id: str, *, by: str = "", reason: str = "") -> None:
        body = {"reason": reason or by}
        with self._in_doubt("whether the run stops is not known"):
            await self._call("POST", f"{_path(run_id)}/stop", body, type=dict[str, Any])
        self._unknown = "the run was told to stop, and whether it has is not known"

    def hurry(self) -> None:
        """Whoever follows a run wants to leave: a server that says nothing is not waited for."""
        self._patience.shorten(HURRY)
        self._gone = HURRY

    async def answer(
        self,
        run_id: str,
        choice: Choice,
        *,
        approval_id: str = "",
        digest: str = "",
        by: str = "",  # noqa: ARG002 (the key says who)
        tell: Callable[[str], None] = _say_nothing,
    ) -> tuple[str, ...]:
        body = {"choice": choice, "approval_id": approval_id, "digest": digest}
        with self._in_doubt("whether the answer was taken is not known"):
            settled = await self._call("POST", f"{_path(run_id)}/approval", body, type=_Settled)
        for problem in settled.problems:
            tell(problem)
        return settled.approval_ids


def _address(url: str) -> SplitResult:
    setting = Setting("--url", url)
    parts = urlsplit(web_address(setting))
    if parts.port == 0:
        raise setting.wrong("an address as http://127.0.0.1:8642")
    return parts


def _only(kind: str, word: str, found: Sequence[str]) -> str:
    if len(found) > 1:
        raise InvalidRequest(f"{word} could be {' or '.join(found[:3])}; type more of it")
    if not found:
        raise NotFound(kind, word)
    return found[0]


def _path(run_id: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}"


def _journal_path(run_id: str, after: int) -> str:
    return f"{_path(run_id)}/journal?after={after}"


def _events(told: _Journal) -> list[Recorded]:
    return [recall(line.seq, line.at, bytes(line.event)) for line in told.data]


def _session_path(session_id: str) -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}"


def _refused(status: int, told: bytes, path: str) -> HoldfastError:
    try:
        error = msgspec.json.decode(told, type=_Refusal).error
    except msgspec.DecodeError:
        error = {}
    message, code = str(error.get("message") or f"the server answered {status}"), error.get("code")
    run_id = unquote(path.partition("?")[0].split("/")[3]) if path.count("/") > 2 else ""
    match status, code:
        case 401, _:
            return ConfigError("the server does not know the key; set HOLDFAST_API_KEY to its own")
        case _, "run_not_found":
            return NotFound("run", run_id)
        case _, "session_not_found":
            return NotFound("session", run_id)
        case _, "run_ended":
            return RunFinished(run_id)
        case 409, _:
            return Conflict(message)
        case _ if status >= 500:
            return StoreUnavailable(message)
        case _:
            return InvalidRequest(message)
