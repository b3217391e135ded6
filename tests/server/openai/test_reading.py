import msgspec
from hypothesis import given, settings
from msgspec.structs import replace

from holdfast.core.codec import recall
from holdfast.core.events import ModelHeard
from holdfast.core.run import replay
from holdfast.server.frames import DELTAS
from holdfast.server.openai.reading import Reading, comment, frame, waiting
from holdfast.testing.strategies import journals
from tests.core.stories import accepted, called, failed, journal, said, started


def read(events):
    reading = Reading()
    for recorded in events:
        reading.take(recorded)
    return reading


@settings(max_examples=25)
@given(journals())
def test_a_reading_stands_where_the_run_stands(events):
    reading = Reading()
    for n, recorded in enumerate(events):
        before = reading.take(recorded)
        if isinstance(recorded.event, DELTAS):
            continue
        earlier, now = replay(events[:n]), replay(events[: n + 1])
        assert (before.status, before.usage) == (earlier.status, earlier.usage)
        assert (before.tools, before.pending) == (earlier.tools, earlier.pending)
        assert replace(reading.now, seq=0, attempt=None, messages=()) == replace(
            now, seq=0, attempt=None, messages=()
        )


def test_a_reading_knows_when_it_began_and_what_was_asked_for():
    assert read(journal(accepted())).created == 1
    assert read(journal(accepted())).model == "main"
    assert read(journal(accepted(asked_model="gpt"))).model == "gpt"
    assert read([recall(1, 5.5, b'{"type":"run.forked"}')]).model == ""


def test_words_are_not_lost_on_what_is_waited_for():
    events = journal(accepted(), started(), called(), said("a"), said("b"), failed())
    reading = read(events)
    assert reading.now.failures == replay(events).failures


def test_what_is_waited_for_is_a_comment():
    events = journal(accepted(), started(), called(), ModelHeard(turn=1, attempt=1), said("a"))
    reading, sent = Reading(), []
    for recorded in events:
        reading.take(recorded)
        sent.append(waiting(recorded, reading.now))
    assert [bool(one) for one in sent] == [False, False, True, True, False]
    name, told = sent[2].decode().strip().removeprefix(": ").split(" ", 1)
    assert name == "run.phase"
    assert msgspec.json.decode(told)["waiting_for"] == "first_event"


def test_nothing_in_a_frame_can_end_it():
    told = {"a": "x\r\n\n: y\n\ndata: z"}
    for sent in (frame(told), frame(told, name="n"), comment("n", told)):
        assert sent.count(b"\n\n") == 1
        assert b"\r" not in sent
    assert frame({"a": 1}) == b'data: {"a":1}\n\n'
    assert frame({"a": 1}, name="n") == b'event: n\ndata: {"a":1}\n\n'
    assert comment("n", {"a": 1}) == b': n {"a":1}\n\n'
