import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.one_line import one_line

ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@given(st.text(st.sampled_from(f"{ENDS}aä€\\"), max_size=20))
def test_no_program_takes_it_for_several_lines_and_what_it_says_is_the_same(text):
    line = one_line({text: [text]})
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {text: [text]}


def test_other_signs_stay_as_they_are():
    assert one_line("a ä € 🙂") == '"a ä € 🙂"'.encode()
