"""What must be true of a conversation, whatever happened to the server that has it.

`check_file` reads every session as it lies in the file, and `check` holds what anybody was told of one
against all that was ever seen of it; `check_end` holds what is left in the end against what people
said and what the model was shown, which it wrote down.
"""

import json
import os
import sys
from collections import Counter
from contextlib import closing, contextmanager
from hashlib import blake2b

import msgspec

from holdfast.app import JOURNAL
from holdfast.core.bookmark import Bookmark
from holdfast.core.events import (
    FINAL,
    ApprovalAnswered,
    ModelCalled,
    ModelRetracted,
    RunCancelled,
    RunCompleted,
    StopRequested,
)
from holdfast.core.fit import CUT_OFF
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.stores.database import open_reader
from holdfast.stores.reading import find, read
from holdfast.stores.sessions import members_of, session_entry

BLANK = "\n\n"
WORDS = ("here ", "is ", "what ", "comes ", "of ", "it.")


# --- what the model says ------------------------------------------------------------------


def where(shown):
    """What the model is at: the label of the message, the tools it is to use, and its turn."""
    at = max(n for n, (who, text) in enumerate(shown) if who == "user" and text[0] == "m")
    label, *tools = shown[at][1].split()
    return label, tools, sum(who == "model" for who, _ in shown[at:])


def reply_words(shown):
    label, _, turn = where(shown)
    return (f"[{label} {turn} {sum_of(json.dumps(shown))}] ", *WORDS)


def sum_of(text):
    return blake2b(text.encode(), digest_size=6).hexdigest()


def write_line(path, line):
    handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(handle, line.encode() + b"\n")
    os.close(handle)


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


# --- looking ------------------------------------------------------------------------------


class Shelf:
    """The file as it lies, for whoever only reads."""

    def __init__(self, db):
        self.db = db

    async def session(self, session_id):
        return session_entry(self.db, session_id)

    async def members(self, session_id, *, before=None, limit=20):
        return members_of(self.db, session_id, before=before, limit=limit)

    async def read(self, run_id, *, deleted=False, **page):
        page = {"after": 0, **page}
        return read(self.db, find(self.db, run_id, deleted=deleted)[0], **page)

    async def held(self, run_ids):
        return frozenset()

    # --- and more than sessions need

    def runs(self, session_id):
        """The runs of a session in order, each with where it is and its journal."""
        rows = self.db.execute(
            "select id, place, key from run where session = ? order by ordinal", (session_id,)
        ).fetchall()
        return [(id, place, read(self.db, key, after=0)) for id, place, key in rows]

    def end(self, session_id):
        """The place of somebody who has heard all of a session whose runs have ended."""
        state = session_entry(self.db, session_id).state
        return str(Bookmark(state.seq, state.runs + 1))

    def there(self, session_id):
        """A server that was killed early may not even have made the tables."""
        made = self.db.execute("select 1 from sqlite_schema where name = 'session'").get
        query = "select 1 from session where id = ?"
        return bool(made and self.db.execute(query, (session_id,)).get)

    def sum(self):
        """Of all that is stored."""
        tables = self.db.execute("select name from sqlite_schema where type = 'table'").fetchall()
        rows = [self.db.execute(f"select * from {name}").fetchall() for (name,) in tables]
        return blake2b(repr(rows).encode()).hexdigest()


@contextmanager
def shelf(folder):
    with closing(open_reader(folder / "data" / JOURNAL)) as db:
        yield Shelf(db)


async def look(sessions, session_id, limit=7):
    """The whole transcript, page by page from its end."""
    page = await sessions.page(session_id, limit=limit)
    entries = page.entries
    while page.earlier:
        page = await sessions.page(session_id, earlier=page.earlier, limit=limit)
        entries = (*page.entries, *entries)
    return msgspec.to_builtins(entries)


