import pytest

from holdfast.core.retry import Failure
from holdfast.errors import BadReply, ModelRefused, ModelUnavailable
from holdfast.models.failures import MOST_WORDS, from_answer, from_event, retry_after

NOW = 1_700_000_000.0


def answer(status, body=b"", **headers):
    return from_answer(status, headers, body, now=NOW)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 409, 413, 422, 425, 451])
def test_no_is_a_refusal_with_its_status(status):
    error = answer(status)
    assert (type(error), error.reason, error.status) == (ModelRefused, "refused", status)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_too_busy_is_overloaded(status):
    error = answer(status)
    assert (type(error), error.reason, error.status) == (ModelUnavailable, "overloaded", status)


@pytest.mark.parametrize("status", [101, 201, 204, 301, 302, 307, 308, 600, 999])
def test_what_is_neither_a_reply_nor_an_error_is_a_bad_reply(status):
    error = answer(status)
    assert (type(error), error.reason) == (BadReply, "bad_reply")
    assert str(error) == f"the endpoint answered {status}, which is no reply"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "bad key", "type": "t", "code": "c"}}', "bad key"),
        (b'{"error": {"message": "bad key", "code": 401}}', "bad key"),
        (b'{"error": "bad key"}', "bad key"),
        (b'{"message": "bad key"}', "bad key"),
        (b'{"detail": "bad key"}', "bad key"),
        (b'{"detail": [{"loc": 1}]}', ""),
        (b"bad\n key", "bad key"),
        (b"<html><h1>Bad key</h1></html>", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 100_000, "[" * MOST_WORDS),
        (b'{"error": {"message": null}}', ""),
        (b"", ""),
    ],
)
def test_the_endpoints_own_words_are_passed_on_whatever_shape_they_come_in(body, words):
    said = f"the endpoint answered 401: {words}" if words else "the endpoint answered 401"
    assert str(answer(401, body)) == said


def test_an_endless_explanation_is_cut():
    assert len(str(answer(400, b"x" * 100_000))) < MOST_WORDS + 100
    assert len(str(from_event("server_error", "x" * 100_000))) < MOST_WORDS + 100


def test_a_secret_in_a_long_explanation_is_left_whole_for_whoever_masks_it():
    words = "x" * 990 + "sk-a-secret-key"
    for error in (answer(401, words.encode()), from_event("invalid_api_key", words)):
        assert str(error).endswith("sk-a-secret-key")


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens",
        "prompt is too long: 250000 tokens > 200000 maximum",
        "Your input exceeds the context window of this model.",
        "the request exceeds the available context size: exceed_context_size_error",
    ],
)
def test_a_conversation_that_is_too_long_has_a_reason_of_its_own(words):
    error = answer(400, b'{"error": {"message": "%s"}}' % words.encode())
    assert error.reason == "context_overflow"
    assert "longer than the model can take" in str(error) and words in str(error)


def test_the_code_alone_may_say_that_it_is_too_long():
    body = b'{"error": {"code": "context_length_exceeded"}}'
    assert answer(400, body).reason == "context_overflow"


@pytest.mark.parametrize("kind", ["insufficient_quota", "billing_not_active"])
def test_who_has_nothing_left_to_pay_with_asks_another_and_not_again(kind):
    body = b'{"error": {"message": "pay", "type": "%s", "code": "%s"}}' % ((kind.encode(),) * 2)
    assert str(answer(429, body)) == "the endpoint answered 429: pay"
    for error in (answer(429, body), from_event(kind, "pay")):
        failure = Failure("m", error.reason, status=error.status)
        assert failure.worth_moving and not failure.worth_repeating
    assert kind in str(answer(429, b'{"error": {"type": "%s"}}' % kind.encode()))


def test_a_server_that_is_down_is_down_whatever_it_talks_about():
    assert answer(503, b"context window").reason == "overloaded"


@pytest.mark.parametrize(
    ("kind", "reason", "status"),
    [
        ("overloaded_error", "overloaded", 529),
        ("rate_limit_exceeded", "overloaded", 429),
        ("server_error", "overloaded", 500),
        ("something new", "overloaded", 500),
        ("vector_store_timeout", "overloaded", 504),
        ("invalid_request_error", "refused", 400),
        ("invalid_encrypted_content", "refused", 400),
        ("invalid_image_url", "refused", 400),
        ("image_too_large", "refused", 400),
        ("unsupported_image_media_type", "refused", 400),
        ("empty_image_file", "refused", 400),
        ("failed_to_download_image", "refused", 400),
        ("authentication_error", "refused", 401),
    ],
)
def test_an_error_in_the_middle_of_a_stream_is_like_one_at_its_start(kind, reason, status):
    error = from_event(kind, "no")
    assert (error.reason, error.status) == (reason, status)
    assert str(error) == f"the endpoint answered {status}: no"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2023 22:13:30", 10.0),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("Tue, 99 Nov 2023 22:13:30 GMT", None),
    ],
)
def test_when_to_come_back_may_be_seconds_or_a_date(value, seconds):
    assert retry_after(value, now=NOW) == seconds
    assert answer(429, **{"retry-after": value}).retry_after == seconds


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_wait_that_is_no_number_of_seconds_is_none(value):
    assert answer(429, **{"retry-after": value}).retry_after is None
