"""What people do with sessions, on the engine and the store in memory."""

import json

import pytest

from holdfast.errors import NotFound, RunBegun, SessionGone
from holdfast.server.conversations import LONGEST_TITLE, MOST_ENTRIES, Conversations
from holdfast.server.problems import Problem
from holdfast.testing.scripted import ScriptedModel, Silence


def body(**fields):
    return json.dumps(fields).encode()


@pytest.fixture
def talk(inside):
    """The service, and how to open one."""

    def opened(*script):
        return inside(ScriptedModel(*script))

    return opened


def service_of(served, **options):
    return Conversations(served.service, **options)


async def create(talks, **fields):
    return await talks.create(body(**fields), principal="ada")


def refused(caught):
    return caught.value.status, caught.value.code


async def test_a_session_is_created_with_what_is_given_and_an_id_if_there_is_none(talk):
    async with talk() as served:
        talks = service_of(served)
        made = await create(talks, session_id="s", title=" T ", model="m", instructions="be kind")
        assert (made.session_id, made.title, made.model) == ("s", "T", "m")
        assert (made.instructions, made.status, made.runs) == ("be kind", "idle", 0)
        other = await create(talks)
        assert other.session_id not in ("", "s") and other.title == ""


async def test_a_session_that_is_there_is_not_created_again_even_if_it_was_deleted(talk):
    async with talk() as served:
        talks = service_of(served)
        await create(talks, session_id="s")
        with pytest.raises(Problem) as caught:
            await create(talks, session_id="s")
        assert refused(caught) == (409, "session_exists")
        await talks.delete("s", principal="ada")
        with pytest.raises(SessionGone):
            await create(talks, session_id="s")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"shade": "x"}, "unsupported_session_field"),
        ({"title": 5}, "invalid_title"),
        ({"title": "a\nb"}, "invalid_title"),
        ({"title": "x" * (LONGEST_TITLE + 1)}, "invalid_title"),
        ({"instructions": "x" * 200_001}, "text_too_long"),
        ({"model": "x" * 300}, "text_too_long"),
    ],
)
async def test_a_session_is_not_created_with_what_cannot_be_kept(talk, fields, code):
    async with talk() as served:
        talks = service_of(served)
        with pytest.raises(Problem) as caught:
            await create(talks, **fields)
        assert refused(caught) == (400, code)
        assert (await talks.list({})).data == []


async def test_a_change_is_written_once_and_only_if_it_is_one(talk):
    async with talk() as served:
        talks = service_of(served)
        await create(talks, session_id="s", title="T")
        for _ in range(2):
            told = await talks.change(
                "s", body(title="New", pinned=True, archived=True), principal="ada"
            )
            assert (told.title, told.pinned, told.archived) == ("New", True, True)
        await talks.change("s", b"{}", principal="ada")
        assert len(await served.service.store.notes("s")) == 4
        assert (await talks.change("s", body(title=""), principal="ada")).title == ""


@pytest.mark.parametrize("fields", [{"pinned": "yes"}, {"archived": 0}, {"colour": "red"}])
async def test_a_change_that_is_none_is_refused(talk, fields):
    async with talk() as served:
        talks = service_of(served)
        await create(talks, session_id="s")
        with pytest.raises(Problem):
            await talks.change("s", body(**fields), principal="ada")
        assert len(await served.service.store.notes("s")) == 1


async def test_pages_of_a_list_hold_every_session_once_the_pinned_first(talk):
    async with talk() as served:
        talks = service_of(served)
        for number in range(5):
            await create(talks, session_id=f"s{number}", title=f"talk {number}")
        await talks.change("s1", body(pinned=True), principal="ada")
        found, query = [], {"limit": "2"}
        while True:
            page = await talks.list(query)
            found.append([one.session_id for one in page.data])
            if not page.has_more:
                break
            query["after"] = page.next
        assert found == [["s1", "s4"], ["s3", "s2"], ["s0"]] and page.next == ""
        assert [one.session_id for one in (await talks.list({"q": "TALK 3"})).data] == ["s3"]


async def test_what_is_archived_or_deleted_is_found_by_who_asks_for_it(talk):
    async with talk() as served:
        talks = service_of(served)
        for name in ("here", "away", "gone"):
            await create(talks, session_id=name)
        await talks.change("away", body(archived=True), principal="ada")
        await talks.change("gone", body(archived=True), principal="ada")
        await talks.delete("gone", principal="ada")

        async def names(**query):
            return {one.session_id for one in (await talks.list(query)).data}

        assert await names() == await names(archived="false") == {"here"}
        assert await names(archived="true") == {"away"}
        assert await names(archived="all") == {"here", "away"}
        assert await names(deleted="true") == await names(deleted="true", archived="true")
        assert await names(deleted="true") == {"gone"}
        assert await names(deleted="true", archived="false") == set()


@pytest.mark.parametrize(
    "query", [{"limit": "101"}, {"archived": "yes"}, {"deleted": "all"}, {"q": "x" * 300}]
)
async def test_a_list_that_cannot_be_made_is_refused(talk, query):
    async with talk() as served:
        with pytest.raises(Problem) as caught:
            await service_of(served).list(query)
        assert caught.value.status == 400


