import io
import json
from contextlib import closing
from hashlib import sha256

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from holdfast.app import open_app
from holdfast.core.codec import decode_history, encode, link_messages
from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, UserMessage, plain
from holdfast.core.session import SessionCreated, SessionDeleted
from holdfast.errors import (
    Conflict,
    InvalidRequest,
    JournalDamaged,
    SessionGone,
    StoreError,
)
from holdfast.stores.archive import open_archive
from holdfast.stores.database import open_reader
from holdfast.stores.reading import link
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.transfer import (
    LONGEST_LINE,
    BlobLine,
    export,
    open_intake,
    parcels,
    read_lines,
)
from holdfast.testing.contracts import ACCEPTED as CONTRACT
from holdfast.testing.scripted import ScriptedModel, ScriptedTool

ENDED, LIVE = "run_aa11", "run_aa22"

pytestmark = pytest.mark.real_time


@pytest.fixture
def lines(journals):
    with open_archive(journals) as archive:
        return [line for run_id in archive.ids() for line in export(archive, run_id)]


@pytest.fixture
def elsewhere(tmp_path):
    return tmp_path / "elsewhere" / "journal.db"


def take_in(path, parcel, **how):
    with open_intake(path, now=lambda: 100.0) as intake:
        intake.take(parcel, **how)


def rows(path, run_id):
    with open_archive(path) as archive:
        archive.verify(run_id)
        return list(archive.rows(run_id)), list(archive.blobs(run_id))


def changed(lines, number, **fields):
    """These lines with one of them altered."""
    line = json.dumps(json.loads(lines[number]) | fields).encode()
    return [*lines[:number], line, *lines[number + 1 :]]


def test_a_header_then_blobs_then_events_as_they_are_stored(journals, lines):
    stored, blobs = rows(journals, ENDED)
    header, events = json.loads(lines[0]), lines[3 : 3 + len(stored)]
    assert header == {
        "holdfast_journal": 1,
        "run": ENDED,
        "events": len(stored),
        "blobs": 2,
        "masked": [],
        "masked_blobs": [],
    }
    assert [json.loads(line)["blob"] for line in lines[1:3]] == [name for name, _ in blobs]
    for row, line in zip(stored, events, strict=True):
        told = json.loads(line)
        assert (told["seq"], told["at"], told["sum"]) == (row.seq, row.at, row.sum.hex())
        assert b'"body":' + row.body in line


def test_what_is_taken_in_is_what_was_exported(journals, lines, elsewhere):
    for parcel in parcels(lines):
        take_in(elsewhere, parcel)
    for run_id in (ENDED, LIVE):
        assert rows(elsewhere, run_id) == rows(journals, run_id)
    with open_archive(elsewhere) as archive:
        assert archive.unfinished() == [LIVE]


async def test_a_run_that_had_not_ended_goes_on_where_it_is_taken(lines, elsewhere):
    for parcel in parcels(lines):
        take_in(elsewhere, parcel)
    async with open_app(data=elsewhere.parent, work=False) as app:
        state = await app.runs.state(LIVE)
        await app.runs.stop(LIVE)
        after = await app.runs.state(LIVE)
        assert state.status.live and after.status.final
        lease = await app.means.store.seize(LIVE, "w", ttl=10)
    assert lease is None
    assert state.epoch == 1


def test_a_run_that_is_there_already_is_refused(journals, lines):
    first, _ = parcels(lines)
    with pytest.raises(Conflict, match="run run_aa11 is here already"):
        take_in(journals, first)


def test_secrets_are_masked_and_the_header_says_where(journals, elsewhere):
    secrets = ("a story", "blue blue", 'say "no"')
    with open_archive(journals) as archive:
        masked = [list(export(archive, id, secrets=secrets)) for id in archive.ids()]
    header, live = json.loads(masked[0][0]), json.loads(masked[1][0])
    assert len(header["masked_blobs"]) == 1
    assert live["masked"] == [1]
    everything = b"".join(masked[0] + masked[1])
    assert b"a story" not in everything and b"blue blue" not in everything
    for parcel in parcels([line for run in masked for line in run]):
        take_in(elsewhere, parcel)
    with open_archive(elsewhere) as archive:
        archive.verify(LIVE)
        archive.verify(ENDED)
        (first, *_) = archive.events(LIVE)
        assert first.event.input[0].text == "[masked]"
        # A masked blob has a name of its own.
        assert {name for name, _ in archive.blobs(ENDED)} >= set(header["masked_blobs"])
        assert any(b"[masked]" in body for _, body in archive.blobs(ENDED))


