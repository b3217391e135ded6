from hashlib import sha256

import msgspec
import pytest

from holdfast.core.codec import decode_history, link_messages
from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, UserMessage
from holdfast.errors import NotFound, StoreError
from holdfast.stores.database import open_writer
from holdfast.stores.keeping import COLLECTED, collect, keep, look_up, look_up_chain, purge_runs
from holdfast.stores.sessions import purge

PICTURE = b"a picture " * 100
SHOWN = BlobRef(sha256(PICTURE).hexdigest(), len(PICTURE))


@pytest.fixture
def db(tmp_path):
    connection = open_writer(tmp_path / "journal.db")
    yield connection
    connection.close()


def runs(db, count):
    for key in range(1, count + 1):
        insert = "insert into run (key, id, place, accepted_at) values (?, ?, 'ended', 1.0)"
        db.execute(insert, (key, f"run_{key}"))


def talk(turns):
    """A conversation of so many turns, with a picture in the first."""
    messages = [UserMessage(parts=(Image(blob=SHOWN),))]
    for turn in range(turns):
        messages += [
            AssistantMessage(text=f"answer {turn} " * 50),
            UserMessage(parts=(Text("go"),)),
        ]
    return link_messages(messages)


def count(db, table):
    return db.execute(f"select count(*) from {table}").get


def test_a_conversation_that_comes_again_costs_what_is_new(db):
    runs(db, 20)
    for turn in range(20):
        keep(db, turn + 1, {SHOWN.sha256: PICTURE}, [talk(turn)])
    assert count(db, "link") == 39
    assert count(db, "link_use") == 20
    assert (count(db, "blob"), count(db, "blob_use"), count(db, "link_blob")) == (1, 0, 1)
    assert [*look_up_chain(db, talk(19)[-1].name)] == [link.body for link in talk(19)]


def test_conversations_that_part_share_what_they_have_in_common(db):
    runs(db, 2)
    said = [UserMessage(parts=(Text("hi"),)), AssistantMessage(text="yes")]
    other = [said[0], AssistantMessage(text="no")]
    keep(db, 1, {}, [link_messages(said)])
    keep(db, 2, {}, [link_messages(other)])
    assert count(db, "link") == 3
    for messages in (said, other):
        head = link_messages(messages)[-1].name
        assert [*decode_history(look_up_chain(db, head))] == messages


def test_a_blob_that_is_in_no_message_is_the_run_s_own(db):
    runs(db, 1)
    keep(db, 1, {SHOWN.sha256: PICTURE, "ab": b"c"}, [talk(1), ()])
    assert db.execute("select sha256 from blob_use").fetchall() == [("ab",)]


def test_a_blob_that_compresses_well_is_stored_so_and_read_as_it_was(db):
    runs(db, 1)
    keep(db, 1, {SHOWN.sha256: PICTURE})
    assert db.execute("select length(body) < 100 from blob").get == 1
    assert look_up(db, SHOWN.sha256) == PICTURE


def test_a_conversation_is_gone_when_no_run_uses_it_and_no_sooner(db):
    runs(db, 2)
    keep(db, 1, {SHOWN.sha256: PICTURE}, [talk(3)])
    keep(db, 2, {}, [talk(5)])
    db.execute("delete from link_use where run = 2")
    collect(db, "")
    assert (count(db, "link"), count(db, "blob")) == (7, 1)
    db.execute("delete from link_use where run = 1")
    collect(db, "")
    assert (count(db, "link"), count(db, "link_blob"), count(db, "blob")) == (0, 0, 0)


def test_a_long_conversation_is_collected_in_one_go(db):
    runs(db, 1)
    keep(db, 1, {SHOWN.sha256: PICTURE}, [talk(COLLECTED)])
    db.execute("delete from link_use")
    collect(db, talk(COLLECTED)[-1].name)
    assert count(db, "link") == 0


def test_a_base_that_no_event_is_packed_against_is_collected(db):
    runs(db, 1)
    for key in (1, 2):
        db.execute("insert into base (key, sha256, body) values (?, ?, x'00')", (key, str(key)))
    db.execute("insert into event (run, seq, at, sum, base) values (1, 1, 1.0, x'00', 2)")
    collect(db, "")
    assert db.execute("select key from base").fetchall() == [(2,)]


def test_a_conversation_in_one_piece_is_read_as_it_was(db):
    runs(db, 1)
    whole = msgspec.json.encode((UserMessage(parts=(Text("hi"),)),))
    name = sha256(whole).hexdigest()
    keep(db, 1, {name: whole})
    assert look_up_chain(db, name) == [whole]


