"""What commands make of sessions is in test_sessions and test_carry; beside a server, in test_far."""

import pytest

from holdfast.cli import conversation
from holdfast.cli.conversation import find_or_new
from holdfast.errors import DataInUse, InvalidRequest, SessionGone
from holdfast.stores.owner import own


def test_a_session_is_gone_on_with_or_begins(talk, data):
    talk()
    assert find_or_new("aa", None, data) == ("ses_aa1", False)
    assert find_or_new("garden", None, data) == ("garden", True)
    session_id, new = find_or_new("new", None, data)
    assert session_id.startswith("ses_")
    assert new
    with pytest.raises(InvalidRequest, match="is no id that a session can have"):
        find_or_new("../x", None, data)


def test_one_that_was_deleted_is_not_begun_anew(talk, data):
    talk()
    conversation.delete("ses_aa1", url=None, data=None)
    with pytest.raises(SessionGone):
        find_or_new("ses_aa1", None, data)


async def test_nothing_is_changed_beside_an_owner_that_cannot_be_asked(talk, data):
    """As while `holdfast run` is under way."""
    async with own(data):
        with pytest.raises(DataInUse):
            await conversation._in_app(data, lambda app: app.sessions.delete("ses_aa1"))