async def test_a_secret_is_found_however_it_is_spelled(tmp_path):
    secret = 'back\\slash and "quotes" and ü'
    async with open_app(data=tmp_path, work=False) as app:
        await app.runs.accept(app.prepare(secret), run_id="run_1")
        await app.runs.accept(app.prepare(json.dumps(secret, ensure_ascii=False)), run_id="run_2")
    with open_archive(tmp_path / "journal.db") as archive:
        for run_id in archive.ids():
            lines = b"".join(export(archive, run_id, secrets=[secret])).decode()
            assert "[masked]" in lines
            assert "quotes" not in lines


@pytest.mark.parametrize(
    ("number", "fields", "what"),
    [
        (5, {"seq": 7}, "damaged at 3: it is missing"),
        (5, {"at": 1.5}, "damaged at 3: it does not match its checksum"),
        (5, {"sum": "00"}, "damaged at 3: it does not match its checksum"),
        (5, {"sum": "no"}, "damaged at 3: it does not match its checksum"),
        (5, {"body": {"type": "run.completed"}}, "damaged at 3: it does not match its checksum"),
        (1, {"data": "AAAA"}, "damaged at 1: blob .* is not what it was"),
    ],
)
def test_what_is_not_what_was_exported_is_refused(lines, elsewhere, number, fields, what):
    with pytest.raises(JournalDamaged, match=what):
        take_in(elsewhere, next(parcels(changed(lines, number, **fields))))
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("number", "body", "what"),
    [
        (5, {"typ": "model.text"}, "damaged at 3: a stored event cannot be read"),
        (3, {"type": "run.completed"}, "damaged at 1: a run begins by being accepted"),
        (5, {"type": "run.completed"}, "damaged at 4: it comes after the end"),
        (
            5,
            {"type": "run.accepted", "input": [], "models": []},
            "damaged at 12: RunAccepted cannot",
        ),
    ],
)
def test_a_mask_excuses_no_nonsense(lines, elsewhere, number, body, what):
    masked = changed(changed(lines, 0, masked=[1, 3]), number, body=body)
    with pytest.raises(JournalDamaged, match=what):
        take_in(elsewhere, next(parcels(masked)))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: [b"nonsense"], "line 1 is not a line of an exported journal"),
        (lambda lines: lines[:6], "the lines end in the middle of run run_aa11"),
        (lambda lines: lines[:1] + lines[2:], "line 3 is not a line of an exported journal"),
        (lambda lines: changed(lines, 0, holdfast_journal=2), "line 1 was written by a newer"),
        (lambda lines: [b"\xff"], "line 1 is not a line"),
    ],
)
def test_lines_that_are_no_journal_are_refused(lines, spoil, sentence):
    with pytest.raises(StoreError, match=sentence):
        list(parcels(spoil(lines)))


def test_a_file_that_cannot_be_written_is_a_sentence(lines, journals, spoil):
    spoil("drop table blob_use")
    spoil("update run set id = id || '0'")
    with pytest.raises(StoreError, match="cannot be written"):
        take_in(journals, next(parcels(lines)))
    with open_archive(journals) as archive:
        assert ENDED not in archive.ids()


# --- what leaves


@pytest.mark.parametrize(
    "secret", ["pass\\word\\", "run.accepted", '"type":"text"', "approval_timeout"]
)
async def test_what_is_masked_is_still_a_journal(tmp_path, elsewhere, secret):
    async with open_app(data=tmp_path, work=False) as app:
        await app.runs.accept(app.prepare(f"use {secret}, please"), run_id="run_1")
    with open_archive(tmp_path / "journal.db") as archive:
        lines = list(export(archive, "run_1", secrets=[secret]))
    (parcel,) = parcels(lines)
    take_in(elsewhere, parcel)
    with open_archive(elsewhere) as archive:
        (first,) = archive.events("run_1")
    assert first.event.input[0].text == "use [masked], please"