def test_what_is_not_there_is_not_found(db):
    for look in (look_up, look_up_chain):
        with pytest.raises(NotFound, match="blob nothing"):
            look(db, "nothing")


@pytest.mark.parametrize(
    "change", ["body = x'00'", "body = 'text'", "pressed = 0", "body = cast(body || x'00' as blob)"]
)
def test_a_conversation_that_was_changed_is_not_read(db, change):
    runs(db, 1)
    keep(db, 1, {SHOWN.sha256: PICTURE}, [talk(2)])
    db.execute(f"update link set {change} where key = 2")
    with pytest.raises(StoreError, match="is not what was written"):
        look_up_chain(db, talk(2)[-1].name)


def test_a_conversation_of_which_a_part_is_gone_is_not_read(db):
    runs(db, 1)
    keep(db, 1, {SHOWN.sha256: PICTURE}, [talk(2)])
    db.execute("update link set before = null where key = 3")
    with pytest.raises(NotFound, match=talk(2)[1].name):
        look_up_chain(db, talk(2)[-1].name)


def test_a_picture_that_is_nowhere_is_not_kept_for_anybody(db):
    runs(db, 1)
    keep(db, 1, {}, [talk(2)])
    assert (count(db, "link"), count(db, "link_blob"), count(db, "blob")) == (5, 0, 0)


def test_a_conversation_goes_with_the_session_it_came_to(db):
    runs(db, 1)
    db.execute("update run set session = 's'")
    db.execute(
        "insert into session (id, name, pinned, archived, moved_at, deleted_at, state, sum)"
        " values ('s', '', 0, 0, 1.0, 1.0, x'00', x'00')"
    )
    keep(db, 1, {SHOWN.sha256: PICTURE}, [talk(3)])
    assert purge(db, before=2.0) == {"s": ["run_1"]}
    collect(db, "")
    assert (count(db, "link"), count(db, "link_use"), count(db, "blob")) == (0, 0, 0)


def test_what_only_a_deleted_run_needed_goes_with_it_and_nothing_else(db):
    runs(db, 2)
    keep(db, 1, {SHOWN.sha256: PICTURE, "own": b"o", "both": b"b"}, [talk(3)])
    keep(db, 2, {SHOWN.sha256: PICTURE, "both": b"b"}, [talk(1)])
    for key, name in ((1, "alone"), (2, "shared")):
        db.execute("insert into base (key, sha256, body) values (?, ?, x'00')", (key, name))
    for run, seq, base in ((1, 1, 1), (1, 2, 2), (2, 1, 2)):
        insert = "insert into event (run, seq, at, body, sum, base) values (?, ?, 1.0, x'', x'', ?)"
        db.execute(insert, (run, seq, base))
    assert purge_runs(db, before=9.0) == []
    db.execute("update run set deleted_at = 5.0 where key = 1")
    assert purge_runs(db, before=5.0) == []
    assert purge_runs(db, before=9.0) == ["run_1"]
    assert (count(db, "run"), count(db, "event"), count(db, "link_use")) == (1, 1, 1)
    assert [name for (name,) in db.execute("select sha256 from base")] == ["shared"]
    names = {name for (name,) in db.execute("select sha256 from blob")}
    assert names == {SHOWN.sha256, "both"}
    assert [*look_up_chain(db, talk(1)[-1].name)] == [link.body for link in talk(1)]
    assert count(db, "link") == len(talk(1))
    assert db.execute("select count(*) from pragma_foreign_key_check()").get == 0


def test_of_many_that_were_deleted_some_go_at_a_time(db):
    runs(db, 5)
    db.execute("update run set deleted_at = 1.0")
    assert [len(purge_runs(db, before=2.0, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("broken", ["run", "session"])
def test_what_has_to_go_goes_also_if_its_name_is_no_text_any_more(db, broken):
    runs(db, 3)
    db.execute(
        "insert into session (id, name, pinned, archived, moved_at, deleted_at, state, sum)"
        " values ('s', '', 0, 0, 1.0, 1.0, x'', x'')"
    )
    db.execute("update run set session = 's' where key = 1")
    db.execute("update run set deleted_at = 1.0 where key = 2")
    db.execute(f"update {broken} set id = cast(x'72f3' || key as text)")
    db.execute("update run set session = (select id from session) where key = 1")
    assert len(purge_runs(db, before=2.0)) == 1
    ((_, of_session),) = purge(db, before=2.0).items()
    assert len(of_session) == 1
    assert (count(db, "run"), count(db, "session")) == (1, 0)
