import inspect

import msgspec
import pytest

from holdfast import errors
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalSettled,
    Conflict,
    HoldfastError,
    IllegalEvent,
    InvalidRequest,
    JournalDamaged,
    LeaseLost,
    NotFound,
    NothingPending,
    RequestError,
    RunFinished,
    RunStopping,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from holdfast.server.problems import (
    Problem,
    draining,
    key_conflict,
    malformed,
    no_such_path,
    problem,
    too_large,
    too_many,
    wrong_key,
    wrong_media_type,
    wrong_method,
)

SECRET = "/srv/private sk-very-secret"

#: Every kind of error that holdfast raises on purpose, those yet to come as well.
KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, HoldfastError)
]


def example(kind):
    """One of this kind, with a message that is nobody's business."""
    error = kind.__new__(kind, SECRET)
    error.kind = "thing"
    return error


def answer(error, **kwargs):
    found = problem(error, **kwargs)
    return found.status, found.code, found.headers.get("Retry-After")


def test_a_body_is_the_envelope_with_all_four_fields():
    body = msgspec.json.decode(Problem(400, "no good").body)
    assert body == {
        "error": {
            "message": "no good",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }
    told = Problem(418, "tea", code="teapot", param="pot", type="tea_error", headers={"A": "b"})
    assert told.status == 418 and told.headers == {"A": "b"} and str(told) == "tea"
    assert msgspec.json.decode(told.body)["error"] == {
        "message": "tea",
        "type": "tea_error",
        "param": "pot",
        "code": "teapot",
    }


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidRequest("odd"), (400, None, None)),
        (NotFound("run", "run_1"), (404, "run_not_found", None)),
        (NotFound("approval", "ap_1"), (404, "approval_not_found", None)),
        (RunFinished("run_1"), (404, "run_ended", None)),
        (RunStopping("run_1"), (409, "run_stopping", None)),
        (NothingPending("run_1"), (409, "approval_not_pending", None)),
        (ApprovalSettled("ap_1", "expired"), (409, "approval_settled", None)),
        (ApprovalAmbiguous(["ap_1", "ap_2"]), (409, "approval_ambiguous", None)),
        (Conflict("not now"), (409, "conflict", None)),
        (StoreFull("no space"), (507, "journal_full", "5")),
        (StoreUnavailable("away"), (503, "store_unavailable", "1")),
        (StoreError("odd"), (503, "store_unavailable", "1")),
        (LeaseLost("run_1"), (503, "store_unavailable", "1")),
        (JournalDamaged("run_1", 3, "a hole"), (500, "journal_damaged", None)),
        (IllegalEvent("a bug"), (500, "internal_error", None)),
        (RuntimeError("a bug"), (500, "internal_error", None)),
    ],
    ids=str,
)
def test_every_error_has_its_status_its_code_and_its_time_to_come_back(error, expected):
    assert answer(error) == expected


@pytest.mark.parametrize("error", [RunFinished("run_1"), RunStopping("run_1")], ids=str)
def test_a_run_that_takes_no_more_says_so_in_the_words_of_what_was_asked(error):
    assert answer(error, asked="approval") == (409, "approval_not_active", None)
    assert answer(error, asked="steer") == (409, "run_not_accepting_steer", None)


@pytest.mark.parametrize("asked", ["approval", "steer"])
def test_all_other_errors_are_answered_the_same_everywhere(asked):
    assert answer(NotFound("run", "x"), asked=asked) == (404, "run_not_found", None)
    assert answer(NothingPending("x"), asked=asked) == (409, "approval_not_pending", None)
    assert answer(StoreFull("x"), asked=asked) == (507, "journal_full", "5")


def test_an_ambiguous_answer_is_told_which_approvals_there_are():
    message = problem(ApprovalAmbiguous(["ap_1", "ap_2"])).complaint.message
    assert "ap_1" in message and "ap_2" in message


@pytest.mark.parametrize("kind", [k for k in KINDS if issubclass(k, RequestError)])
def test_what_the_caller_did_is_told_in_the_words_of_the_error(kind):
    found = problem(example(kind))
    assert 400 <= found.status < 500
    assert found.complaint.message == SECRET
    assert found.complaint.type == "invalid_request_error"


@pytest.mark.parametrize(
    "kind", [OSError, ValueError, *(k for k in KINDS if not issubclass(k, RequestError))]
)
def test_what_we_did_is_told_without_a_word_of_the_error(kind):
    found = problem(example(kind))
    assert found.status >= 500
    assert SECRET.encode() not in found.body and found.complaint.message
    assert found.complaint.type == "server_error"


def test_a_problem_is_its_own_answer():
    own = malformed("odd", param="input", code="odd_input")
    assert problem(own, asked="approval") is own
    assert (own.status, own.complaint.param, own.code) == (400, "input", "odd_input")


@pytest.mark.parametrize(
    ("refusal", "status", "code", "kind", "headers"),
    [
        (wrong_key(), 401, "invalid_api_key", "invalid", {"WWW-Authenticate": "Bearer"}),
        (no_such_path(), 404, "path_not_found", "invalid", {}),
        (
            wrong_method("GET", "POST"),
            405,
            "method_not_allowed",
            "invalid",
            {"Allow": "GET, POST"},
        ),
        (key_conflict(), 409, "idempotency_key_conflict", "invalid", {"X-Should-Retry": "false"}),
        (too_large(10), 413, "body_too_large", "invalid", {}),
        (wrong_media_type(), 415, "unsupported_media_type", "invalid", {}),
        (
            too_many("Too many runs", retry_after=3),
            429,
            "rate_limit_exceeded",
            "limited",
            {"Retry-After": "3"},
        ),
        (too_many("Too many"), 429, "rate_limit_exceeded", "limited", {"Retry-After": "1"}),
        (draining(), 503, "gateway_draining", "ours", {"Retry-After": "1"}),
    ],
    ids=str,
)
def test_what_is_refused_at_the_door_says_why(refusal, status, code, kind, headers):
    kinds = {
        "invalid": "invalid_request_error",
        "limited": "rate_limit_error",
        "ours": "server_error",
    }
    assert (refusal.status, refusal.code, refusal.headers) == (status, code, headers)
    assert refusal.complaint.type == kinds[kind]


def test_a_wrong_key_is_told_in_the_words_clients_know():
    assert wrong_key().complaint.message == "Invalid API key"


def test_who_comes_while_the_server_leaves_is_told_so_and_when_to_come_back():
    said = draining(retry_after=3).complaint.message
    assert "shutting down" in said and "Try again in 3 s" in said


def test_a_body_that_is_too_large_is_told_the_limit():
    assert "10000000 bytes" in too_large(10_000_000).complaint.message


def test_a_wrong_method_is_told_the_right_ones():
    assert wrong_method("GET").complaint.message == "this address takes GET"