async def test_a_secret_that_came_in_pieces_does_not_leave(tmp_path):
    model = ScriptedModel(["the key is sk-ve", "ry-sec", "ret, keep it"])
    async with open_app(data=tmp_path, models={"m": model}, tools=[]) as app:
        await app.runs.accept(app.prepare("what is the key?"), run_id="run_1")
        [_ async for _ in app.runs.follow("run_1")]
    with open_archive(tmp_path / "journal.db") as archive:
        header, *lines = map(json.loads, export(archive, "run_1", secrets=["sk-very-secret"]))
    bodies = [line["body"] for line in lines]
    said = [body["text"] for body in bodies if body["type"] == "model.text"]
    (replied,) = (body["text"] for body in bodies if body["type"] == "model.replied")
    assert "".join(said) == replied == "the key is [masked], keep it"
    assert len(header["masked"]) == len(said) + 1


async def test_a_picture_in_a_history_is_found_under_its_new_name(tmp_path, elsewhere):
    def kept(body):
        return BlobRef(sha256(body).hexdigest(), len(body))

    picture = b"a picture of sk-very-secret"
    history = msgspec.json.encode((UserMessage(parts=(Image(blob=kept(picture)),)),))
    accepted = RunAccepted(input=(Text("x"),), models=(ModelChoice("m"),), history=(kept(history),))
    blobs = {kept(body).sha256: body for body in (picture, history)}
    async with open_app(data=tmp_path, work=False) as app:
        await app.means.store.accept("run_1", accepted, blobs=blobs)
    with open_archive(tmp_path / "journal.db") as archive:
        lines = list(export(archive, "run_1", secrets=["sk-very-secret"]))
        whole = list(export(archive, "run_1"))
    assert b"sk-very" not in b"".join(lines)
    (parcel,) = parcels(lines)
    take_in(elsewhere, parcel)
    missing = [line for line in whole if kept(picture).sha256.encode() not in line[:80]]
    (parcel,) = parcels(changed(missing, 0, blobs=1))
    with pytest.raises(JournalDamaged, match="did not come with it"):
        take_in(elsewhere, parcel)


def kept(body):
    return BlobRef(sha256(body).hexdigest(), len(body))


PICTURE = b"a picture of sk-very-secret"
SAID = (
    UserMessage(parts=(Text("my key is sk-very-secret"), Image(blob=kept(PICTURE)))),
    AssistantMessage(text="I will not tell"),
    UserMessage(parts=(Text("good"),)),
    AssistantMessage(text="yes"),
)


@pytest.fixture
def talked(tmp_path):
    """Two runs with the same conversation, the second with more of it."""
    path = tmp_path / "talked" / "journal.db"

    async def talk():
        async with open_sqlite(path) as store:
            for run_id, length in (("run_1", 2), ("run_2", 4)):
                links = link_messages(SAID[:length])
                first = replace(CONTRACT, history=(kept(links[-1].body),))
                blobs = {kept(PICTURE).sha256: PICTURE}
                await store.accept(run_id, first, blobs=blobs, history=links)

    anyio.run(talk)
    return path


def links_in(path):
    with closing(open_reader(path)) as db:
        return [db.execute(f"select count(*) from {name}").get for name in ("link", "link_use")]


def test_a_conversation_leaves_with_its_run_and_is_kept_once_where_it_is_taken(talked, elsewhere):
    with open_archive(talked) as archive:
        lines = [line for run_id in archive.ids() for line in export(archive, run_id)]
    for parcel in parcels(lines):
        take_in(elsewhere, parcel)
    assert links_in(elsewhere) == links_in(talked) == [4, 2]
    for run_id in ("run_1", "run_2"):
        assert rows(elsewhere, run_id) == rows(talked, run_id)


