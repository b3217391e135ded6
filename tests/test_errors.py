import inspect

import pytest

from holdfast import errors
from holdfast.core.retry import REASONS
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalSettled,
    BadReply,
    Conflict,
    DataInUse,
    HoldfastError,
    JournalDamaged,
    LeaseLost,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NotFound,
    NothingPending,
    RequestError,
    RunFinished,
    RunStopping,
    StoreError,
    StreamStalled,
    ToolError,
    ToolTimeout,
    WishPending,
)

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_one_of_ours_and_stands_in_the_tree(kind):
    assert issubclass(kind, HoldfastError)
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotFound("run", "run_7"), "there is no run run_7"),
        (RunFinished("run_7"), "run run_7 has already ended"),
        (RunStopping("run_7"), "run run_7 is being stopped and takes nothing more"),
        (NothingPending("run_7"), "run run_7 has no approval that waits for an answer"),
        (ApprovalSettled("apr_1", "has expired"), "approval apr_1 has expired"),
        (
            ApprovalAmbiguous(["apr_1", "apr_2"]),
            "2 approvals are pending; name the one you answer: apr_1, apr_2",
        ),
        (ToolTimeout("pay", 1.5), "pay was ended after 1.5 s, its limit; it may have had effects"),
        (
            DataInUse("/data", 7),
            "the data directory /data is in use by process 7; wait until it is done, or choose another with --data",
        ),
        (JournalDamaged("run_7", 3, "it is missing"), "run run_7 is damaged at 3: it is missing"),
        (LeaseLost("run_7"), "run run_7 now belongs to another worker; dropping it unwritten"),
        (WishPending("run_7"), "run run_7 was asked for something first; looking again"),
    ],
)
def test_an_error_reads_as_a_sentence(error, words):
    assert str(error) == words


def test_an_error_carries_its_facts():
    assert (NotFound("run", "run_7").kind, NotFound("run", "run_7").id) == ("run", "run_7")
    assert ApprovalAmbiguous(["apr_1"]).pending == ("apr_1",)
    assert ApprovalSettled("apr_1", "has expired").how == "has expired"
    assert ToolTimeout("pay", 1.5).seconds == 1.5


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ModelError, "bad_reply"),
        (BadReply, "bad_reply"),
        (ModelRefused, "refused"),
        (ModelUnavailable, "reset"),
        (StreamStalled, "ttfb_kill"),
    ],
)
def test_a_model_error_has_a_reason_unless_it_is_given_another(kind, reason):
    assert kind("oh").reason == reason
    assert reason in REASONS
    assert kind("oh", reason="overloaded").reason == "overloaded"


def test_a_model_error_carries_what_decides_on_the_next_attempt():
    error = ModelRefused("no", status=429, retry_after=3.0)
    assert (error.status, error.retry_after, error.waited) == (429, 3.0, 0.0)


def test_who_must_act_can_be_told_from_the_class():
    assert issubclass(RunFinished, Conflict)
    assert issubclass(Conflict, RequestError)
    assert issubclass(ToolTimeout, ToolError)
    assert issubclass(LeaseLost, StoreError)
    assert issubclass(StreamStalled, TimeoutError)


def test_an_owner_that_does_not_say_who_it_is_is_another_process():
    assert "is in use by another process; wait" in str(DataInUse("/data"))
