import json
import shutil
from contextlib import aclosing

import anyio
import apsw
import pytest
from msgspec.structs import replace

from holdfast.app import open_app
from holdfast.config.places import JOURNAL
from holdfast.core.entries import Mark, Reply, Said
from holdfast.core.events import TextStreamed
from holdfast.core.luggage import pack
from holdfast.core.session import SessionArchived, SessionCreated, SessionPinned, SessionRenamed
from holdfast.errors import InvalidRequest, JournalDamaged, NotFound, SessionGone
from holdfast.stores.archive import open_archive
from holdfast.stores.archive_sessions import ArchivedSessions
from holdfast.stores.reading import link
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence

pytestmark = pytest.mark.real_time


async def make(folder):
    """A session with an answered turn, one under way and one that waits; and three empty ones."""
    model = ScriptedModel([Call("pay")], ["Fer", "ns."], ["Sunf", Silence()])
    async with open_app(data=folder, models={"m": model}, tools=[ScriptedTool("pay")]) as app:
        sessions = app.sessions
        for session_id, title in (("ses_aa2", "Old"), ("ses_bb1", "Gone"), ("other", "")):
            await sessions.create(session_id, SessionCreated(title=title))
        await sessions.change("ses_aa2", SessionArchived(archived=True))
        await sessions.delete("ses_bb1")
        run_id = await say(app, "shade?")
        [_ async for _ in app.runs.follow(run_id)]
        run_id = await say(app, "sun?")
        await say(app, "rain?")
        await sessions.change("ses_aa1", SessionPinned(pinned=True), SessionRenamed(title="Plants"))
        async with aclosing(app.runs.follow(run_id)) as journal:
            async for recorded in journal:
                if isinstance(recorded.event, TextStreamed):
                    shutil.copytree(folder, folder.with_name("live"))
                    return


async def say(app, text):
    asked = app.prepare(text)
    return (await app.sessions.send(replace(asked, session_id="ses_aa1"))).run_id


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "data"
    anyio.run(make, folder)
    return folder.with_name("live")


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made, tmp_path / "data") / JOURNAL


@pytest.fixture
def sessions(path):
    with open_archive(path) as archive:
        yield ArchivedSessions(archive)


def spoil(path, statement, *values):
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


def test_sessions_are_listed_as_whoever_owns_them_would(sessions):
    def ids(**how):
        return [entry.session_id for entry in sessions.list(**how)]

    assert ids() == ["ses_aa1", "other"]
    assert ids(archived=None) == ["ses_aa1", "other", "ses_aa2"]
    assert ids(archived=True) == ["ses_aa2"]
    assert ids(deleted=True) == ["ses_bb1"]
    assert ids(limit=1) == ["ses_aa1"]
    assert len(sessions.ids()) == 4
    entry = sessions.entry("ses_aa1")
    assert (entry.state.name, entry.state.runs, entry.live) == ("Plants", 3, 2)
    assert [member.ordinal for member in sessions.members("ses_aa1")] == [1, 2, 3]


def test_an_id_may_be_shortened_as_long_as_it_is_clear(sessions):
    assert sessions.find("ses_aa1") == sessions.find("aa1") == "ses_aa1"
    assert sessions.find("oth") == "other"
    with pytest.raises(InvalidRequest, match="2 sessions begin with aa: ses_aa1, ses_aa2; type"):
        sessions.find("aa")
    for word in ("", "ses_c", "\ud800", "bb"):
        with pytest.raises(NotFound):
            sessions.find(word)


def test_one_that_was_deleted_is_found_by_who_wants_it_back(sessions):
    with pytest.raises(SessionGone):
        sessions.find("ses_bb1")
    assert sessions.find("bb", deleted=True) == sessions.find("ses_bb1", deleted=True) == "ses_bb1"


