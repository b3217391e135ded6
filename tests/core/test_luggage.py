import json
from hashlib import sha256
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import luggage as module
from holdfast.core.codec import link_messages, note
from holdfast.core.events import Parent, RunCancelled, RunCompleted, Unknown
from holdfast.core.luggage import Carried, Luggage, pack, unpack, write_page
from holdfast.core.messages import BlobRef, Text, UserMessage
from holdfast.core.session import (
    RunAdded,
    SessionCreated,
    SessionDeleted,
    SessionRenamed,
    SessionRestored,
    replay_session,
)
from holdfast.errors import InvalidRequest, JournalDamaged
from tests.core.stories import accepted, called, journal, replied, said, started

SECRET = "sk-a-very-secret-key"


def blob(body):
    return BlobRef(sha256=sha256(body).hexdigest(), size=len(body))


(LINK,) = link_messages((UserMessage(parts=(Text(f"my key is {SECRET}"),)),))
HISTORY = LINK.body


def asked(text="what likes shade?", **fields):
    return accepted(input=(Text(text),), session_id="ses_1", **fields)


def notes(*runs, more=()):
    added = (RunAdded(run_id=id, ordinal=at, words="") for at, id in enumerate(runs, 1))
    events = (SessionCreated(), *added, SessionRenamed(title="Shade"), *more)
    return [note(seq, float(seq), event) for seq, event in enumerate(events, 1)]


ENDED = Carried(
    "run_1",
    journal(
        asked(history=(blob(HISTORY),)),
        started(),
        called(),
        replied(text=f"Ferns, {SECRET}."),
        RunCompleted(),
    ),
    {blob(HISTORY).sha256: HISTORY},
)
CUT = Carried("run_2", journal(asked("and sun?"), started(), called(), said("Sunf")))
SESSION = Luggage("ses_1", notes("run_1", "run_2"), [ENDED, CUT])
FERNS = Luggage("ses_1", notes("run_1"), [ENDED])


def changed(change, session=SESSION):
    """The document with something else in it."""
    document = json.loads(pack(session))
    change(document)
    return json.dumps(document).encode()


# --- out


def test_a_document_says_all_that_is_on_record():
    document = json.loads(pack(FERNS))
    assert (document["holdfast_session"], document["session_id"]) == (1, "ses_1")
    assert document["title"] == "Shade"
    assert [line["event"]["type"] for line in document["notes"]] == [
        "session.created",
        "run.added",
        "session.renamed",
    ]
    (run,) = document["runs"]
    assert (run["run_id"], run["ordinal"]) == ("run_1", 1)
    assert [line["seq"] for line in run["events"]] == [1, 2, 3, 4, 5]
    assert list(document["blobs"]) == [blob(HISTORY).sha256]
    assert b'"event":' + ENDED.journal[3].body in pack(FERNS)


def test_what_must_not_leave_is_masked_and_the_rest_can_be_taken_in():
    document = pack(FERNS, secrets=[SECRET])
    assert SECRET.encode() not in document
    came = unpack(document, at=9.0)
    assert came.runs[0].journal[3].event.text == "Ferns, [masked]."
    (history,) = came.runs[0].blobs.values()
    assert b"[masked]" in history
    assert pack(came) == document


def test_a_page_is_for_people_and_holds_no_secret_either():
    page = write_page(SESSION, leased=(), workers=False, now=100.0, secrets=[SECRET])
    assert page.startswith("# Shade\n")
    assert "> Ferns, \\[masked\\]." in page or "> Ferns, [masked]." in page
    assert SECRET not in page
    assert "more of it may still arrive" in page
    leased = write_page(SESSION, leased={"run_2"}, workers=True, now=100.0)
    assert "still arrive" not in leased


def test_what_cannot_be_searched_for_secrets_does_not_leave():
    deep = b'{"type":"x.y","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    recorded = msgspec.structs.replace(CUT.journal[0], event=Unknown("x.y"), body=deep)
    odd = Luggage("ses_1", notes("run_2"), [Carried("run_2", [recorded])])
    with pytest.raises(JournalDamaged, match=r"session ses_1 .* cannot be searched for secrets"):
        pack(odd, secrets=[SECRET])


