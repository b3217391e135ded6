import json
import random
import re
from base64 import b64encode, urlsafe_b64encode
from itertools import pairwise
from types import MappingProxyType
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import encode
from holdfast.core.events import (
    ApprovalAnswered,
    InputAdded,
    ModelChoice,
    ModelReplied,
    RunAccepted,
    ToolFinished,
)
from holdfast.core.messages import Image, Reasoning, Text, ToolCall
from holdfast.core.secrets import MASK, NO_SECRETS, SHORTEST, Secrets, spellings
from holdfast.errors import InvalidRequest

KEY = "sk-canary-0123456789"
ONE = Secrets([KEY])


def shown(secrets, pieces):
    """What is shown of a text that came in these pieces, piece by piece."""
    held, seen = "", []
    for piece in pieces:
        show, held = secrets.part(held + piece)
        seen.append(show)
    return [*seen, secrets.rest(held)]


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


# Few letters, so that secrets overlap, hold each other and begin alike.
values = st.lists(st.text("ab", min_size=SHORTEST, max_size=12), min_size=1, max_size=4)


@st.composite
def texts(draw):
    """Secrets, a text made of them, their parts and other things, and how it is cut."""
    secrets = draw(values)
    whole = st.sampled_from(secrets)
    part = st.builds(lambda secret, end: secret[:end], whole, st.integers(1, 12))
    text = "".join(draw(st.lists(whole | part | st.text("abc \n", max_size=6), max_size=8)))
    return secrets, text, draw(st.lists(st.integers(0, 10_000), max_size=8))


@given(texts())
def test_however_a_text_is_cut_the_same_is_shown_of_it(made):
    values, text, places = made
    secrets = Secrets(values)
    pieces = shown(secrets, cut(text, places))
    assert "".join(pieces) == secrets.mask(text)
    assert not secrets.found("".join(pieces))


@given(texts())
def test_only_what_may_begin_a_secret_is_held_back(made):
    values, text, _ = made
    secrets = Secrets(values)
    _, held = secrets.part(text)
    begins = any(value.startswith(held) and value != held for value in values)
    assert held == "" or begins


@given(texts())
def test_held_is_the_longest_end_of_a_text_that_begins_a_secret(made):
    values, text, _ = made
    ends = (text[start:] for start in range(len(text)))
    longest = next((end for end in ends if any(v.startswith(end) and v != end for v in values)), "")
    assert Secrets(values).held(text) == len(longest)


@given(st.text(), st.lists(st.integers(0, 10_000), max_size=5))
def test_text_without_a_secret_is_shown_as_it_is(text, places):
    assert "".join(shown(ONE, cut(text, places))) == text == ONE.mask(text)


def test_a_secret_that_arrives_letter_by_letter_is_masked():
    assert "".join(shown(ONE, f"a {KEY} b")) == f"a {MASK} b"


def test_nothing_is_held_back_that_has_turned_out_to_be_harmless():
    assert ONE.part("sk-can") == ("", "sk-can")
    assert ONE.part("sk-cane") == ("sk-cane", "")
    assert ONE.part("desk") == ("de", "sk")


def spelled(secret, before="", after=""):
    """As others write it: in an address, and in base64 among other bytes."""
    raw = f"{before}{secret}{after}".encode()
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield re.sub("%..", lambda byte: byte[0].lower(), quote(secret, safe=""))
    yield b64encode(raw).decode()
    yield urlsafe_b64encode(raw).decode()


ODD = 'ä~?/ "odd\\key'


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize("after", ["", "x", "xy"])
def test_a_secret_is_masked_in_every_spelling(before, after):
    secrets = Secrets([KEY, ODD])
    for text in (*spelled(KEY, before, after), *spelled(ODD, before, after)):
        assert MASK in secrets.mask(text)
        # A character or two at its ends hold bits of what is beside it.
        assert len(secrets.mask(text)) <= len(MASK) + 12
        assert "".join(shown(secrets, text)) == secrets.mask(text)
        assert MASK in secrets.mask_event(Text(json.dumps(text))).text


#: As `openssl rand -base64` makes them, and with all else that programs spell or leave.
AS_OFTEN = "abc/DEF+ghi/0123456789=="
WITH_ALL = "a/b+c=d&e<f>'g`h!(i)*:@?;,#$9"


@pytest.mark.parametrize("secret", [AS_OFTEN, WITH_ALL])
def test_a_secret_is_masked_in_an_address_whatever_is_left_there_as_it_is(secret):
    secrets = Secrets([secret])
    for left in ("", "/", "!'()*", "$&+=:@", "/?:@!$'()*,;", "/?:@!$'()*,;&=+#"):
        upper = quote(secret, safe=left)
        for text in (upper, re.sub("%..", lambda byte: byte[0].lower(), upper)):
            assert secrets.mask(f"https://a.example/{text}/?k={text}&b").count(MASK) == 2


