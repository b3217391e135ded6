"""Everything holdfast raises on purpose.

HoldfastError
├── RequestError            the caller asked for something that cannot be done
│   ├── InvalidRequest          malformed, or holds what cannot be stored
│   ├── NotFound                kind, id
│   └── Conflict                was fine once, not now
│       ├── AlreadyAccepted         that very request was taken in before
│       ├── KeyReused               another request was, under the same key
│       ├── RunFinished             the run has ended
│       ├── RunStopping             a stop came first
│       ├── RunBegun                what was asked can no longer be edited or taken back
│       ├── SessionBusy             a run of the session is under way
│       ├── SessionGone             the session was deleted
│       ├── NothingPending          no approval waits for an answer
│       ├── ApprovalSettled         answered, expired or withdrawn already
│       ├── ApprovalChanged         something else is asked than what was answered
│       └── ApprovalAmbiguous       several are pending and none was named
├── ModelError              a model endpoint let us down
│   ├── ModelRefused            said no: key, quota, bad request
│   ├── ModelUnavailable        down, overloaded, hung up
│   ├── StreamStalled           holds the line, says nothing
│   └── BadReply                spoke, but not our language
├── ToolError               told to the model; never ends a run
│   └── ToolTimeout
├── StoreError              the journal could not be read or written
│   ├── StoreUnavailable
│   ├── StoreFull               no space; reads go on
│   ├── SchemaTooNew            the file is from a newer version
│   ├── DataInUse               another process owns the data directory
│   ├── JournalDamaged          what is stored is not what was written
│   │   └── FileDamaged             nor is the file it is stored in
│   ├── LeaseLost               another worker has the run; stop writing
│   └── WishPending             a final event met a wish its writer had not seen
├── ConfigError             the process cannot start as configured
└── IllegalEvent            a bug of ours; nothing was written

The class says who must act. Cancellation is not in the tree: it is not an
error, and nobody catches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite


class HoldfastError(Exception):
    """Base of every error holdfast raises on purpose."""


class RequestError(HoldfastError):
    """The request cannot be carried out; repeating it unchanged will not help."""


class InvalidRequest(RequestError):
    """The request itself is malformed, whatever the state of things."""


class NotFound(RequestError):
    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"there is no {kind} {id}")
        self.kind, self.id = kind, id


class Conflict(RequestError):
    """The request was fine once, but not in the state things are in now."""


class AlreadyAccepted(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"this was taken in before, as run {run_id}")
        self.run_id = run_id


class KeyReused(Conflict):
    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key} was used for another request")
        self.key = key


class RunFinished(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has already ended")
        self.run_id = run_id


class RunStopping(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is being stopped and takes nothing more")
        self.run_id = run_id


class RunBegun(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has begun; stop it, or say something to it")
        self.run_id = run_id


class SessionBusy(Conflict):
    def __init__(self, session_id: str, run_id: str) -> None:
        super().__init__(f"session {session_id} is busy with run {run_id}")
        self.session_id, self.run_id = session_id, run_id


class SessionGone(Conflict):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} was deleted; restore it, or begin another")
        self.session_id = session_id


class NothingPending(Conflict):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has no approval that waits for an answer")
        self.run_id = run_id


class ApprovalSettled(Conflict):
    def __init__(self, approval_id: str, how: str) -> None:
        super().__init__(f"approval {approval_id} {how}")
        self.approval_id, self.how = approval_id, how


class ApprovalChanged(Conflict):
    def __init__(self, approval_id: str) -> None:
        super().__init__(
            f"approval {approval_id} is for something else than what was answered; look at it again"
        )
        self.approval_id = approval_id


class ApprovalAmbiguous(Conflict):
    def __init__(self, pending: Sequence[str]) -> None:
        names = ", ".join(pending)
        super().__init__(f"{len(pending)} approvals are pending; name the one you answer: {names}")
        self.pending = tuple(pending)


class ModelError(HoldfastError):
    """A model endpoint failed. Whoever raises it knows why, and says so by `reason`.

    `reason` is one of the close reasons of `core.retry`; with `status`, the answer's HTTP
    status, it settles there whether to try again, and where. `retry_after` is the
    endpoint's own wish, in seconds.
    """

    reason = "bad_reply"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or type(self).reason
        self.status = status
        sensible = retry_after is not None and isfinite(retry_after) and retry_after >= 0
        self.retry_after = retry_after if sensible else None
        #: Seconds of silence before it, for whoever listened to fill in.
        self.waited = 0.0


class ModelRefused(ModelError):
    """The endpoint understood us and said no: bad key, no quota, bad request."""

    reason = "refused"


class ModelUnavailable(ModelError):
    """The endpoint is down, overloaded, or hung up in the middle of a sentence."""

    reason = "reset"


class StreamStalled(ModelError, TimeoutError):
    """The endpoint holds the line but has gone quiet."""

    reason = "ttfb_kill"


class BadReply(ModelError):
    """The endpoint spoke, but not so that a reply could be made of it."""


class ToolError(HoldfastError):
    """A tool failed in a way worth telling the model about.

    `output` is what had come of it until then. It is shown before the error and kept like any other.
    """

    def __init__(self, message: str = "", *, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class ToolTimeout(ToolError):
    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(
            f"{tool} was ended after {seconds:g} s, its limit; it may have had effects"
        )
        self.tool, self.seconds = tool, seconds


class StoreError(HoldfastError):
    """The journal could not be read or written."""


class StoreUnavailable(StoreError):
    """The store does not answer now; it may later."""


class StoreFull(StoreError):
    """There is no space left to write. What was written stays readable."""


class SchemaTooNew(StoreError):
    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer version of holdfast (its schema is {version}, this"
            f" version knows {known}); use that version, or another file"
        )
        self.path, self.version, self.known = path, version, known


class DataInUse(StoreError):
    def __init__(self, folder: str, pid: int = 0, address: str = "") -> None:
        who = f"process {pid}" if pid else "another process"
        where = f", which listens on {address}" if address else ""
        super().__init__(
            f"the data directory {folder} is in use by {who}{where}; wait until it is done, or"
            " choose another with --data"
        )
        self.folder, self.pid, self.address = folder, pid, address


class JournalDamaged(StoreError):
    """`kind` says whether the journal is a run's or a session's."""

    def __init__(self, run_id: str, seq: int, what: str, *, kind: str = "run") -> None:
        super().__init__(f"{kind} {run_id} is damaged at {seq}: {what}")
        self.run_id, self.seq, self.what = run_id, seq, what


class FileDamaged(JournalDamaged):
    """The file itself is not what was written, below what the events say."""

    def __init__(self, what: str) -> None:
        StoreError.__init__(self, what)
        self.run_id, self.seq, self.what = "", 0, what


class LeaseLost(StoreError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} now belongs to another worker; dropping it unwritten")
        self.run_id = run_id


class WishPending(StoreError):
    """A final event, or letting go of a run, met a wish its writer had not seen yet.

    Nothing was written. Read on, fold, and plan again.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was asked for something first; looking again")
        self.run_id = run_id


class ConfigError(HoldfastError):
    """The process cannot start as configured."""


class IllegalEvent(HoldfastError):
    """A bug in holdfast. The journal is left as it was."""
