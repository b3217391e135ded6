from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadReply
from holdfast.models.sse import MOST_BYTES, MOST_DATA, MOST_LINE, Decoder
from holdfast.models.wire import ServerEvent

RECORDED = sorted((Path(__file__).parent / "bytes").glob("chat_*.txt"))
MIB = 1024 * 1024

recorded = pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)


def decode(*pieces):
    """As whoever reads them does: plain pieces on the short way."""
    decoder, events = Decoder(), []
    for piece in pieces:
        plain = [ServerEvent("", data) for data in decoder.plain(piece)]
        events += plain or decoder.feed(piece)
    return events


def data(*pieces):
    return [event.data for event in decode(*pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_any_of_three_ways(end):
    stream = b"event: a\ndata: 1\ndata: 2\n\ndata: 3\n\n".replace(b"\n", end)
    assert decode(stream) == [ServerEvent("a", b"1\n2"), ServerEvent("", b"3")]


def test_a_line_end_that_arrives_in_two_pieces_is_one():
    assert data(b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n") == [b"1\n2"]
    assert data(b"data: 1\r", b"\n", b"\n") == [b"1"]


def test_two_line_ends_in_two_pieces_are_two():
    assert data(b"data: 1\r", b"\rdata: 2\n", b"\n") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data:1\n\n", [b"1"]),
        (b"data:  1 \n\n", [b" 1 "]),
        (b"data:\t1\n\n", [b"\t1"]),
        (b"data\n\ndata\ndata\n\ndata:\n\ndata: \n\n", [b"", b"\n", b"", b""]),
        (b"data: a:b\n\n", [b"a:b"]),
        (b"data: \x00\xff\xfe\x0b\x0c\x1c\xc2\x85\n\n", [b"\x00\xff\xfe\x0b\x0c\x1c\xc2\x85"]),
        (b": data: 1\n:\n::\n\ndata: 2\n\n", [b"2"]),
        (b"Data: 1\n data: 2\ndatum: 3\nid: 4\nretry: 5\nid\ndata : 6\n\ndata: 7\n\n", [b"7"]),
        (b"\n\n\ndata: 1\n\n\n\n", [b"1"]),
    ],
)
def test_a_field_is_read_by_the_rules(stream, expected):
    assert data(stream) == expected


def test_the_last_kind_counts_and_only_for_its_own_event():
    stream = b"event: a\nevent:b\ndata: 1\n\ndata: 2\n\nevent: c\nevent\ndata: 3\n\n"
    assert decode(stream) == [
        ServerEvent("b", b"1"),
        ServerEvent("", b"2"),
        ServerEvent("", b"3"),
    ]


def test_an_event_without_data_is_none_and_leaves_nothing_behind():
    assert decode(b"event: a\n\ndata: 1\n\n") == [ServerEvent("", b"1")]


def test_a_kind_that_is_no_text_is_still_a_kind():
    assert decode(b"event: \xff\ndata: 1\n\n") == [ServerEvent("\ufffd", b"1")]


def test_a_piece_after_a_plain_one_is_read_by_the_same_rules():
    plain = b"data: 1\n\n"
    decoder = Decoder()
    assert (decoder.plain(plain), len(decoder.feed(plain))) == ([], 1)
    assert decoder.plain(plain * 2) == [b"1", b"1"]
    decoder.feed(b"event: other\n")
    assert decoder.plain(plain) == []
    assert data(plain, b"data: 2\n\ndata: 3\n\n") == [b"1", b"2", b"3"]
    assert data(plain, b"data: 2\rdata: 3\n\n") == [b"1", b"2\n3"]
    assert data(plain, b"data: 2\ndata: 3\n\n") == [b"1", b"2\n3"]
    with pytest.raises(BadReply):
        data(plain, b"data: " + b"x" * (MOST_DATA + 1) + b"\n\n")


def test_an_unfinished_event_is_none():
    assert data(b"data: 1\n\ndata: 2\n") == [b"1"]
    assert data(b"data: 1\n\ndata: 2") == [b"1"]


def test_a_byte_order_mark_counts_only_at_the_very_start():
    mark = b"\xef\xbb\xbf"
    assert data(mark + b"data: 1\n\n" + mark + b"data: 2\n\n") == [b"1"]
    assert data(mark[:1], mark[1:2], mark[2:] + b"data: 1\n\n") == [b"1"]
    assert data(mark + mark + b"data: 1\n\n") == []
    assert data(b"\n", mark + b"data: 1\n\n") == []


@recorded
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_wherever_a_stream_is_cut_the_events_are_the_same(file, end):
    stream = file.read_bytes().replace(b"\n", end)
    whole = decode(stream)
    assert len(whole) == stream.count(b"data: ")
    for cut in range(len(stream)):
        assert decode(stream[:cut], stream[cut:]) == whole


@recorded
def test_byte_by_byte_the_events_are_the_same(file):
    stream = file.read_bytes()
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == decode(stream)


PIECES = st.sampled_from(
    [b"data", b"event", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"\xef\xbb\xbf", b"\x00"]
)


@given(st.lists(PIECES | st.binary(max_size=4)).map(b"".join), st.data())
def test_any_stream_in_any_pieces_gives_the_same_events(stream, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)))))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert decode(*pieces) == decode(stream)


