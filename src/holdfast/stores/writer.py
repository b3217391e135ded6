"""The one thread that writes, and commits for everyone at once.

Whatever waits when a commit is done goes into the next one, so a single writer waits for one
sync and a crowd shares it. What was asked for is answered after the commit, and so is what
followers see. A sync that failed is never tried again: nobody can tell what the disk has
kept, so nothing more is acknowledged by this process.
"""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import apsw

from holdfast.core.events import Recorded
from holdfast.errors import HoldfastError, StoreError, StoreFull, StoreUnavailable
from holdfast.stores.ledger import Ledger
from holdfast.stores.reserve import Reserve

#: Requests in one commit at most.
MOST = 1024

#: Pages of the log after which it is copied into the database: about 4 MB.
CHECKPOINT = 1000

#: Seconds between two looks at whether a full disk has room again.
LOOK = 1.0

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

#: Whatever a sync failed for, what the disk has kept is not known.
_SYNCS = frozenset({apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC})


@dataclass
class _Request:
    act: Callable[[Ledger], Any]
    reply: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """`publish` is called on the event loop after each commit with what it wrote and changed."""

    def __init__(
        self,
        open: Callable[[], tuple[apsw.Connection, Ledger]],
        reserve: Reserve,
        publish: Callable[[Sequence[tuple[str, Recorded]], Mapping[str, None]], None],
    ) -> None:
        self._open, self._reserve, self._publish = open, reserve, publish
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        # Not a pool's: this thread alone may touch the connection, for as long as it lives.
        self._thread = threading.Thread(target=self._work, name="holdfast-writer")  # noqa: TID251
        self._pages = 0
        self._looked = 0.0
        #: Why nothing is acknowledged any more, once that is so.
        self.broken: StoreError | None = None

    async def start(self) -> None:
        """Raises StoreError if the file cannot be used."""
        self._thread.start()
        try:
            await self._opened
        except BaseException:
            self._thread.join()
            raise

    async def ask(self, act: Callable[[Ledger], Any]) -> Any:
        """Have this done in the next transaction, and return what it returned once that is kept."""
        if self.broken:
            raise self.broken
        request = _Request(act, self._loop.create_future())
        self._requests.put(request)
        return await request.reply

    async def stop(self) -> None:
        """Finish what was asked for, and close the file."""
        self._requests.put(None)
        await self._closed
        self._thread.join()

    # --- in the thread

    def _work(self) -> None:
        try:
            self._db, self._ledger = self._open()
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            self._call(_settle, self._opened, None, error)
            return
        self._db.set_wal_hook(self._note_pages)
        self._ledger.full = not self._reserve.set_aside()
        self._call(_settle, self._opened, None, None)
        try:
            while self._turn():
                pass
        finally:
            try:
                self._close()
            finally:
                self._call(_settle, self._closed, None, None)

    def _turn(self) -> bool:
        """Take what waits, do it, commit, answer. False when it was the last."""
        requests, last = self._gather()
        if requests:
            self._transact(requests)
            self._call(self._deliver, requests, self._ledger.written, self._ledger.changed)
            self._ledger.begin()
        if self._pages >= CHECKPOINT and not self.broken:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return not last

    def _gather(self) -> tuple[list[_Request], bool]:
        requests: list[_Request] = []
        request = self._requests.get()
        while request is not None:
            requests.append(request)
            if len(requests) == MOST:
                return requests, False
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return requests, False
        return requests, True

    def _transact(self, requests: Sequence[_Request]) -> None:
        if self.broken:
            _fail(requests, self.broken)
            return
        if self._ledger.full:
            self._look_for_room()
        error = self._try(requests)
        if isinstance(error, StoreFull) and not self._ledger.full:
            # The reserve is there for this: once more, for what may still end.
            self._ledger.full = True
            self._reserve.give_up()
            error = self._try(requests)
        if error:
            _fail(requests, error)

    def _try(self, requests: Sequence[_Request]) -> StoreError | None:
        """One transaction for all of them; an error if it could not be kept."""
        self._ledger.begin()
        try:
            self._db.execute("begin immediate")
            for request in requests:
                request.result = request.error = None
                try:
                    request.result = request.act(self._ledger)
                except HoldfastError as error:
                    request.error = error
            self._ledger.flush()
            self._db.execute("commit")
        except apsw.Error as error:
            self._ledger.undo()
            translated = self._translate(error)
            if self._db.in_transaction:
                self._db.execute("rollback")
            return translated
        except Exception as error:  # noqa: BLE001 - a bug of ours; nobody may be left waiting
            self._ledger.undo()
            if self._db.in_transaction:
                self._db.execute("rollback")
            return self._break(error)
        self._ledger.settle()
        return None

    def _look_for_room(self) -> None:
        """Now and then, see whether the reserve can be set aside again."""
        now = monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            self._ledger.full = not self._reserve.set_aside()

    def _checkpoint(self, mode: int) -> bool:
        """Copy the log into the database. False if that was not to be."""
        try:
            self._db.wal_checkpoint(mode=mode)
            self._pages = 0
            return True
        except apsw.BusyError:
            # A reader is in the way; there will be another time.
            self._pages = 0
        except apsw.Error as error:
            self._translate(error)
        return False

    def _translate(self, error: apsw.Error) -> StoreError:
        """What went wrong, for whoever asked. A sync that failed is the end of this writer."""
        full = isinstance(error, apsw.FullError) or (
            isinstance(error, apsw.IOError) and self._db.system_errno in _FULL
        )
        if full and getattr(error, "extendedresult", 0) not in _SYNCS:
            return StoreFull("there is no space left for the journal")
        return self._break(error)

    def _break(self, error: Exception) -> StoreError:
        self.broken = StoreUnavailable(
            f"the journal cannot be written: {error}; nothing more is acknowledged"
        )
        return self.broken

    def _close(self) -> None:
        if self.broken or not self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE):
            # Or closing would try once more to copy the log into the database.
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._db.close()

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    # --- on the loop

    def _deliver(
        self,
        requests: Sequence[_Request],
        written: Sequence[tuple[str, Recorded]],
        changed: Mapping[str, None],
    ) -> None:
        self._publish(written, changed)
        for request in requests:
            _settle(request.reply, request.result, request.error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # whoever asked has left; what was done is done
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _fail(requests: Sequence[_Request], error: StoreError) -> None:
    for request in requests:
        request.error = error