def test_a_conversation_is_masked_from_its_first_message_on(talked, elsewhere):
    with open_archive(talked) as archive:
        lines = list(export(archive, "run_2", secrets=["sk-very-secret"]))
    assert len(json.loads(lines[0])["masked_blobs"]) == 5
    (parcel,) = parcels(lines)
    assert all(b"sk-very" not in blob.data for blob in parcel.blobs)
    take_in(elsewhere, parcel)
    _, blobs = rows(elsewhere, "run_2")
    assert len(blobs) == 5 and links_in(elsewhere) == [4, 1]
    said = [decode_history((body,)) for _, body in blobs if body.startswith(b"{")]
    words = {plain(m.parts) for (m,) in said if isinstance(m, UserMessage)}
    assert words == {"my key is [masked]", "good"}


@pytest.mark.parametrize("missing", range(4))
def test_a_conversation_of_which_a_message_is_missing_is_refused(talked, elsewhere, missing):
    with open_archive(talked) as archive:
        lines = list(export(archive, "run_2"))
    name = link_messages(SAID)[missing].name.encode()
    left = [line for line in lines if not line.startswith(b'{"blob":"' + name)]
    (parcel,) = parcels(changed(left, 0, blobs=4))
    with pytest.raises(JournalDamaged, match=f"blob {name.decode()} did not come with it"):
        take_in(elsewhere, parcel)


def test_a_run_that_is_damaged_does_not_leave(journals, spoil):
    spoil("update event set at = at + 1 where seq = 3")
    with open_archive(journals) as archive, pytest.raises(JournalDamaged, match="damaged at 3"):
        next(export(archive, ENDED))


def test_what_cannot_be_searched_does_not_leave(elsewhere):
    deep = b'{"type":"from.the.future","x":' + b"[" * 700 + b"]" * 700 + b"}"
    take_in(elsewhere, packed(ACCEPTED, deep), trust=True)
    with open_archive(elsewhere) as archive:
        assert len(list(export(archive, "run_1"))) == 3
        with pytest.raises(JournalDamaged, match="it cannot be searched for secrets"):
            list(export(archive, "run_1", secrets=["sk-very-secret"]))


# --- what comes from anybody

ACCEPTED = {
    "type": "run.accepted",
    "input": [{"type": "text", "text": "hi"}],
    "models": [{"name": "demo"}],
}
STARTED = {"type": "run.started", "worker": "w", "epoch": 1}
CALLED = {"type": "model.called", "turn": 1, "attempt": 1, "model": "demo"}
NOTE = {"id": "c1", "tool": "keep_note", "arguments": "{}", "gate": "auto", "key": "k"}
REPLIED = {"type": "model.replied", "turn": 1, "attempt": 1, "text": "x", "calls": [NOTE]}
ASKED = {"type": "approval.requested", "approval_id": "a1", "call_id": "c1", "tool": "keep_note"}
GRANTED = {"type": "approval.answered", "approval_id": "a1", "choice": "session"}


def packed(*events, run="run_1", at=1.0, **header):
    """As `export` would have written it, every sum right."""
    lines = [{"holdfast_journal": 1, "run": run, "events": len(events), **header}]
    out, chain = [json.dumps(lines[0]).encode()], b""
    for seq, event in enumerate(events, 1):
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        chain = link(chain, seq, at, body)
        line = b'{"seq":%d,"at":%r,"body":%b,"sum":"%b"}'
        out.append(line % (seq, at, body, chain.hex().encode()))
    (parcel,) = parcels(out)
    return parcel


@pytest.mark.parametrize("at", [1e300, -1.0, 253_402_300_800.0])
def test_a_time_that_no_clock_shows_is_refused(elsewhere, at):
    with pytest.raises(JournalDamaged, match="damaged at 1: its time is none that a clock shows"):
        take_in(elsewhere, packed(ACCEPTED, at=at))


@pytest.mark.parametrize("epoch", [0, -1, 2**53, 2**63 - 1, 2**63])
def test_an_epoch_that_no_worker_has_is_refused(elsewhere, epoch):
    with pytest.raises(JournalDamaged, match="damaged at 2: its epoch is none that a worker has"):
        take_in(elsewhere, packed(ACCEPTED, STARTED | {"epoch": epoch}))


