"""Conversations on a server: the same commands, as processes beside a real one."""

import json
import subprocess

import pytest
from msgspec.structs import replace

from holdfast.cli import far as module
from holdfast.cli.far import Far
from holdfast.core.codec import note, record
from holdfast.core.luggage import Carried, Luggage, pack
from holdfast.core.messages import Text
from holdfast.core.session import RunAdded, SessionCreated
from holdfast.errors import InvalidRequest, NotFound
from holdfast.testing.contracts import ACCEPTED
from holdfast.testing.conversations import ENDED
from tests.cli.conftest import HOLDFAST
from tests.cli.test_far import KEY, elsewhere, served, server  # noqa: F401 (fixtures)

pytestmark = pytest.mark.real_time


@pytest.fixture
def far(server):  # noqa: F811 (a fixture)
    return Far(server, KEY)


@pytest.fixture
def begun(far):
    """Have a session with one turn on the server. Returns its id."""

    def begin(session, text="hello"):
        asked = replace(ACCEPTED, session_id=session, input=(Text(text),))
        run_id = f"run_of_{session}"
        events = (SessionCreated(title=text), RunAdded(run_id=run_id, ordinal=1))
        notes = [note(seq, 5.0, event) for seq, event in enumerate(events, 1)]
        luggage = Luggage(session, notes, [Carried(run_id, [record(1, 5.0, asked), *ENDED])])
        assert far.import_session(pack(luggage), as_new=False) == (session, 1)
        return session

    return begin


def talk(command, session, *options):
    return json.loads(command("show", session, "--json", *options)[1])


def test_a_session_is_gone_on_with_on_the_server(begun, command, far):
    begun("ses_on1")
    code, output, notes = command("run", "--session", "on1", "and then?")
    assert (code, "begins" in notes) == (0, False)
    assert "and then?" in output
    assert far.session("ses_on1").runs == 2
    far_told, near = talk(command, "ses_on1", "--url", far._url), talk(command, "ses_on1")
    assert far_told["entries"] == near["entries"]
    assert far_told["title"] == near["title"] == "hello"
    assert [row.session_id for row in far.sessions()].count("ses_on1") == 1


def test_what_is_made_of_a_session_is_made_by_the_server(begun, command, far, server):  # noqa: F811
    begun("ses_made1")
    for words in (("rename", "made1", "My garden"), ("pin", "made1"), ("archive", "made1")):
        code, _, complaints = command("sessions", *words, "--url", server)
        assert (code, complaints) == (0, "")
    row = far.session("ses_made1")
    assert (row.title, row.pinned, row.archived) == ("My garden", True, True)
    _, output, _ = command("sessions", "--archived", "--url", server)
    assert "[pinned, archived] My garden" in output
    assert command("sessions", "delete", "made1", "--yes")[0] == 0
    assert "was deleted" in command("run", "--session", "ses_made1", "hi")[2]
    with pytest.raises(NotFound):
        far.find_session("made1")
    assert command("sessions", "restore", "made1", "--url", server)[0] == 0
    assert far.session("ses_made1").title == "My garden"


def test_a_session_is_carried_from_one_place_to_another(begun, command, far, tmp_path, elsewhere):  # noqa: F811
    begun("ses_carry1")
    for format in ("json", "md"):
        file = tmp_path / f"it.{format}"
        words = ("sessions", "export", "carry1", "-o", str(file), "--format", format)
        assert command(*words, "--url", elsewhere)[0] == 0
    assert file.read_text().startswith("# hello\n")
    # To the directory here, and back to the server under other ids.
    file = tmp_path / "it.json"
    assert command("sessions", "import", str(file))[0] == 0
    assert talk(command, "ses_carry1")["runs"] == 1
    code, _, complaints = command("sessions", "import", str(file), "--url", elsewhere)
    assert code == 2
    assert "--as-new takes it in under other ids" in complaints
    _, output, _ = command("sessions", "import", str(file), "--as-new", "--url", elsewhere)
    assert far.session(output.split()[1]).runs == 1


def test_a_message_waits_for_its_turn_or_is_turned_away(far, command):
    first = far.submit("hello", model="", approval="ask", session="ses_busy1")
    waiting = subprocess.Popen(
        [*HOLDFAST, "run", "--session", "busy1", "next"], stdout=subprocess.PIPE
    )
    try:
        while far.session("ses_busy1").queued < 1:
            pass
        code, _, complaints = command("run", "--session", "busy1", "no", "--on-busy", "reject")
        assert code == 2
        assert f"is busy with run {first.run_id}" in complaints
        _, output, _ = command("show", "busy1")
        assert f"1 message waits for {first.run_id[:12]} to end" in output
        command("stop", first.run_id)
        output, _ = waiting.communicate(timeout=30)
        assert "next" in output.decode()
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == 0


def test_ids_may_be_shortened_as_long_as_they_are_clear(begun, far):
    begun("ses_ab1")
    begun("ses_ab2")
    assert far.find_session("ab1") == far.find_session("ses_ab1") == "ses_ab1"
    with pytest.raises(InvalidRequest, match="could be ses_ab2 or ses_ab1; type more of it"):
        far.find_session("ab")
    with pytest.raises(
        InvalidRequest, match="could be run_of_ses_ab2 or run_of_ses_ab1; type more"
    ):
        far.find("of_ses_ab")
    assert far.find("of_ses_ab1") == far.find("run_of_ses_ab1") == "run_of_ses_ab1"
    with pytest.raises(NotFound, match="there is no session zz"):
        far.find_session("zz")


def test_a_transcript_is_asked_for_a_page_at_a_time(begun, far, monkeypatch):
    begun("ses_pages1")
    whole = list(far.messages("ses_pages1"))
    monkeypatch.setattr(module, "ENTRIES", 2)
    assert list(far.messages("ses_pages1")) == whole
    monkeypatch.setattr(module, "PAGE", 1)
    assert len(list(far.sessions())) >= 1