# --- in


def test_what_was_exported_comes_in_as_it_was():
    assert unpack(pack(FERNS), at=9.0) == FERNS


def test_a_document_that_was_made_fit_to_read_is_the_same():
    pretty = json.dumps(json.loads(pack(FERNS)), indent=2, ensure_ascii=False).encode()
    assert unpack(pretty, at=9.0) == FERNS


def test_what_had_not_ended_comes_in_ended_and_stays_so():
    came = unpack(pack(SESSION), at=100.0)
    assert list(came.runs[1].journal[:4]) == list(CUT.journal)
    assert isinstance(came.runs[1].journal[-1].event, RunCancelled)
    assert came.runs[1].journal[-1].at == 100.0
    assert unpack(pack(came), at=200.0) == came


def test_under_other_ids_everything_refers_to_itself():
    later = Carried("run_2", journal(asked(parent=Parent("run_1", 3)), started()))
    other = Carried("run_3", journal(asked(parent=Parent("run_0", 3)), started()))
    session = Luggage("ses_1", notes("run_1", "run_2", "run_3"), [ENDED, later, other])
    number = count(1)
    came = unpack(pack(session), at=9.0, new_id=lambda prefix: f"{prefix}_new{next(number)}")
    assert came.session_id == "ses_new4"
    assert [run.run_id for run in came.runs] == ["run_new1", "run_new2", "run_new3"]
    added = [one.event.run_id for one in came.notes if isinstance(one.event, RunAdded)]
    assert added == [run.run_id for run in came.runs]
    firsts = [run.journal[0].event for run in came.runs]
    assert {first.session_id for first in firsts} == {"ses_new4"}
    assert [first.parent for first in firsts] == [None, Parent("run_new1", 3), Parent("run_0", 3)]
    assert list(came.runs[0].journal[1:]) == list(ENDED.journal[1:])
    assert unpack(pack(came), at=9.0) == came


def test_what_a_newer_version_put_beside_it_is_kept_under_other_ids():
    def add(document):
        document["runs"][0]["events"][0]["event"]["colour"] = "green"

    came = unpack(changed(add, FERNS), at=9.0, new_id=lambda prefix: f"{prefix}_new")
    assert json.loads(came.runs[0].journal[0].body)["colour"] == "green"


def put(*path, value):
    """Put this value there."""

    def change(document):
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


def drop(*path):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return change