@pytest.mark.parametrize("event", [{"type": "from.the.future"}, {"type": "run.cancelled"}])
def test_nothing_comes_after_the_end(elsewhere, event):
    ended = (ACCEPTED, {"type": "stop.requested"}, {"type": "run.cancelled"})
    with pytest.raises(JournalDamaged, match="damaged at 4: it comes after the end of the run"):
        take_in(elsewhere, packed(*ended, event))


def test_a_blob_that_the_run_needs_has_to_come_with_it(elsewhere):
    ref = {"sha256": "0" * 64, "size": 5}
    picture = {"type": "image", "blob": ref}
    for needs in ({"history": [ref]}, {"input": [picture]}):
        with pytest.raises(JournalDamaged, match=r"damaged at 1: blob 0+ did not come with it"):
            take_in(elsewhere, packed(ACCEPTED | needs))
    for later in ({"type": "input.added", "parts": [picture]},):
        with pytest.raises(JournalDamaged, match=r"damaged at 2: blob 0+ did not come with it"):
            take_in(elsewhere, packed(ACCEPTED, later))


def test_a_history_has_to_be_a_conversation(elsewhere):
    for said, refused in ((b'[{"role":"assistant","text":"so"}]', False), (b"nonsense", True)):
        name = sha256(said).hexdigest()
        parcel = packed(ACCEPTED | {"history": [{"sha256": name, "size": len(said)}]}, run=name)
        parcel = replace(parcel, blobs=[BlobLine(name, said)])
        if refused:
            with pytest.raises(JournalDamaged, match="a stored conversation cannot be read"):
                take_in(elsewhere, parcel)
        else:
            take_in(elsewhere, parcel)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        take_in(tmp_path / "file" / "data" / "journal.db", packed(ACCEPTED))


@pytest.mark.parametrize(
    "run", ["", "\x1b[31mred", "a\nb", "x" * 129, "a\0b", "a b", "../x", "a/b", "a\\b", "\u202e"]
)
def test_what_is_no_id_is_refused(elsewhere, run):
    with pytest.raises(JournalDamaged, match="that is no id of a run"):
        take_in(elsewhere, packed(ACCEPTED, run=run))
    assert not elsewhere.exists()


@pytest.mark.parametrize("run", ["x", "-x", "läuft", "x" * 128, "a.b"])
def test_an_id_may_look_odd(elsewhere, run):
    take_in(elsewhere, packed(ACCEPTED, run=run))
    with open_archive(elsewhere) as archive:
        assert archive.ids() == [run]


def test_counts_that_cannot_be_are_no_trouble(elsewhere):
    take_in(elsewhere, packed(ACCEPTED, masked=[2**80, -1], blobs=-1))
    with pytest.raises(StoreError, match="the lines end in the middle"):
        packed(blobs=2**60)


async def test_a_call_that_was_open_does_not_run_unasked(tmp_path):
    """The lines say that it may, and that somebody agreed; anybody can write lines."""
    yes = GRANTED | {"choice": "once"}
    for run, events in {"run_1": (), "run_2": (ASKED,), "run_3": (ASKED, yes)}.items():
        story = (ACCEPTED, STARTED, CALLED, REPLIED, *events)
        take_in(tmp_path / "data" / "journal.db", packed(*story, run=run))
    tool, model = ScriptedTool("keep_note"), ScriptedModel(["Fine."], ["Fine."], ["Fine."])
    async with open_app(data=tmp_path / "data", models={"demo": model}, tools=[tool]) as app:
        for run in ("run_1", "run_2", "run_3"):
            told = [recorded.event async for recorded in app.runs.follow(run)]
            (finished,) = (event for event in told if type(event).__name__ == "ToolFinished")
            assert finished.outcome == "not_started"
            assert (await app.runs.state(run)).output == "Fine."
    assert tool.effects == []


async def test_a_call_that_is_trusted_runs_as_the_lines_say(tmp_path):
    accepted = ACCEPTED | {"tools": [{"name": "keep_note"}]}
    parcel = packed(accepted, STARTED, CALLED, REPLIED)
    take_in(tmp_path / "data" / "journal.db", parcel, trust=True)
    tool = ScriptedTool("keep_note")
    models = {"demo": ScriptedModel(["Fine."])}
    async with open_app(data=tmp_path / "data", models=models, tools=[tool]) as app:
        [_ async for _ in app.runs.follow("run_1")]
    assert tool.effects == ["c1"]