async def check_file(folder, people):
    """Read every session as it lies, and see that reading changed nothing."""
    if not (folder / "data" / JOURNAL).exists():
        return
    with shelf(folder) as store:
        before = store.sum(), files_sum(folder)
        means = Means(store=store, models={})
        sessions = Sessions(means, Runs(means), workers=lambda: False)
        for session in people.sessions:
            if store.there(session.id):
                runs = store.runs(session.id)
                entries = await look(sessions, session.id)
                assert entries == msgspec.to_builtins(
                    (await sessions.page(session.id, limit=sys.maxsize)).entries
                )
                check(session, entries, runs, runs)
                people.tally["looks"] += 1
                check_places(session, runs)
        assert (store.sum(), files_sum(folder)) == before, "reading changed something"


def files_sum(folder):
    """The database and its log, to the byte."""
    paths = [folder / "data" / JOURNAL, folder / "data" / f"{JOURNAL}-wal"]
    return [blake2b(path.read_bytes()).hexdigest() for path in paths if path.exists()]


def retracted(runs):
    """How often each turn was taken back."""
    return Counter(
        f"{run_id}.t{one.event.turn}"
        for run_id, _, journal in runs
        for one in journal
        if isinstance(one.event, ModelRetracted)
    )


def check(session, entries, before, after):
    """Never less than was seen, nothing twice, and all that people were told of.

    `before` and `after` are its runs as they were before and after somebody looked.
    """
    now = {entry["id"]: entry for entry in entries}
    assert len(now) == len(entries), f"an id twice: {[entry['id'] for entry in entries]}"
    places = [(entry["ordinal"], entry["seq"]) for entry in entries]
    assert places == sorted(places), f"out of order: {places}"
    check_said(session, now)
    removed = {message.run_id for message in session.own if message.removal != "no"}
    taken_back = retracted(after)
    for id, (old, count) in session.seen.items():
        again = taken_back[id] > count
        if id not in now:
            assert may_go(old, removed, again=again), f"it is gone: {old}"
        else:
            check_grown(old, now[id], again=again)
    for entry in entries:
        if entry["kind"] == "assistant":
            check_words(entry)
    taken_back = retracted(before)
    session.seen = {id: (entry, taken_back[id]) for id, entry in now.items()}


def may_go(old, removed, *, again):
    match old:
        case {"kind": "marker"} | {"kind": "notice", "what": "waiting"}:
            return True
        case {"kind": "assistant", "partial": True} if again:
            return True
    return old["run_id"] in removed


def check_grown(old, new, *, again):
    """It stands where it stood, and says at least what it said."""
    if old["kind"] == "marker":
        return
    kept = ("kind", "run_id", "ordinal", "turn", "name", "arguments", "call_id", "tool")
    assert [old.get(name) for name in kept] == [new.get(name) for name in kept], (old, new)
    if old["kind"] == "assistant" and old.get("partial") and again:
        return
    assert (old["seq"], old["at"]) == (new["seq"], new["at"]), (old, new)
    for name in ("text", "reasoning", "result"):
        assert new.get(name, "").startswith(old.get(name, "")), (old, new)
    if old.get("state") in ("done", "answered", "expired", "withdrawn"):
        assert old == new, (old, new)
    if old["kind"] == "assistant" and not old.get("partial"):
        assert old == new, (old, new)


def check_said(session, now):
    """Each message that was taken in is there once, in its order and its words."""
    ordinals = []
    for message in session.messages:
        entry = now.get(message.id)
        if entry is None:
            gone = message.sent != "yes" or message.removal != "no"
            assert gone or taken_away(session, message), f"it is lost: {message}"
            continue
        assert entry["kind"] == "user" and message.sent != "no", (entry, message)
        # Taken back at the very moment at which it began, it is stopped instead.
        assert message.removal != "yes" or not entry.get("queued"), (entry, message)
        words = "".join(part["text"] for part in entry["parts"])
        assert words in message.may_be, (words, message)
        if not entry.get("steered"):
            ordinals.append(entry["ordinal"])
    assert ordinals == sorted(set(ordinals)), f"out of order: {ordinals}"
    known = {message.id for message in session.messages}
    strange = [id for id, one in now.items() if one["kind"] == "user" and id not in known]
    assert not strange, f"nobody said {strange}"