def test_a_secret_is_masked_in_json_that_spells_out_more_than_it_has_to():
    secrets = Secrets([AS_OFTEN, WITH_ALL])
    in_php = json.dumps(AS_OFTEN).replace("/", r"\/")
    in_go = re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(WITH_ALL))
    in_net = json.dumps(AS_OFTEN).replace("+", r"\u002B")
    for text, secret in ((in_php, AS_OFTEN), (in_go, WITH_ALL), (in_net, AS_OFTEN)):
        assert json.loads(text) == secret
        assert secrets.mask(text) == f'"{MASK}"'
        assert secrets.mask(json.dumps(text)) == rf'"\"{MASK}\""'
        assert secrets.mask_event(Text(text)).text == f'"{MASK}"'
        assert "".join(shown(secrets, text)) == f'"{MASK}"'


def test_what_is_left_of_a_short_word_in_base64_hides_nothing():
    assert spellings("abc") == {"abc"}


def test_a_secret_that_goes_on_as_a_longer_one_is_masked_with_all_of_it():
    secrets = Secrets([KEY, KEY + "-long"])
    assert "".join(shown(secrets, [KEY, "-lo", "ng!"])) == f"{MASK}!"
    assert "".join(shown(secrets, [KEY, "-lo", "st!"])) == f"{MASK}-lost!"


def test_a_secret_is_masked_though_its_end_begins_another():
    secrets = Secrets(["abcdefgh", "efghijklmnop"])
    assert "".join(shown(secrets, ["abcdefgh", "zzz"])) == f"{MASK}zzz"


@pytest.mark.parametrize("value", ["", "1234567", "cancelled", "not_star"])
def test_what_is_short_or_one_of_our_own_words_is_no_secret(value):
    assert not Secrets([value])
    assert Secrets([value]).mask(f"a {value}") == f"a {value}"


def test_what_is_part_of_a_name_that_everyone_may_see_is_no_secret():
    secrets = Secrets(["claude-opus", KEY], known=["claude-opus-4-1"])
    assert secrets.mask(f"claude-opus {KEY}") == f"claude-opus {MASK}"


def test_no_secrets_hide_nothing():
    assert not NO_SECRETS and ONE
    assert NO_SECRETS.part("sk-") == ("sk-", "")
    assert (NO_SECRETS.held("sk-"), NO_SECRETS.mask("sk-")) == (0, "sk-")
    event = InputAdded(parts=(Text(KEY),))
    assert NO_SECRETS.mask_event(event) is event


@pytest.mark.parametrize("ascii", [True, False])
def test_a_secret_is_found_as_it_stands_in_json_and_in_json_inside_json(ascii):
    value = 'pass"wörd\\\n1'
    secrets, once = Secrets([value]), json.dumps({"p": value}, ensure_ascii=ascii)
    twice = json.dumps({"p": once}, ensure_ascii=ascii)
    for spelled in (value, once, twice):
        assert secrets.found(spelled)
    assert json.loads(secrets.mask(once)) == {"p": MASK}
    assert json.loads(json.loads(secrets.mask(twice))["p"]) == {"p": MASK}


def test_what_a_cut_has_left_of_a_secret_is_masked_if_it_is_more_than_a_few_letters():
    assert ONE.mask_cut("key: " + KEY[:-1]) == "key: " + MASK
    assert ONE.mask_cut(f"{KEY} desk") == f"{MASK} desk"
    assert ONE.rest(KEY[:-1]) == KEY[:-1]


def test_secrets_do_not_show_in_what_is_printed_of_them():
    assert "canary" not in repr(ONE) + str(ONE)


@pytest.mark.parametrize(
    "event",
    [
        RunAccepted(
            input=(Text(f"my key is {KEY}"), Image(url=f"https://a/?key={KEY}")),
            models=(ModelChoice("m", options=MappingProxyType({KEY: [1, None, {"a": KEY}]})),),
            instructions=KEY,
        ),
        ModelReplied(turn=1, attempt=1, text=KEY, calls=(ToolCall("c", "t", f'{{"k":"{KEY}"}}'),)),
        ToolFinished(call_id="c", outcome="ok", output=f"{KEY}{KEY}"),
        ApprovalAnswered(approval_id="a", choice="once", by=KEY),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_is_masked_wherever_there_is_text_in_it(event):
    masked = ONE.mask_event(event)
    assert type(masked) is type(event) and not ONE.found(repr(masked))
    assert MASK.encode() in encode(masked)


def test_an_event_with_nothing_to_hide_is_the_same():
    options = {"a": (1, "b", [0.5, {"c": "d"}])}
    event = RunAccepted(input=(Text("x"),), models=(ModelChoice("m", options=options),))
    assert ONE.mask_event(event) is event


def test_a_thought_that_was_masked_has_lost_its_seal():
    thoughts = Reasoning(f"use {KEY}", "w", "sealed"), Reasoning("hm", "w", "sealed")
    masked = ONE.mask_event(ModelReplied(turn=1, attempt=1, reasoning=thoughts))
    assert masked.reasoning == (Reasoning(f"use {MASK}", "w"), thoughts[1])


def test_what_is_nested_too_deeply_is_refused():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        ONE.mask_event(ModelChoice("m", options={"a": deep}))


def test_a_long_secret_is_no_trouble():
    letters = random.Random(1)
    value = "".join(letters.choices("abcdefgh\n", k=5000))
    secrets = Secrets([value])
    assert "".join(shown(secrets, cut(f"a{value}b", range(0, 5000, 7)))) == f"a{MASK}b"