ADDED = {"type": "run.added", "run_id": "run_1", "ordinal": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("holdfast_session", value=2), "exported by a newer version"),
        (put("session_id", value="../etc"), "'../etc' is no id of a session"),
        (put("session_id", value=" x"), "is no id of a session"),
        (put("session_id", value="import"), "is no id of a session"),
        (put("session_id", value="x" * 300), "is no id of a session"),
        (put("session_id", value="ses_2"), "run run_1 is damaged at 1: it is of another session"),
        (put("notes", value=[]), "session ses_1 is damaged at 1: it is not how a session begins"),
        (drop("notes", 0), "session ses_1 is damaged at 1: it is missing"),
        (put("notes", 0, "event", value={"type": "x.y"}), "at 1: it is not how"),
        (put("notes", 0, "event", value=5), "session ses_1 is damaged at 1: .* cannot be read"),
        (put("notes", 1, "at", value=-1.0), "session ses_1 is damaged at 2: its time"),
        (put("notes", 1, "at", value=1e300), "session ses_1 is damaged at 2: its time"),
        (put("notes", 3, "event", "title", value="x" * 5000), "title is longer than 4096"),
        (put("notes", 3, "event", value={"type": "session.deleted"}), "was deleted before"),
        (put("notes", 3, "event", value={"type": "session.restored"}), "at 4: SessionRestored"),
        (put("notes", 1, "event", "ordinal", value=7), "at 2: run 7 is not the next one"),
        (put("notes", 1, "event", "run_id", value="run_7"), "are not those that session ses_1"),
        (put("notes", 2, "event", value=ADDED), "are not those that session ses_1"),
        (drop("runs", 1), "are not those that session ses_1"),
        (put("runs", 0, "ordinal", value=3), "are not those that session ses_1"),
        (put("runs", 0, "events", value=[]), "run run_1 is damaged at 1: a run begins"),
        (drop("runs", 0, "events", 2), "run run_1 is damaged at 3: it is missing"),
        (put("runs", 0, "events", 2, "at", value=-5), "run run_1 is damaged at 3: its time"),
        (put("runs", 0, "events", 2, "event", value=[1]), "run run_1 is damaged at 3: a stored"),
        (put("runs", 0, "events", 2, "event", "turn", value=9), "run run_1 is damaged at 5:"),
        (put("runs", 0, "events", 1, "event", "epoch", value=2**60), "its epoch is none"),
        (put("blobs", value={}), "run run_1 is damaged at 1: blob .* did not come with it"),
        (put("blobs", "a" * 64, value="aGk="), "session ses_1 .* blob a+ is not what it was"),
        (put("blobs", sha256(b"hi").hexdigest(), value="aGk="), "blob .* is for nothing in this"),
        (put("blobs", value={"a": "no base64!"}), "this is no exported session"),
        (put("title", value=None), "this is no exported session"),
        (drop("runs"), "this is no exported session"),
    ],
)
def test_what_cannot_have_been_exported_is_refused_and_named(change, said):
    with pytest.raises(InvalidRequest, match=said):
        unpack(changed(change), at=9.0)


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-1e999"])
@pytest.mark.parametrize("place", [("notes", 1), ("runs", 0, "events", 0)])
def test_a_number_that_cannot_be_written_again_is_refused(place, number):
    body = changed(put(*place, "event", "colour", value="@")).replace(b'"@"', number.encode())
    for new_id in (None, lambda prefix: f"{prefix}_new"):
        with pytest.raises(InvalidRequest, match="this is no exported session"):
            unpack(body, at=9.0, new_id=new_id)


def test_a_run_is_in_a_session_once():
    twice = notes("run_1", "run_1")
    with pytest.raises(InvalidRequest, match="a run is twice in session ses_1"):
        unpack(pack(Luggage("ses_1", twice, [ENDED, ENDED])), at=9.0)


def test_a_run_has_an_id_that_is_one():
    odd = Carried("run/1", ENDED.journal, ENDED.blobs)
    with pytest.raises(InvalidRequest, match="'run/1' is no id of a run"):
        unpack(pack(Luggage("ses_1", notes("run/1"), [odd])), at=9.0)


def test_a_history_that_is_no_conversation_is_refused():
    odd = Carried("run_1", journal(asked(history=(blob(b"no"),))), {blob(b"no").sha256: b"no"})
    with pytest.raises(InvalidRequest, match="run run_1 is damaged at 1: a stored conversation"):
        unpack(pack(Luggage("ses_1", notes("run_1"), [odd])), at=9.0)


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_document_is_refused(body):
    with pytest.raises(InvalidRequest, match="this is no exported session"):
        unpack(body, at=9.0)


def test_a_document_that_is_too_large_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 10)
    with pytest.raises(InvalidRequest, match="larger than 10 bytes"):
        unpack(pack(FERNS), at=9.0)


@settings(max_examples=40)
@given(st.data())
def test_a_document_with_anything_in_it_is_taken_or_refused(data):
    """Whatever is somewhere in it, nothing else is raised."""
    document = json.loads(pack(SESSION))
    place = document
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        parent, key = place, data.draw(st.sampled_from(keys))
        place = place[key]
        if data.draw(st.booleans()):
            break
    odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([])
    parent[key] = data.draw(odd | st.just({}) | st.sampled_from(["run_1", "ses_1", 2**70]))
    try:
        came = unpack(json.dumps(document).encode(), at=9.0)
    except InvalidRequest:
        return
    replay_session(came.notes)
    assert unpack(pack(came), at=9.0) == came


def test_a_session_that_was_deleted_and_restored_is_one_like_any_other():
    back = notes("run_1", more=(SessionDeleted(), SessionRestored()))
    session = Luggage("ses_1", back, [ENDED])
    assert unpack(pack(session), at=9.0) == session