def taken_away(session, message):
    """It was said to a run that was taken back before it began."""
    return message.steered and any(
        other.run_id == message.run_id and other.removal != "no" for other in session.own
    )


def check_words(entry):
    """No word twice, and none between."""
    whole = "".join(WORDS)
    head, bracket, rest = entry["text"].partition("] ") if entry.get("text") else ("", "", "")
    if bracket:
        assert whole.startswith(rest), entry
        assert entry.get("partial") or rest == whole, entry
        assert head.count("[") == 1, entry


def check_places(session, runs):
    """One run at a time, and nobody waits for one that has ended."""
    live = [(id, place, journal) for id, place, journal in runs if place != "ended"]
    for id, place, journal in runs:
        assert (place == "ended") == isinstance(journal[-1].event, FINAL), (id, place)
    if live:
        assert live[0][1] != "behind", f"it waits for nobody: {live[0][:2]}"
        others = [(id, place) for id, place, _ in live[1:] if place != "behind"]
        # One that was stopped while it waited is ended by whoever comes.
        stopped = {id for id, _, journal in live if kinds(journal) & {StopRequested}}
        assert {id for id, _ in others} <= stopped, f"two at a time: {live[0][:2]}, {others}"
    last = 0.0
    for _, _, journal in runs:
        calls = [one.at for one in journal if isinstance(one.event, ModelCalled)]
        if calls:
            assert calls[0] >= last, "it began before the one before it had ended"
            last = journal[-1].at


def kinds(journal):
    return {type(one.event) for one in journal}


# --- the end ------------------------------------------------------------------------------


def check_end(folder, people):
    """Everything has ended: what is told must follow from what was said and shown."""
    shown = [json.loads(line) for line in lines_of(folder / "shown")]
    replies = {sum_of(json.dumps([tuple(line) for line in one])): one for one in shown}
    with shelf(folder) as store:
        for session in people.sessions:
            entries = [entry for entry, _ in session.seen.values()]
            runs = store.runs(session.id)
            check_ends(session, runs)
            check_shown(session, entries, shown, runs)
            check_replies(entries, replies)
            check_answers(session, entries, runs)
            check_removals(session)
            people.tally["runs"] += len(runs)
            people.tally["entries"] += len(entries)
            people.tally["taken_back"] += sum(retracted(runs).values())
            people.tally["unknown"] += sum(one.get("outcome") == "unknown" for one in entries)
    check_effects(folder, people)


def check_ends(session, runs):
    for id, _, journal in runs:
        if not isinstance(journal[-1].event, RunCompleted):
            assert isinstance(journal[-1].event, RunCancelled), (id, journal[-1])
            assert StopRequested in kinds(journal), id
    there = {id for id, _, _ in runs}
    told = [message.run_id for message in session.own if message.sent == "yes"]
    assert len(told) == len(set(told)) and set(told) <= there


def check_removals(session):
    """Who was told that a message is taken back sees no more of it."""
    for message in session.own:
        if message.removal == "yes":
            assert message.id not in session.seen, f"it is there again: {message}"


def check_shown(session, entries, shown, runs):
    """Each time the model was asked, it was shown all that was said until then, and nothing else."""
    said = [entry for entry in entries if entry["kind"] == "user" and not entry.get("unheard")]
    of_run = {id: [e for e in said if e["run_id"] == id] for id, _, _ in runs}
    gone = {m.id for m in session.own if m.removal == "yes" and m.id not in session.seen}
    last = {}
    for one in shown:
        texts = [text for who, text in one if who == "user"]
        label = where(one)[0]
        first = next((e for e in said if words_of(e).split()[0] == label), None)
        if first is None:
            assert label.split(".")[0] not in gone, f"it was taken back and shown: {label}"
            continue
        earlier = [words_of(e) for e in said if e["ordinal"] < first["ordinal"]]
        own = [words_of(e) for e in of_run[first["run_id"]]]
        assert texts[: len(earlier)] == earlier, (texts, earlier)
        assert own[: len(texts) - len(earlier)] == texts[len(earlier) :], (texts, own)
        check_recalled(one, entries, first["ordinal"])
        last[first["run_id"]] = texts
    for id, _, journal in runs:
        if isinstance(journal[-1].event, RunCompleted):
            assert last[id][-1] == words_of(of_run[id][-1]), f"it was never shown: {of_run[id][-1]}"


