import time
from contextlib import aclosing

import anyio
import pytest

from holdfast.cli.far import Far
from tests.cli.test_far import HEAD, KEY, journal, strangers

pytestmark = pytest.mark.real_time


async def test_where_no_stream_lasts_the_journal_is_looked_at_ever_less_often():
    began, looks, cursors = time.monotonic(), [], []

    async def answer(request, send):
        if b"/journal?" in request:
            looks.append(time.monotonic() - began)
            await send(journal(request, 1 + (len(looks) >= 5) + (len(looks) >= 15)))
        else:
            cursors.append(request.split(b"Last-Event-ID: ")[1].split()[0])
            await send(HEAD)

    async with strangers(answer) as url:
        seen = [recorded.seq async for recorded in Far(url, KEY).follow("run_1")]
    assert seen == [1, 2, 3]
    assert cursors[0] == b"1" and cursors[-1] == b"2"
    assert looks[-1] > 1.5


async def test_while_a_stream_is_quiet_nobody_looks_and_at_its_first_word_somebody_does():
    looks, rung, seen = [], anyio.Event(), anyio.Event()

    async def answer(request, send):
        if b"/journal?" in request:
            looks.append(request)
            await send(journal(request, 3 if rung.is_set() else 2))
        else:
            await send(HEAD)
            await anyio.sleep(0.3)
            rung.set()
            await send(b"id: 3\n\n")
            # It goes on, so that nobody looks for its end.
            await seen.wait()

    async with strangers(answer) as url, aclosing(Far(url, KEY).follow("run_1")) as news:
        assert [(await anext(news)).seq for _ in range(2)] == [1, 2]
        assert (await anext(news)).seq == 3
        seen.set()
    # At first, once the stream stood, and when it rang.
    assert len(looks) == 3
