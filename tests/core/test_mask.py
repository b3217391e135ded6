import json

import pytest

from holdfast.core.mask import MASK, Mask

SECRET = "sk-very-secret"


def masked(*events, secrets=(SECRET,)):
    bodies = [json.dumps(event, ensure_ascii=False).encode() for event in events]
    return [json.loads(body) for body in Mask(secrets).bodies(bodies, {})]


def said(text, *, kind="model.text", turn=1, attempt=1):
    return {"type": kind, "turn": turn, "attempt": attempt, "text": text}


def test_values_are_masked_and_names_are_not():
    (event,) = masked({"type": SECRET, SECRET: {"type": [f"<{SECRET}>", 1, None, 2.5, True]}})
    assert event == {"type": SECRET, SECRET: {"type": [f"<{MASK}>", 1, None, 2.5, True]}}


def test_what_holds_no_secret_keeps_its_bytes():
    body = b'{ "type" : "x",  "n": 1.0, "u": "\\u00fc" }'
    assert Mask([SECRET]).bodies([body], {}) == [body]


@pytest.mark.parametrize("word", ["not_started", "cancelled", "assistant"])
def test_words_that_say_what_something_is_stay(word):
    (event,) = masked({"type": "x", "outcome": word, "output": f"it is {word}"}, secrets=[word])
    assert event == {"type": "x", "outcome": word, "output": f"it is {MASK}"}


@pytest.mark.parametrize("secret", ['a "quoted" ü', "back\\slash\\", "line\nbreak", "\x7f control"])
@pytest.mark.parametrize("ascii", [True, False])
def test_a_secret_is_found_in_json_that_stands_in_text(secret, ascii):
    text = secret
    for _ in range(3):
        (event,) = masked({"text": f"{text}|{text}"}, secrets=[secret])
        assert event == {"text": f"{MASK}|{MASK}"}
        text = json.dumps(text, ensure_ascii=ascii)[1:-1]


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        (["a sk-very", "-secret b"], ["a [masked]", " b"]),
        (["a sk-", "very", "-secret", "b"], ["a [masked]", "", "", "b"]),
        (["sk-very-secretsk-", "very-secret"], ["[masked][masked]", ""]),
        (["sk-very-secre", "", "t sk-very-secret sk-v"], ["[masked]", "", " [masked] sk-v"]),
        (["sk-very", "secret"], ["sk-very", "secret"]),
    ],
)
@pytest.mark.parametrize("kind", ["model.text", "model.reasoning"])
def test_a_secret_in_pieces_is_masked_where_it_begins(pieces, left, kind):
    events = masked(*(said(piece, kind=kind) for piece in pieces))
    assert [event["text"] for event in events] == left


def test_pieces_of_two_streams_are_no_whole():
    first, second = masked(said("sk-very"), said("-secret", attempt=2))
    assert (first["text"], second["text"]) == ("sk-very", "-secret")


def test_streams_may_be_woven_into_each_other():
    def progress(call, text):
        return {"type": "tool.progress", "call_id": call, "text": text}

    events = masked(progress("a", "sk-very"), progress("b", "x"), progress("a", "-secret"))
    assert [event["text"] for event in events] == [MASK, "x", ""]


def test_a_piece_without_text_is_left_alone():
    assert masked({"type": "model.text", "text": 5}) == [{"type": "model.text", "text": 5}]


def test_blobs_get_the_names_of_what_is_left_of_them():
    mask = Mask([SECRET])
    blobs, renamed = mask.blobs({"a": b"plain", "b": SECRET.encode()}, ())
    (new, size) = renamed["b"]
    assert blobs == {"a": b"plain", new: MASK.encode()}
    ref = {"type": "x", "blob": {"sha256": "b", "size": 14}}
    (body,) = mask.bodies([json.dumps(ref).encode()], renamed)
    assert json.loads(body)["blob"] == {"sha256": new, "size": size}