def check_recalled(shown, entries, ordinal):
    """What was replied in earlier runs is shown once each, in its order."""
    heard = "\n".join(text for who, text in shown if who == "model")
    earlier = [
        entry["text"].rstrip()
        for entry in entries
        if entry["kind"] == "assistant" and entry["ordinal"] < ordinal and entry.get("text")
    ]
    places = []
    for text in earlier:
        assert heard.count(text) == 1 or "] " not in text, (text, heard)
        places.append(heard.index(text))
    assert places == sorted(places), "out of order"
    cut = sum(
        entry["kind"] == "assistant" and bool(entry.get("partial")) and bool(entry.get("text"))
        for entry in entries
        if entry["ordinal"] < ordinal
    )
    assert heard.count(CUT_OFF) == cut, (cut, heard)


def words_of(entry):
    return "".join(part["text"] for part in entry["parts"])


def check_replies(entries, replies):
    """Every whole reply is the one to something that the model was shown."""
    for entry in entries:
        if entry["kind"] == "assistant" and not entry.get("partial"):
            told = entry["text"].partition("]")[0].split()[2]
            assert entry["text"] == "".join(reply_words(replies[told])), entry


def check_answers(session, entries, runs):
    """Each question was answered once, and by what somebody was told had counted."""
    asked = {entry["id"]: entry for entry in entries if entry["kind"] == "approval"}
    for id, known in session.answers.items():
        assert len(known["yes"]) <= 1, f"answered twice: {known}"
        if known["yes"] and id in asked:
            assert asked[id].get("choice") == known["yes"][0], (asked[id], known)
    by_id = Counter(
        one.event.approval_id
        for _, _, journal in runs
        for one in journal
        if isinstance(one.event, ApprovalAnswered)
    )
    assert by_id.keys() <= session.answers.keys()


def check_effects(folder, people):
    """What may not be repeated was done once, and only after a yes."""
    done = Counter(line.split(" ", 1)[1] for line in lines_of(folder / "effects"))
    for session in people.sessions:
        for entry, _ in session.seen.values():
            if entry["kind"] == "tool" and entry["name"] == "pay":
                times, outcome = done[entry["arguments"]], entry.get("outcome")
                assert times <= 1, entry
                assert outcome != "ok" or times == 1, entry
                assert outcome not in ("denied", "not_started") or times == 0, entry


def check_heard(session, late):
    """Who followed over all the deaths heard each frame once, in order, as one who came late did."""
    told = by_run(late.frames)
    for reader in session.readers:
        assert len(reader.ids) == len(set(reader.ids)), f"twice: {reader.ids}"
        heard = by_run(reader.frames)
        assert heard.keys() == told.keys()
        for run_id, frames in told.items():
            odd = [one for one in heard[run_id] if one not in frames]
            missing = [one for one in frames if one not in heard[run_id]]
            assert heard[run_id] == frames, f"odd: {odd}, missing: {missing}"


def by_run(frames):
    """The frames of each run, without attempts that were taken back and what parts turns."""
    gone = {attempt_of(one) for one in frames if one["event"] == "message.retracted"}
    runs = {}
    for one in frames:
        if attempt_of(one) not in gone and one.get("delta") != BLANK:
            runs.setdefault(one.get("run_id"), []).append(one)
    return runs


def attempt_of(frame):
    return tuple(map(frame.get, ("run_id", "turn", "attempt")))
