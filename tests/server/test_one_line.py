import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.events import StopRequested
from holdfast.server import frames
from holdfast.server.frames import Projection
from holdfast.server.one_line import one_line
from holdfast.server.openai import reading
from tests.core.stories import accepted, journal

ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@given(st.text(st.sampled_from(f"{ENDS}aä€\\"), max_size=20))
def test_no_program_takes_it_for_several_lines_and_what_it_says_is_the_same(text):
    line = one_line({text: [text]})
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {text: [text]}


def stopping():
    """The last frame of a run that somebody stopped, and said why."""
    view = Projection("run_1")
    return [*map(view.frames, journal(accepted(), StopRequested(reason=ENDS)))][-1]


@pytest.mark.parametrize(
    "sent",
    [
        stopping(),
        frames.frame("session.created", 1.0, {"instructions": ENDS}),
        reading.frame({"delta": ENDS}),
        reading.frame({"delta": ENDS}, name="response.output_text.delta"),
        reading.comment("run.phase", {"detail": ENDS}),
    ],
)
def test_whoever_counts_the_lines_of_a_frame_finds_as_many(sent):
    *lines, rest = sent.decode().split("\n")
    assert sent.decode().splitlines() == lines and rest == "" and len(lines) > 1


def test_other_signs_stay_as_they_are():
    assert one_line("a ä € 🙂") == '"a ä € 🙂"'.encode()
