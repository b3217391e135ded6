"""Why a request was not carried out, as whoever sent it is told.

Each error of ours has its row in one table: the status, the code a program can act upon, and
whether to come back later. What is the caller's doing is told in the error's own words. What
is ours is told in a fixed sentence, for an error may name files, addresses and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.secrets import Secrets
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalChanged,
    ApprovalSettled,
    Conflict,
    JournalDamaged,
    NotFound,
    NothingPending,
    RequestError,
    RunBegun,
    RunFinished,
    RunStopping,
    SessionBusy,
    SessionGone,
    StoreError,
    StoreFull,
)

INVALID = "invalid_request_error"
LIMITED = "rate_limit_error"
OURS = "server_error"

#: Says to OpenAI's clients that the same request again would be another run.
ASK_NO_MORE: Mapping[str, str] = {"X-Should-Retry": "false"}

#: What was asked for when an error came up. The same error may need another answer elsewhere.
Asked: TypeAlias = Literal["run", "approval", "steer", "session"]


# --- the problem -----------------------------------------------------------------------


class Complaint(Struct, frozen=True):
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None


class Envelope(Struct, frozen=True):
    """The body of every answer that is not what was asked for."""

    error: Complaint


class Problem(Exception):
    """A request that is answered with a refusal. Says all that the answer needs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        type: str = INVALID,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.complaint = Complaint(message, type, param, code)

    @property
    def code(self) -> str | None:
        return self.complaint.code

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(Envelope(self.complaint))

    def without(self, secrets: Secrets) -> Problem:
        """The same, and not a word of what the request said that nobody may hear."""
        self.complaint = secrets.mask_event(self.complaint)
        return self


# --- errors of ours --------------------------------------------------------------------


class Row(NamedTuple):
    """`says` is what the caller is told; if it is empty, the error's own words."""

    status: int
    code: str | None
    type: str = INVALID
    retry_after: int = 0
    says: str = ""


_UNAVAILABLE = "what is on record cannot be read or written now; try again soon"
_DAMAGED = "what is on record here is damaged; whoever runs this server has to see to it"
_FULL = "there is no space left to record anything; what is on record can still be read"
_UNEXPECTED = "something went wrong here, and it is not your request"

#: An error has the row of the nearest class above it that has one.
TABLE: Mapping[type[Exception], Row] = {
    # What is malformed has no code on this wire, only a message.
    RequestError: Row(400, None),
    # Preceded by what was looked for.
    NotFound: Row(404, "not_found"),
    RunFinished: Row(404, "run_ended"),
    RunStopping: Row(409, "run_stopping"),
    RunBegun: Row(409, "run_begun"),
    SessionBusy: Row(409, "session_busy"),
    SessionGone: Row(409, "session_deleted"),
    NothingPending: Row(409, "approval_not_pending"),
    ApprovalSettled: Row(409, "approval_settled"),
    ApprovalChanged: Row(409, "approval_changed"),
    ApprovalAmbiguous: Row(409, "approval_ambiguous"),
    Conflict: Row(409, "conflict"),
    StoreError: Row(503, "store_unavailable", OURS, 1, _UNAVAILABLE),
    StoreFull: Row(507, "journal_full", OURS, 5, _FULL),
    # Coming back will not mend it.
    JournalDamaged: Row(500, "journal_damaged", OURS, says=_DAMAGED),
    Exception: Row(500, "internal_error", OURS, says=_UNEXPECTED),
}

#: A run that takes no more has another name for each thing it does not take.
ELSEWHERE: Mapping[Asked, Mapping[type[Exception], Row]] = {
    "run": {},
    "approval": dict.fromkeys((RunFinished, RunStopping), Row(409, "approval_not_active")),
    "steer": dict.fromkeys((RunFinished, RunStopping), Row(409, "run_not_accepting_steer")),
    "session": {StoreError: Row(503, "session_db_unavailable", OURS, 1, _UNAVAILABLE)},
}


def problem(error: Exception, *, asked: Asked = "run") -> Problem:
    """How to answer a request that met this error, whatever it is."""
    if isinstance(error, Problem):
        return error
    rows = {**TABLE, **ELSEWHERE[asked]}
    row = next(rows[kind] for kind in type(error).__mro__ if kind in rows)
    return Problem(
        row.status,
        row.says or str(error),
        code=f"{error.kind}_{row.code}" if isinstance(error, NotFound) else row.code,
        type=row.type,
        headers=_later(row.retry_after) if row.retry_after else {},
    )


# --- what is refused at the door -------------------------------------------------------


def malformed(message: str, *, param: str | None = None, code: str | None = None) -> Problem:
    return Problem(400, message, code=code, param=param)


def wrong_key() -> Problem:
    """The same whether there was no key or another one."""
    return Problem(
        401, "Invalid API key", code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
    )


def no_such_path() -> Problem:
    return Problem(404, "there is nothing at this address", code="path_not_found")


def wrong_method(*allowed: str) -> Problem:
    names = ", ".join(allowed)
    return Problem(
        405,
        f"this address takes {names}",
        code="method_not_allowed",
        headers={"Allow": names},
    )


def session_exists(session_id: str) -> Problem:
    return Problem(409, f"session {session_id} exists already", code="session_exists")


def session_busy(error: SessionBusy) -> Problem:
    """The run is named once more for programs, which need not read sentences."""
    named = {"X-Run-Id": error.run_id}
    return Problem(409, str(error), code="session_busy", headers=named)


def key_conflict() -> Problem:
    return Problem(
        409,
        "this Idempotency-Key was used before, for another request",
        code="idempotency_key_conflict",
        headers=ASK_NO_MORE,
    )


def run_deleted() -> Problem:
    return Problem(
        404,
        "the run that this request led to was deleted; under another Idempotency-Key it is a new one",
        code="run_not_found",
    )


def too_large(limit: int) -> Problem:
    return Problem(413, f"the body is larger than {limit} bytes", code="body_too_large")


def wrong_media_type() -> Problem:
    return Problem(415, "the body must be application/json in UTF-8", code="unsupported_media_type")


def too_many(message: str, *, retry_after: int = 1) -> Problem:
    return Problem(
        429, message, code="rate_limit_exceeded", type=LIMITED, headers=_later(retry_after)
    )


def holds_a_secret(what: str, *, param: str | None = None) -> Problem:
    """What names a thing, or is kept to the byte, cannot be masked."""
    words = f"{what} holds a secret of this server, which is not to be kept"
    return malformed(words, param=param, code="secret_in_request")


def draining(*, retry_after: int = 1) -> Problem:
    return Problem(
        503,
        "the server is shutting down and takes no new runs; those it has are carried on when it is"
        f" back. Try again in {retry_after} s",
        code="gateway_draining",
        type=OURS,
        headers=_later(retry_after),
    )


def _later(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}
