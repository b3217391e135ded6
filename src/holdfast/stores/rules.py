"""Standing answers in a file that people can read, edit and trust.

It fails closed. What cannot be read with certainty allows nothing, and is never overwritten: a rule
is added at the end and cut out again with the rest left byte for byte, comments and all.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from time import time  # noqa: TID251 (the one to take when none is brought)

import anyio
import anyio.to_thread

from holdfast.core.events import Choice, RunAccepted
from holdfast.core.messages import ToolCall, storable
from holdfast.core.state import Grant
from holdfast.errors import InvalidRequest, NotFound, StoreError, StoreFull, StoreUnavailable
from holdfast.stores.ruletext import MOST_RULES, Book, Rule, add, cut, parse

__all__ = ["FILE", "Rule", "RuleFile"]

FILE = "rules.toml"

#: Whoever writes holds a lock on this one, since the file itself is replaced.
_LOCK = "rules.lock"
_DRAFT = "rules.toml.new"

MOST_BYTES = 1_000_000

#: Characters of a subject that are kept.
_LONGEST_SUBJECT = 2000

#: How often to try for the lock, and after how many seconds.
_TRIES = 500
_PAUSE = 0.01

#: Ids that are named where several are meant.
_NAMED = 5

#: Somebody may have put a link or a pipe there: the first is not followed, nor the second waited for.
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK

_log = logging.getLogger(__name__)


class RuleFile:
    """The rules of a data directory. Any number of processes may read and write them at once."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time) -> None:
        self.path = folder / FILE
        self._name, self._now = str(self.path), now
        self._stamp: tuple[int, ...] | None = None
        self._book = self._warned = Book()

    def standing(self, run_id: str, accepted: RunAccepted) -> tuple[Grant, ...]:  # noqa: ARG002
        """Those that cover this run now. What is wrong with the file is logged once."""
        book = self._look()
        if book is not self._warned:
            self._warned = book
            for problem in book.problems:
                _log.warning("%s", problem)
        if not book.grants:
            return ()
        always = book.grants.get((accepted.workspace, ""), ())
        if not accepted.session_id:
            return always
        return always + book.grants.get((accepted.workspace, accepted.session_id), ())

    async def grant(
        self,
        run_id: str,  # noqa: ARG002
        accepted: RunAccepted,
        call: ToolCall,
        scope: Choice,
        *,
        by: str,
    ) -> None:
        """Add a rule, unless it is there, or the call has no key that it could reach by.

        A run without a session is one of its own, and its journal knows what was answered in it: a
        rule for it would be of no use once it has ended, and nobody would take it away. Raises
        StoreError if there is anything in the file that we cannot read.
        """
        session = accepted.session_id if scope == "session" else ""
        if not call.key or not (session or scope == "always"):
            return
        rule = Rule(
            id=f"rule_{token_hex(4)}",
            tool=call.tool,
            key=call.key,
            session=session,
            workspace=accepted.workspace,
            subject=_shortened(storable(call.subject)),
            by=storable(by),
            granted=datetime.fromtimestamp(int(self._now()), UTC),
        )
        for _ in range(_TRIES):
            try:
                await anyio.to_thread.run_sync(self._add, rule)
                return
            except BlockingIOError:
                await anyio.sleep(_PAUSE)
        raise StoreUnavailable(f"{self.path} is being written by another process, without end")

    async def forget(self, session_id: str) -> None:
        for rule in self.rules():
            if rule.session == session_id:
                await anyio.to_thread.run_sync(self.revoke, rule.id)

    def rules(self) -> Sequence[Rule]:
        """Those that stand, in the order of the file."""
        return self._look().rules

    def problems(self) -> Sequence[str]:
        """What is wrong with the file, a sentence each."""
        return self._look().problems

    def find(self, word: str) -> Rule:
        """The rule that is meant by this id, or by the beginning of one, with or without `rule_`."""
        book = self._look()
        if book.refusal:
            raise book.refusal
        return _find(book.rules, word)

    def revoke(self, id: str) -> Rule:
        """Cut the rule out of the file. Raises NotFound, InvalidRequest or StoreError."""
        self.find(id)
        with self._writing(wait=True) as book:
            rule = _find(book.rules, id)
            self._replace(cut(book, rule, self.path))
        return rule

    # --- reading

    def _look(self) -> Book:
        """The file as it is now; read again only if it changed."""
        stamp: tuple[int, ...] | None = None
        try:
            there = os.lstat(self._name)
            # The last one tells of a change of owner or mode too.
            stamp = there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns
        except FileNotFoundError:
            pass
        except OSError as error:
            stamp = (error.errno or 0,)
        if stamp != self._stamp:
            # What changes between the two looks is read again at the next.
            self._stamp, self._book = stamp, self._read()
        return self._book

    def _read(self) -> Book:
        try:
            return parse(_text(self.path), self.path)
        except StoreError as error:
            return Book(problems=(f"{error}; no rule in it stands",), refusal=error)

    # --- writing

    def _add(self, rule: Rule) -> None:
        with self._writing(wait=False) as book:
            if book.problems:
                raise StoreError(f"no rule was added: {book.problems[0]}")
            if any(rule.same(other) for other in book.rules):
                return
            if len(book.rules) >= MOST_RULES:
                raise StoreError(
                    f"{self.path} holds {MOST_RULES} rules, and no more are kept; revoke some with:"
                    " holdfast rules revoke"
                )
            self._replace(add(book, rule, self.path))

    @contextmanager
    def _writing(self, *, wait: bool) -> Iterator[Book]:
        """The file as it is while nobody else writes it. Raises BlockingIOError rather than wait."""
        lock = self.path.with_name(_LOCK)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600)
        except OSError as error:
            raise _unfit(lock, error.strerror) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            book = self._read()
            if book.refusal:
                raise book.refusal
            yield book
        finally:
            os.close(handle)

    def _replace(self, text: str) -> None:
        """All of it, for good, or nothing."""
        data, draft = text.encode(), self.path.with_name(_DRAFT)
        if len(data) > MOST_BYTES:
            raise StoreError(f"{self.path} would grow past {MOST_BYTES:,} bytes; revoke some rules")
        try:
            # One that a dead process left. Nobody else is writing.
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as file:  # noqa: PTH123 (by its handle)
                file.write(data)
                file.flush()
                os.fsync(handle)
            draft.replace(self.path)
            _sync(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
            raise kind(f"{self.path} cannot be written: {error.strerror}") from error


def _shortened(subject: str) -> str:
    fits = len(subject) <= _LONGEST_SUBJECT
    return subject if fits else subject[: _LONGEST_SUBJECT - 1] + "…"


def _find(rules: Sequence[Rule], word: str) -> Rule:
    whole = word if word.startswith("rule_") else f"rule_{word}"
    found = [rule for rule in rules if rule.id == whole] or [
        rule for rule in rules if rule.id.startswith(whole) and whole != "rule_"
    ]
    if not found:
        raise NotFound("rule", word)
    if len(found) > 1:
        some = ", ".join(rule.id for rule in found[:_NAMED])
        more = ", …" if len(found) > _NAMED else ""
        raise InvalidRequest(f"{len(found)} rules begin with {word}: {some}{more}; type more of it")
    return found[0]


# --- the file --------------------------------------------------------------------------


def _text(path: Path) -> str:
    """What stands in it, "" if there is no file. Raises StoreError if it is not ours alone."""
    try:
        handle = os.open(path, os.O_RDONLY | _AS_IT_IS)
        try:
            if why := _not_ours(path, os.fstat(handle)):
                raise _unfit(path, why)
            data = os.read(handle, MOST_BYTES + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return ""
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise _unfit(path, "it is a link" if link else error.strerror) from error
    if len(data) > MOST_BYTES:
        raise _unfit(path, f"it has more than {MOST_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StoreError(f"{path}, line {line}: this is not text in UTF-8") from error


def _not_ours(path: Path, there: os.stat_result) -> str:
    """Why what stands there could be somebody else's word, or ""."""
    if not stat.S_ISREG(there.st_mode):
        return "it is no file"
    if there.st_uid != os.geteuid():
        return f"it belongs to another user, whose number is {there.st_uid}"
    if there.st_mode & 0o022:
        return f"others may write to it; look through it, then close it with: chmod 600 {path}"
    return ""


def _unfit(path: Path, why: str | None) -> StoreError:
    return StoreError(f"{path} cannot be used: {why}")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
