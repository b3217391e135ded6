"""Being told by a server that there is news of a run, without asking again and again."""

from __future__ import annotations

from urllib.parse import SplitResult, quote

import anyio
from anyio.abc import ByteStream

from holdfast.cli.dial import Patience, dial

#: Seconds between two tries where a stream was cut off, at first and at most.
SOON = 0.05
LONGEST = 1.0

#: What is raised where a line is cut.
_CUT = (OSError, anyio.BrokenResourceError, anyio.EndOfStream)


class Bell:
    """The stream of a run's events, listened to for nothing but that there is news.

    What the news is stands in the journal, to the byte. One that breaks is as good as one that
    rings, now and then.
    """

    def __init__(
        self, server: SplitResult, key: str, run_id: str, pin: str, patience: Patience
    ) -> None:
        self._server, self._key, self._run_id, self._pin = server, key, run_id, pin
        self._patience = patience
        self._stream: ByteStream | None = None
        self._pause = SOON

    async def wait(self, after: int) -> None:
        """Until there may be something past `after`."""
        try:
            with self._patience.wait():
                if self._stream is None:
                    # What comes along with the head of the answer may be news already.
                    await self._open(after)
                else:
                    await self._stream.receive()
                    self._pause = SOON
        except _CUT:
            await self.hang_up()
            await anyio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST)

    async def _open(self, after: int) -> None:
        server = self._server
        request = (
            f"GET {server.path.rstrip('/')}/v1/runs/{quote(self._run_id, safe='')}/events HTTP/1.1",
            f"Host: {server.netloc.rpartition('@')[2]}",
            *([f"Authorization: Bearer {self._key}"] if self._key else ()),
            f"Last-Event-ID: {after}",
        )
        self._stream = await dial(server, self._pin)
        await self._stream.send("\r\n".join((*request, "", "")).encode())
        await self._stream.receive()

    async def hang_up(self) -> None:
        if self._stream is not None:
            await anyio.aclose_forcefully(self._stream)
        self._stream = None
