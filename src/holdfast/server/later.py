"""An app that is loaded when it is needed, or when there is time for it.

The framework of the routes takes as long to load as all the rest of a server. Who starts a server
waits for what every run needs, and nobody waits for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread

from holdfast.server.guard import App
from holdfast.server.streams import Receive, Scope, Send


class Later:
    """`make` is called once, in a thread, so that nobody else has to wait for it."""

    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._app: App | None = None
        self._one = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self.load()
        await app(scope, receive, send)

    async def load(self) -> App:
        async with self._one:
            if self._app is None:
                self._app = await anyio.to_thread.run_sync(self._make)
            return self._app
