"""A server that is a process of its own, a model for it, and clients that read with care."""

import json
import socket
import struct
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path

import aiohttp
import anyio

from tests.server.conftest import Server

#: What a client meets when the server goes away in the middle of something.
CUT = (aiohttp.ClientError, ConnectionError, TimeoutError)

#: How Linux says that a line is over.
_TCP_CLOSE = b"\x07"


@asynccontextmanager
async def serving(folder, config_text, **options):
    """One that is ready, and gone at the end whatever happened to it."""
    server = Server(folder)
    try:
        async with server.calling():
            await server.start(config_text, **options)
            # The first who asks for a route waits until all are loaded, and what expires does not.
            await server.get("/v1/capabilities")
            yield server
    finally:
        server.kill()


def model_at(endpoint, **more):
    """A configuration whose one model is there; a table for each further word."""
    tables = "".join(f"\n[{name}]\n{lines}\n" for name, lines in more.items())
    return (
        f'[models.main]\nwire = "openai-chat"\nmodel = "m"\nbase_url = "{endpoint.url}"\n{tables}'
    )


def asked(request):
    """The last thing that a model was asked, as text."""
    return json.dumps(request.body["messages"][-1])


async def hang_up_hard(response):
    """The other side sees a line that breaks, and no end of it. Returns that nothing more is read."""
    # What was read to its end is not on a line any more.
    if response.connection:
        transport = response.connection.transport
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return True


def is_cut(response):
    """Whether the other side has hung up, seen without taking anything that it sent."""
    line = response.connection.transport.get_extra_info("socket")
    return line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == _TCP_CLOSE


class Careful:
    """A reader that keeps its place and takes back what it is told to.

    `text` is what it shows, `ids` are the frames it got in the order they came, `cuts` how often
    the line broke. One that is to `keep` them has what each said in `told`, by its id.
    """

    def __init__(self, server, run_id, *, keep=False):
        self._server, self.run_id, self._keep = server, run_id, keep
        self.ids, self.end, self.cuts, self.told = [], None, 0, {}
        self._said = {}

    @property
    def text(self):
        return "".join("".join(words) for words in self._said.values())

    async def read_to_the_end(self, **first):
        """`first` is how it is read as long as the first line holds."""
        while self.end is None:
            try:
                await self.read(**first)
            except CUT:
                self.cuts += 1
                await anyio.sleep(0.02)
            first = {}

    async def read(self, *, most=inf, then=hang_up_hard):
        """As far as the line holds, or so many frames of it; `then` is called with the line."""
        last, most = self.ids[-1] if self.ids else None, len(self.ids) + most
        async with self._server.follow(self.run_id, last_event_id=last) as events:
            early = []
            async for frame in events:
                early.append(frame)
                # A frame without an id belongs to the next one that has it.
                if frame.id is not None:
                    for each in early:
                        self._take(each)
                    early = []
                    self.ids.append(frame.id)
                    if self._keep:
                        self.told[frame.id] = frame.data
                if len(self.ids) == most and await then(events.response):
                    return

    def _take(self, frame):
        match frame.event:
            case "message.delta" if frame.id is not None:
                key = frame.data["turn"], frame.data["attempt"]
                self._said.setdefault(key, []).append(frame.data["delta"])
            case "message.retracted":
                self._said.pop((frame.data["turn"], frame.data["attempt"]), None)
            case "run.completed" | "run.failed" | "run.cancelled":
                self.end = frame.data


@contextmanager
def staring(server, run_id):
    """Somebody who asks for a run's events, and takes none of them."""
    port = int(server.url.rpartition(":")[2])
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", port))
        head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        line.sendall(f"{head}Authorization: Bearer {server.key}\r\n\r\n".encode())
        yield line


def threads(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def resident(pid):
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def open_sockets(pid):
    """How many a process has. Its files are its store's, which opens a few more when it likes."""
    links = Path(f"/proc/{pid}/fd").iterdir()
    return sum(_target(link).startswith("socket:") for link in links)


def _target(link):
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed while we were looking