def test_random_bytes_are_events_or_nothing():
    chance = Random(1)
    for _ in range(200):
        decode(*(chance.randbytes(chance.randrange(200)) for _ in range(20)))


# --- limits ----------------------------------------------------------------------------


def too_large(*pieces):
    with pytest.raises(BadReply) as caught:
        decode(*pieces)
    assert caught.value.reason == "too_large"
    return str(caught.value)


def test_an_event_may_be_as_large_as_the_limit_and_no_larger():
    half = b"data: " + b"x" * (MOST_DATA // 2 - 1) + b"\n"
    assert [len(found) for found in data(half, half, b"data\n", b"\n")] == [MOST_DATA]
    assert "an event of the reply is larger than 1 MiB" in too_large(half, half, b"data: x\n")
    assert "an event" in too_large(half + half + b"data: x\n")
    assert data(b"data: " + b"x" * MOST_DATA + b"\n\n") == [b"x" * MOST_DATA]
    assert "an event" in too_large(b"data: " + b"x" * (MOST_DATA + 1) + b"\n")


def test_the_limit_of_an_event_starts_anew_with_each():
    event = b"data: " + b"x" * MOST_DATA + b"\n\n"
    assert len(data(event, event)) == 2


def test_the_ends_of_lines_count_too():
    line = b"data: 1234567\n"
    assert len(data(line * (MOST_DATA // 8) + b"\n")[0]) == MOST_DATA - 1
    assert "an event" in too_large(line * (MOST_DATA // 8 + 1))


def test_a_line_may_be_as_large_as_the_limit_and_no_larger():
    line = b":" + b"x" * (MOST_LINE - 1)
    assert data(line, b"\ndata: 1\n\n") == [b"1"]
    assert data(line + b"\ndata: 1\n\n") == [b"1"]
    for pieces in [
        (line, b"x"),
        (line + b"x",),
        (line, b"x\n"),
        (line + b"x\n",),
        (b"\n" + line, b"x\n"),
    ]:
        assert "a line of the reply is larger than 8 MiB" in too_large(*pieces)


def test_a_stream_may_be_as_large_as_the_limit_and_no_larger():
    comment = b":" + b"x" * (MIB - 2) + b"\n"
    decoder = Decoder()
    for _ in range(MOST_BYTES // MIB):
        decoder.feed(comment)
    with pytest.raises(BadReply, match="the reply is larger than 64 MiB") as caught:
        decoder.feed(b"\n")
    assert caught.value.reason == "too_large"


def test_a_long_line_in_small_pieces_is_kept_in_linear_time_and_space():
    """Copying what is held with every piece would be 512 GiB of copies here, and take minutes."""
    decoder = Decoder()
    for _ in range(MOST_LINE // 64):
        assert not decoder.feed(b"x" * 64)
    assert len(decoder._rest) == MOST_LINE
    assert not decoder.feed(b"\n")
    assert not decoder._rest