def test_a_call_that_had_begun_is_left_in_doubt(elsewhere):
    story = (ACCEPTED, STARTED, CALLED, REPLIED, {"type": "tool.started", "call_id": "c1"})
    take_in(elsewhere, packed(*story, {"type": "run.queued", "why": "drained"}))
    with open_archive(elsewhere) as archive:
        archive.verify("run_1")
        *_, started, finished, queued = (recorded.event for recorded in archive.events("run_1"))
    assert (started.epoch, finished.outcome, queued.why) == (2, "unknown", "drained")


@pytest.mark.parametrize(
    ("events", "what"),
    [
        (
            (STARTED, CALLED, REPLIED, ASKED, GRANTED),
            "a yes in it stands for whatever else keep_no",
        ),
        (({"type": "from.the.future"},), "from.the.future in it was written by a newer version"),
    ],
)
def test_a_standing_yes_and_what_nobody_knows_have_to_be_trusted(elsewhere, events, what):
    parcel = packed(ACCEPTED, *events)
    with pytest.raises(InvalidRequest, match=rf"run run_1 has not ended, and {what}.*--trust"):
        take_in(elsewhere, parcel)
    assert not elsewhere.exists()
    take_in(elsewhere, parcel, trust=True)
    assert len(rows(elsewhere, "run_1")[0]) == len(parcel.events)


def test_what_is_being_stopped_is_taken_as_it_is(elsewhere):
    parcel = packed(ACCEPTED, STARTED, CALLED, REPLIED, {"type": "stop.requested"})
    take_in(elsewhere, parcel)
    assert len(rows(elsewhere, "run_1")[0]) == len(parcel.events)


# --- beside others


def test_runs_are_taken_in_beside_a_reader(lines, elsewhere):
    first, second = parcels(lines)
    take_in(elsewhere, first)
    reader = open_reader(elsewhere)
    reader.execute("begin")
    reader.execute("select count(*) from run").fetchall()
    try:
        take_in(elsewhere, second)
    finally:
        reader.close()
    assert rows(elsewhere, LIVE)


def test_a_line_without_end_is_not_read_to_its_end():
    class Endless:
        def readline(self, limit):
            assert limit <= LONGEST_LINE + 1
            return b"0" * limit

    with pytest.raises(StoreError, match="a line is longer than any of an exported journal"):
        next(read_lines(Endless()))
    assert list(read_lines(io.BytesIO(b"a\nb"))) == [b"a\n", b"b"]


def of_session(*run_ids):
    """Lines of runs of one session that have not ended."""
    asked = RunAccepted(input=(Text("hi"),), models=(ModelChoice("m"),), session_id="ses_1")
    body = encode(asked)
    for run_id in run_ids:
        yield json.dumps({"holdfast_journal": 1, "run": run_id, "events": 1}).encode()
        sum = link(b"", 1, 5.0, body).hex()
        yield b'{"seq":1,"at":5.0,"body":%b,"sum":"%b"}' % (body, sum.encode())


async def test_of_a_session_one_run_goes_at_a_time_wherever_it_comes_from(elsewhere):
    for parcel in parcels(of_session("run_1", "run_2")):
        take_in(elsewhere, parcel)
    async with open_sqlite(elsewhere) as store:
        members = await store.members("ses_1")
        assert [(member.ordinal, member.run_id) for member in members] == [
            (2, "run_2"),
            (1, "run_1"),
        ]
        assert list(await store.queue()) == ["run_1"]


async def test_a_run_of_a_session_that_was_deleted_is_refused(elsewhere):
    async with open_sqlite(elsewhere) as store:
        await store.note("ses_1", SessionCreated(), SessionDeleted())
    (parcel,) = parcels(of_session("run_1"))
    with pytest.raises(SessionGone):
        take_in(elsewhere, parcel)
    async with open_sqlite(elsewhere) as store:
        assert len(await store.sessions(deleted=True)) == 1
