import msgspec
import pytest

from holdfast.core.codec import link_messages
from holdfast.core.events import InputAdded, InputEdited, RunCompleted, ToolFinished, Unknown
from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, UserMessage
from holdfast.core.refs import all_refs, histories, needs, refs
from holdfast.errors import StoreError
from tests.core.stories import accepted

CAT, DOG = BlobRef(sha256="c" * 64, size=3), BlobRef(sha256="d" * 64, size=3)
PICTURES = (Text("see"), Image(blob=CAT, media_type="image/png"), Image(url="http://a/b.png"))


def test_pictures_outputs_and_conversations_are_referred_to():
    asked = accepted(input=PICTURES, history=(DOG,))
    assert list(refs(asked)) == [DOG, CAT]
    for event in (InputAdded(parts=PICTURES), InputEdited(parts=PICTURES)):
        assert list(refs(event)) == [CAT]
    assert list(refs(ToolFinished(call_id="c", outcome="ok", blob=DOG))) == [DOG]
    for event in (ToolFinished(call_id="c", outcome="ok"), RunCompleted(), Unknown("x")):
        assert list(refs(event)) == []


def test_a_conversation_refers_to_pictures_of_its_own():
    said = (UserMessage(parts=PICTURES), AssistantMessage(text="a cat"))
    history = msgspec.json.encode(said)
    assert list(needs(history)) == [CAT.sha256]
    asked = accepted(history=(DOG,))
    assert list(all_refs(asked, {DOG.sha256: history})) == [DOG.sha256, CAT.sha256]
    assert list(all_refs(asked, {})) == [DOG.sha256]
    with pytest.raises(StoreError):
        list(all_refs(asked, {DOG.sha256: b"no conversation"}))


def test_a_conversation_is_followed_from_its_end_as_far_as_it_is_here():
    one, two, three = link_messages(
        (UserMessage(parts=PICTURES), AssistantMessage(text="a cat"), UserMessage(parts=PICTURES))
    )
    asked = accepted(history=(BlobRef(three.name, len(three.body)), DOG))
    here = {link.name: link.body for link in (one, two, three)}
    assert histories(asked, here) == [[one.name, two.name, three.name], []]
    assert set(all_refs(asked, here)) == {*here, DOG.sha256, CAT.sha256}
    del here[one.name]
    assert histories(asked, here) == [[two.name, three.name], []]
    assert one.name in all_refs(asked, here)
    assert histories(RunCompleted(), here) == []
