"""A server somewhere, talked to as if the runs were here.

By http.client, which is loaded in no time; a command is not a place to wait for a library.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import time  # noqa: TID251 - what people are shown is measured by it
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from holdfast.core.codec import recall
from holdfast.core.events import FINAL, Choice, Recorded
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

#: Seconds for an answer, and between two looks for news: sooner while there is some.
PATIENCE = 30.0
LOOK = 0.05
LONGEST = 1.0


class Far:
    """`key` is what the server wants to see."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url is {url}; it must be an address as http://127.0.0.1:8642")
        self._url, self._parts, self._key = url, parts, key

    # --- what is asked

    def submit(self, prompt: str, *, model: str, approval: str) -> str:
        body = {"input": prompt, "approval": approval, **({"model": model} if model else {})}
        return str(self._ask("POST", "/v1/runs", body)["run_id"])

    def journal(self, run_id: str, after: int = 0) -> list[Recorded]:
        lines = self._ask("GET", f"/v1/runs/{run_id}/journal?after={after}")["data"]
        return [
            recall(line["seq"], line["at"], json.dumps(line["event"]).encode()) for line in lines
        ]

    def find(self, word: str) -> str:
        """The run that is meant by the beginning of its id. Raises NotFound or InvalidRequest."""
        after, found = "", list[str]()
        while True:
            page = self._ask("GET", f"/v1/runs?limit=100&after={after}")
            ids = [one["run_id"] for one in page["data"]]
            found += [id for id in ids if id.startswith((word, f"run_{word}"))]
            after = page["next"]
            if not after:
                break
        if len(found) != 1:
            if found:
                raise InvalidRequest(f"{word} could be {' or '.join(found[:3])}; type more of it")
            raise NotFound("run", word)
        return found[0]

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._key}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        connection = self._connect()
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, data, headers)
            answer = connection.getresponse()
            told = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StoreUnavailable(f"the server at {self._url} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise _refused(answer.status, told, path)
        return dict(told)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=PATIENCE)
        trust = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=trust)

    # --- as an attendant wants it

    #: What is wrong here is told by what is asked.
    trouble: HoldfastError | None = None
    full = False

    def clock(self) -> float:
        return time()

    def has(self, _kind: str, _name: str) -> bool:
        """What is missing there may well come while we wait."""
        return True

    async def read(self, run_id: str) -> Sequence[Recorded]:
        return await anyio.to_thread.run_sync(self.journal, run_id)

    async def state(self, run_id: str) -> RunState:
        return replay(await self.read(run_id))

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        pause = LOOK
        while True:
            for recorded in await anyio.to_thread.run_sync(self.journal, run_id, after):
                after, pause = recorded.seq, LOOK
                yield recorded
                if isinstance(recorded.event, FINAL):
                    return
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST)

    async def stop(self, run_id: str, *, by: str = "", reason: str = "") -> None:
        path, body = f"/v1/runs/{run_id}/stop", {"reason": reason or by}
        await anyio.to_thread.run_sync(self._ask, "POST", path, body)

    async def answer(
        self,
        run_id: str,
        choice: Choice,
        *,
        approval_id: str = "",
        by: str = "",  # noqa: ARG002 (the key says who)
    ) -> tuple[str, ...]:
        path, body = f"/v1/runs/{run_id}/approval", {"choice": choice, "approval_id": approval_id}
        told = await anyio.to_thread.run_sync(self._ask, "POST", path, body)
        return tuple(told["approval_ids"])


def far(url: str, folder: Path) -> Far:
    """The server at this address, with the key that the environment or the data directory has."""
    from holdfast.config import read_key

    return Far(url, read_key(folder))


def _refused(status: int, told: dict[str, Any], path: str) -> HoldfastError:
    error = told.get("error") or {}
    message, code = str(error.get("message") or f"it answered {status}"), error.get("code")
    run_id = path.split("/")[3] if path.count("/") > 2 else ""
    match status, code:
        case 401, _:
            return ConfigError("the server does not know the key; set HOLDFAST_API_KEY to its own")
        case _, "run_not_found":
            return NotFound("run", run_id)
        case _, "run_ended":
            return RunFinished(run_id)
        case 409, _:
            return Conflict(message)
        case _ if status >= 500:
            return StoreUnavailable(message)
        case _:
            return InvalidRequest(message)
