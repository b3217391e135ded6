import msgspec
import pytest

from holdfast.core.entries import Card, Entry, Mark, Notice, Question, Reply, Said
from holdfast.core.messages import BlobRef, Image, Text

PLACE = {"id": "x", "run_id": "run_1", "ordinal": 1, "seq": 1, "at": 1.0}
ENTRIES = {
    "user": Said(
        parts=(Text("look"), Image(media_type="image/png", blob=BlobRef("a", 1))), **PLACE
    ),
    "assistant": Reply(turn=1, text="Hi.", reasoning="Hm.", partial=True, **PLACE),
    "tool": Card(turn=1, name="look", arguments="{}", state="done", outcome="ok", **PLACE),
    "approval": Question(
        call_id="c1", tool="pay", state="answered", choice="once", by="ada", **PLACE
    ),
    "notice": Notice(what="failed", words="The run failed.", **PLACE),
    "marker": Mark(meaning="resuming", cause="unknown", words="Nobody carries it.", **PLACE),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_is_told_by_its_kind_and_read_back(kind):
    body = msgspec.json.encode(ENTRIES[kind])
    assert msgspec.json.decode(body)["kind"] == kind
    assert msgspec.json.decode(body, type=Entry) == ENTRIES[kind]