async def test_a_list_goes_on_where_a_page_ended_whatever_moved_meanwhile(talk):
    async with talk() as served:
        talks = service_of(served)
        for number in range(5):
            await talks.create(b'{"session_id": "s%d"}' % number, principal="ada")
        await talks.put("s2", None, True, None, principal="ada")
        first = await talks.list({"limit": "2"})
        assert [row.session_id for row in first.data] == ["s2", "s4"]
        await talks.put("s4", None, True, None, principal="ada")
        await talks.put("s2", None, False, None, principal="ada")
        rest = await talks.list({"after": first.next})
        assert [row.session_id for row in rest.data if row.session_id != "s2"] == ["s3", "s1", "s0"]
        for odd in ("nowhere", "2.1.0.x", "1..x", "1.1.0."):
            with pytest.raises(Problem):
                await talks.list({"after": odd})


async def test_what_was_deleted_is_gone_until_it_is_restored(talk):
    async with talk(["Hello"]) as served:
        talks = service_of(served, keep=7)
        run_id = await served.run(session_id="s")
        await served.get(f"/v1/runs/{run_id}?wait=30")
        now = served.service.clock()
        deleted = await talks.delete("s", principal="ada")
        assert deleted.purged_at == pytest.approx(now + 7 * 86400, abs=5)
        for look in (talks.read, talks.queue, lambda id: talks.messages(id, {})):
            with pytest.raises(NotFound):
                await look("s")
        with pytest.raises(NotFound):
            await talks.delete("s", principal="ada")
        assert (await talks.restore("s", principal="ada")).runs == 1
        assert len((await talks.messages("s", {})).data) == 2


async def test_a_transcript_is_paged_from_its_end_to_its_beginning(talk):
    async with talk(*[[f"answer {n}"] for n in range(7)]) as served:
        talks = service_of(served)
        for number in range(7):
            run_id = await served.run(f"question {number}", session_id="s")
            await served.get(f"/v1/runs/{run_id}?wait=30")
        whole = await talks.messages("s", {})
        assert len(whole.data) == 14 and whole.earlier == ""
        assert whole.cursor == "s8.8"
        found, query = [], {"limit": "3"}
        while True:
            page = await talks.messages("s", query)
            assert ("before" in query) == (not page.cursor)
            found = [*page.data, *found]
            if not page.earlier:
                break
            query["before"] = page.earlier
        assert found == whole.data


@pytest.mark.parametrize("before", ["x", "1", "1.", "1.1.1", "9" * 5000 + ".1", "-1.1", "٣.1"])
async def test_a_page_before_none_is_not_found(talk, before):
    async with talk() as served:
        talks = service_of(served)
        await create(talks, session_id="s")
        with pytest.raises(NotFound):
            await talks.messages("s", {"before": before})
        with pytest.raises(Problem):
            await talks.messages("s", {"limit": str(MOST_ENTRIES + 1)})


async def test_what_waits_is_told_with_what_it_waits_for_and_can_be_edited_or_taken_back(talk):
    async with talk(["one", Silence(50)], ["two"]) as served:
        talks = service_of(served)
        first = await served.run(session_id="s")
        await served.get(f"/v1/runs/{first}?wait=1")
        second = await served.run("second", session_id="s", message_id="mine")
        third = await served.run("third", session_id="s")
        queue = await talks.queue("s")
        assert [one.input for one in queue.data] == ["second", "third"]
        assert (queue.behind.run_id, queue.behind.status) == (first, "running")
        assert queue.behind.waiting_for.waiting_for == "next_event"
        edited = await talks.edit("s", "mine", body(input="other words"), principal="ada")
        assert (edited.run_id, edited.input) == (second, "other words")
        assert (await talks.remove("s", third, principal="ada")).run_id == third
        assert [one.input for one in (await talks.queue("s")).data] == ["other words"]
        with pytest.raises(RunBegun):
            await talks.edit("s", first, body(input="x"), principal="ada")
        await served.get(f"/v1/runs/{second}?wait=60")
        assert "other words" in str(served.app.means.models["demo"].requests[-1].messages)
        with pytest.raises(RunBegun):
            await talks.remove("s", second, principal="ada")
        assert (await talks.queue("s")).data == []


@pytest.mark.parametrize(
    "fields", [{}, {"input": ""}, {"input": "  "}, {"input": 5}, {"input": "x", "y": 1}]
)
async def test_a_message_is_not_edited_to_nothing(talk, fields):
    async with talk(["one", Silence(50)]) as served:
        talks = service_of(served)
        await served.run(session_id="s")
        await served.run("second", session_id="s", message_id="mine")
        with pytest.raises(Problem):
            await talks.edit("s", "mine", body(**fields), principal="ada")
        assert [one.input for one in (await talks.queue("s")).data] == ["second"]
        with pytest.raises(NotFound):
            await talks.edit("s", "other", body(input="x"), principal="ada")