def test_a_transcript_has_a_marker_where_nobody_carries_a_run(sessions):
    told = list(sessions.transcript("ses_aa1", lives=False, now=0.0))[::-1]
    words = [e.parts[0].text for e in told if isinstance(e, Said)]
    assert words == ["shade?", "sun?", "rain?"]
    assert [e.text for e in told if isinstance(e, Reply)] == ["Ferns.", "Sunf"]
    (mark,) = [entry for entry in told if isinstance(entry, Mark)]
    assert (mark.meaning, mark.ordinal) == ("still_arriving", 2)
    told = list(sessions.transcript("ses_aa1", lives=True, now=0.0))
    assert not any(isinstance(entry, Mark) for entry in told)


def test_all_of_it_can_be_packed(sessions):
    document = json.loads(pack(sessions.luggage("ses_aa1")))
    assert [run["ordinal"] for run in document["runs"]] == [1, 2, 3]
    with pytest.raises(NotFound):
        sessions.luggage("ses_0")


def test_what_is_as_it_was_written_is_verified(sessions):
    assert [sessions.verify(id) for id in sessions.ids()] == [2, 2, 1, 6]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update session_event set body = cast('{\"a\":1}' as blob) where seq = 2", "at 2: it is"),
        ("update session_event set at = 1.0 where seq = 3", "at 3: it is missing or is not"),
        ("update session_event set at = 'x' where seq = 3", "at 3: it is missing or is not"),
        ("delete from session_event where seq = 4", "at 4: it is missing"),
        ("delete from session_event where seq = 6", "at 6: what is listed of it"),
        ("delete from session_event", "at 1: what is listed of it"),
        ("update session set name = 'x'", "at 7: what is listed of it"),
        ("update session set pinned = 0", "at 7: what is listed of it"),
        ("update session set moved_at = 1.0", "at 7: what is listed of it"),
        ("update session set state = cast('{}' as blob)", "at 7: what is listed of it"),
        ("update session set sum = x'00'", "at 7: what is listed of it"),
        ("update run set ordinal = 9 where ordinal = 2", "at 6: its runs are not those"),
        ("update run set session = '' where ordinal = 2", "at 6: its runs are not those"),
    ],
)
def test_what_is_not_as_it_was_written_is_named(path, statement, said):
    spoil(path, statement)
    with open_archive(path) as archive:
        with pytest.raises(JournalDamaged, match=f"session ses_aa1 is damaged {said}"):
            ArchivedSessions(archive).verify("ses_aa1")


def test_a_state_that_is_no_state_is_damage_and_no_accident(path):
    spoil(path, "update session set state = 5 where id = 'other'")
    with open_archive(path) as archive:
        sessions = ArchivedSessions(archive)
        with pytest.raises(JournalDamaged, match=r"session other .* what is listed of it"):
            sessions.verify("other")
        # It hides no other.
        assert [entry.session_id for entry in sessions.list()] == ["ses_aa1"]


def test_a_journal_that_cannot_be_is_damage(path):
    body = b'{"type":"session.restored"}'
    chain = link(b"", 1, 5.0, body)
    where = "session = (select key from session where id = 'other')"
    spoil(path, f"update session_event set at = 5.0, body = ?, sum = ? where {where}", body, chain)
    with open_archive(path) as archive:
        with pytest.raises(JournalDamaged, match="session other is damaged at 1: a session begins"):
            ArchivedSessions(archive).verify("other")


def test_a_file_of_an_older_version_has_no_sessions(path, tmp_path):
    spoil(path, "pragma user_version = 2")
    for file in (path, tmp_path / "no" / JOURNAL):
        with open_archive(file) as archive:
            sessions = ArchivedSessions(archive)
            assert (list(sessions.list()), list(sessions.ids())) == ([], [])
            for missing in (sessions.find, sessions.entry, sessions.notes, sessions.members):
                with pytest.raises(NotFound):
                    missing("ses_aa1")
            with pytest.raises(NotFound):
                sessions.verify("ses_aa1")
