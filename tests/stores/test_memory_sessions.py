import pytest
from msgspec.structs import replace

from holdfast.core.session import SessionCreated, SessionDeleted, SessionRenamed, SessionRestored
from holdfast.errors import Conflict, IllegalEvent, NotFound, SessionGone
from holdfast.stores.memory_sessions import MemorySessions
from holdfast.testing.contracts import ACCEPTED


@pytest.fixture
def stirred():
    return []


@pytest.fixture
def sessions(stirred):
    return MemorySessions(lambda: 1.0, stirred.append)


def test_every_write_is_told(sessions, stirred):
    sessions.note("ses_1", SessionCreated())
    sessions.join("run_1", replace(ACCEPTED, session_id="ses_2"))
    assert stirred == ["ses_1", "ses_2", "ses_2"]
    assert sessions["ses_2"].runs == ["run_1"]


def test_what_is_refused_leaves_nothing(sessions, stirred):
    with pytest.raises(NotFound):
        sessions.note("ses_1", SessionRenamed(title="x"))
    with pytest.raises(IllegalEvent):
        sessions.note("ses_1", SessionCreated(), SessionRestored())
    assert (dict(sessions), stirred) == ({}, [])
    sessions.note("ses_1", SessionCreated())
    with pytest.raises(Conflict):
        sessions.note("ses_1", SessionCreated())
    sessions.note("ses_1", SessionDeleted())
    with pytest.raises(SessionGone):
        sessions.check_there("ses_1")
    sessions.check_there("ses_2")
