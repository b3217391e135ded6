"""The one thread that writes, and commits for everyone at once.

Whatever waits when a commit is done goes into the next one, so a single writer waits for one
sync and a crowd shares it. What was asked for is answered after the commit, and so is what
followers see. A sync that failed is never tried again: nobody can tell what the disk has
kept, so nothing more is acknowledged by this process.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

import apsw
from msgspec import Struct

from holdfast.core.events import Recorded
from holdfast.errors import HoldfastError, StoreError, StoreFull, StoreUnavailable
from holdfast.stores.batch import Stir
from holdfast.stores.database import lacks_space
from holdfast.stores.ledger import Ledger
from holdfast.stores.packer import Packer
from holdfast.stores.reserve import Reserve

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Requests that are handed over at once, and after which no more are taken into a commit.
MOST = 1024

#: Pages of the log after which it is copied into the database: about 16 MB.
CHECKPOINT = 4000

#: Seconds between two looks at whether a full disk has room again.
LOOK = 1.0

#: Seconds without anybody asking after which runs that have ended are packed, one after another.
QUIET = 1.0

#: With more of them than this a moment in which nobody asks will do, but only so often,
#: in seconds: it takes a twentieth of what a crowd of live runs could do with.
BEHIND = 2000
PACE = 0.03


class _Request(Struct, gc=False):
    act: Callable[..., Any]
    arguments: tuple[Any, ...]
    reply: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """`publish` is called on the event loop after each commit with what it wrote and changed: events
    of runs, runs for whoever carries them, and what happened to sessions.

    `lose` is called there when nothing more is acknowledged, with the reason.
    """

    def __init__(
        self,
        open: Callable[[], tuple[apsw.Connection, Ledger]],
        reserve: Reserve,
        publish: Callable[
            [Mapping[str, Sequence[Recorded]], Iterable[str], Mapping[str, Stir]], None
        ],
        lose: Callable[[StoreError], None],
        *,
        checkpoint: int = CHECKPOINT,
        quiet: float = QUIET,
        behind: int = BEHIND,
    ) -> None:
        self._open, self._reserve, self._publish, self._lose = open, reserve, publish, lose
        self._most_pages, self._quiet, self._most_behind = checkpoint, quiet, behind
        self._loop = asyncio.get_running_loop()
        #: What was asked for since the loop's last turn, and what was handed over since.
        self._asked: list[_Request] = []
        self._requests: queue.SimpleQueue[list[_Request] | None] = queue.SimpleQueue()
        #: How many were handed over and not answered yet, and whether the last was answered alone.
        self._under_way = 0
        self._alone = True
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        # Not a pool's: this thread alone may touch the connection, for as long as it lives.
        self._thread = threading.Thread(target=self._work, name="holdfast-writer")  # noqa: TID251
        self._pages = 0
        self._looked = 0.0
        #: Whether there may be something to pack, how many runs are, and when the last step was.
        self._packs = True
        self._done = 0
        self._packed_at = 0.0
        self._stopped = False
        #: Why nothing is acknowledged any more, once that is so.
        self.broken: StoreError | None = None

    @property
    def full(self) -> bool:
        """There is no space now: nothing new begins, and what is under way may end."""
        return self._ledger.full

    async def start(self) -> None:
        """Raises StoreError if the file cannot be used."""
        self._thread.start()
        try:
            await self._opened
        except BaseException:
            # Whoever opens it may have left before it was open.
            self._requests.put(None)
            self._thread.join()
            raise

    def ask(self, act: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Have this done to the ledger in the next transaction. What it returned is told after that."""
        self._check()
        request = _Request(act, arguments, self._loop.create_future())
        self._asked.append(request)
        if self._alone and not self._under_way:
            # One who is alone need not wait for what else the loop has to do.
            self._hand_over()
        elif len(self._asked) == 1:
            # At the end of the loop's turn, so that all who ask in it wake the thread once.
            self._loop.call_soon(self._hand_over)
        return request.reply

    async def settle(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Like `ask`, for what writes nothing: it need not wait for a thread that has nothing to do.

        The ledger is nobody's then but the loop's, which alone could hand something over.
        """
        self._check()
        # With a transaction it is seen, too, whether a full disk has room again.
        if self._asked or self._under_way or self._ledger.full:
            return await self.ask(act, *arguments)
        return act(self._ledger, *arguments)

    def look(self, at: Callable[[Ledger], T]) -> T:
        """What this makes of the ledger as it stands, be there a transaction under way or not."""
        self._check()
        return at(self._ledger)

    def _check(self) -> None:
        if self.broken or self._stopped:
            raise self.broken or StoreUnavailable("the journal was closed")

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        self._under_way += len(asked)
        for start in range(0, len(asked), MOST):
            self._requests.put(asked[start : start + MOST])

    async def stop(self) -> None:
        """Finish what was asked for, and close the file."""
        self._stopped = True
        self._hand_over()
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
        self._packer: Packer | None = Packer(self._db)
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
            ledger = self._ledger
            done = (ledger.written, ledger.changed, ledger.stirred)
            # Before anyone is told: from then on the ledger may be the loop's.
            ledger.begin()
            self._call(self._deliver, requests, *done)
            self._packs = True
        self._copy_log()
        return not last

    def _copy_log(self) -> None:
        """If it has become long."""
        if self._pages >= self._most_pages and not self.broken:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _gather(self) -> tuple[list[_Request], bool]:
        requests: list[_Request] = []
        asked = self._next()
        while asked is not None:
            requests += asked
            if len(requests) >= MOST:
                return requests, False
            try:
                asked = self._requests.get_nowait()
            except queue.Empty:
                return requests, False
        return requests, True

    def _next(self) -> list[_Request] | None:
        """What is asked for next. While nobody asks, runs that have ended are packed."""
        quiet = False
        while self._packs:
            behind = self._ledger.ended - self._done > self._most_behind
            pause = max(self._packed_at + PACE - monotonic(), 0.0) if behind else self._quiet
            try:
                return self._requests.get(timeout=0.0 if quiet else pause)
            except queue.Empty:
                quiet = quiet or not behind
                self._packs = self._pack()
        return self._requests.get()

    def _pack(self) -> bool:
        """One step of it, in a transaction of its own. False if there is nothing to do for now."""
        if self._packer is None or self.broken or self._ledger.full:
            return False
        try:
            step = self._packer.next()
            if step is None:
                return False
            self._db.execute("begin immediate")
            self._packer.take(step)
            self._db.execute("commit")
        except apsw.Error as error:
            self._leave()
            if not isinstance(error, apsw.CorruptError):
                self._translate(error)
            # Else a page of an old run is damaged, which is for verifying to find.
            return False
        except Exception:  # noqa: BLE001 - a bug of ours; the journal can do without this
            _log.exception("ended runs are not packed any more: this is a bug in holdfast")
            self._leave()
            self._packer = None
            return False
        self._packed_at = monotonic()
        self._done += bool(step.then)
        self._copy_log()
        return True

    def _leave(self) -> None:
        """Nothing was packed. The ledger has no part in it, and may be the loop's at this moment."""
        try:
            if self._db.in_transaction:
                self._db.execute("rollback")
        except apsw.Error as error:
            self._break(error)

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
        ledger = self._ledger
        ledger.begin()
        try:
            self._db.execute("begin immediate")
            for request in requests:
                request.error = None
                try:
                    request.result = request.act(ledger, *request.arguments)
                except HoldfastError as error:
                    request.error = error
            ledger.flush()
            self._db.execute("commit")
        except apsw.Error as error:
            translated = self._translate(error)
            return self._roll_back() or translated
        except Exception as error:  # noqa: BLE001 - a bug of ours; nobody may be left waiting
            self._roll_back()
            return self._break(error)
        return None

    def _roll_back(self) -> StoreError | None:
        """Have it that nothing of the transaction was; an error if not even that can be done."""
        self._ledger.undo()
        try:
            if self._db.in_transaction:
                self._db.execute("rollback")
        except apsw.Error as error:
            return self._break(error)
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
        if lacks_space(self._db, error):
            return StoreFull("there is no space left for the journal")
        if isinstance(error, apsw.BusyError):
            return StoreUnavailable("the journal is locked by another program; nothing was written")
        return self._break(error)

    def _break(self, error: Exception) -> StoreError:
        if self.broken is None:
            self.broken = StoreUnavailable(
                f"the journal cannot be written: {error}; nothing more is acknowledged"
            )
            self._call(self._lose, self.broken)
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
        written: Mapping[str, Sequence[Recorded]],
        changed: Iterable[str],
        stirred: Mapping[str, Stir],
    ) -> None:
        self._under_way -= len(requests)
        self._alone = len(requests) == 1
        self._publish(written, changed, stirred)
        for request in requests:
            reply = request.reply
            if reply.done():
                continue  # whoever asked has left; what was done is done
            if request.error is None:
                reply.set_result(request.result)
            else:
                reply.set_exception(request.error)


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
