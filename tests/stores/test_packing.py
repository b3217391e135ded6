import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import encode
from holdfast.core.events import ModelReplied, TextStreamed
from holdfast.stores.packing import LARGEST, SMALLEST, pack, press, unpack, unpress

TEXT = "What is read is what was written, byte for byte, however little room it takes up. " * 9


def reply(text=TEXT, size=4):
    """The events of a reply in small pieces."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    said = [TextStreamed(turn=1, attempt=1, text=piece) for piece in pieces]
    whole = ModelReplied(turn=1, attempt=1, text=text)
    return [(1e9 + n / 50, encode(event)) for n, event in enumerate([*said, whole])]


times = st.floats(allow_nan=False)
bodies = st.binary(max_size=30) | st.sampled_from([b"", b'{"a":"b"}', b'{"a":"bb"}', b'{"a":""}'])


@given(st.lists(st.tuples(times, bodies), min_size=1), st.binary(max_size=50))
def test_what_is_packed_comes_back_to_the_byte(events, dictionary):
    packed = pack(events, dictionary)
    assert unpack(packed, len(events), dictionary) == events
    assert [str(at) for at, _ in unpack(packed, len(events), dictionary)] == [
        str(at) for at, _ in events
    ]


def test_a_reply_in_many_pieces_takes_up_less_than_its_text():
    events = reply()
    assert len(pack(events)) < len(TEXT) < sum(len(body) for _, body in events) / 10


def test_what_the_dictionary_holds_takes_up_next_to_nothing():
    body = bytes(range(256)) * 4
    assert len(pack([(1.0, body)], body)) < 60 < 256 < len(pack([(1.0, body)]))
    with pytest.raises(ValueError, match="decompressing"):
        unpack(pack([(1.0, body)], body), 1)


@given(st.data())
def test_a_pack_that_was_changed_is_never_read_as_something_else(data):
    events = reply(TEXT[:200])
    packed = bytearray(pack(events))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        assert unpack(bytes(packed), len(events)) == events
    except ValueError:
        pass


@pytest.mark.parametrize("count", [-1, 0, 1, 50, 52, 10**12])
def test_a_pack_of_another_number_of_events_is_refused(count):
    with pytest.raises(ValueError, match="it "):
        unpack(pack(reply(TEXT[:200])), count)


def test_a_pack_that_is_cut_short_or_goes_on_is_refused():
    packed = pack(reply())
    for spoilt in (packed[:-1], packed[:20], b"", packed + b"\x00"):
        with pytest.raises(ValueError, match="end"):
            unpack(spoilt, len(reply()))


def test_one_that_refers_to_more_than_there_is_is_refused():
    numbers = bytes(8) + b"\x00\x00\x00\x05" + bytes(8)
    with pytest.raises(ValueError, match="more than there is"):
        unpack(zlib.compress(numbers), 1)


# --- blobs


@pytest.mark.parametrize("body", [b"", b"word " * 1000, b"word " * 10_000, bytes(SMALLEST)])
def test_a_blob_comes_back_as_it_was(body):
    assert unpress(*press(body)) == body


def test_what_compresses_well_is_compressed():
    stored, pressed = press(b"word " * 10_000)
    assert pressed and len(stored) < 1000


def noise(size):
    found = b""
    while len(found) < size:
        found += zlib.crc32(found[-100:]).to_bytes(4, "big")
    return found[:size]


@pytest.mark.parametrize(
    "body", [b"x" * (SMALLEST - 1), b"x" * (LARGEST + 1), noise(5000), noise(5000) + bytes(20_000)]
)
def test_what_is_not_worth_it_is_left_as_it_is(body):
    assert press(body) == (body, False)


@pytest.mark.parametrize("stored", [None, "text", 5, b"no such thing"])
def test_what_has_become_anything_else_stays_that(stored):
    assert unpress(stored, True) == unpress(stored, False) == stored
