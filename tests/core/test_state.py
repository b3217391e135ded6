from msgspec.structs import replace

from holdfast.core.events import ModelReplied, ToolFinished
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text, ToolCall, ToolSpec, UserMessage
from holdfast.core.state import AttemptState, RunState, ToolState
from tests.core.stories import accepted, state

CALL = ToolCall(id="call_1", tool="pay")
HERE = RunState(epoch=2)


def test_a_state_of_nothing_is_new_and_empty():
    new = RunState()
    assert (new.status, new.output, new.conversation, new.open_tools) == (Status.NEW, "", (), ())
    assert new.spec("pay") is None
    assert not new.stopping


def test_the_output_is_the_text_of_the_last_reply():
    assert RunState(reply=ModelReplied(turn=1, attempt=1, text="Hello")).output == "Hello"


def test_the_conversation_is_the_pile_laid_out():
    one, two = (UserMessage(parts=(Text(text),)) for text in ("one", "two"))
    assert RunState(messages=((one, two), (one,))).conversation == (one, two, one)


def test_a_call_is_running_if_the_worker_that_holds_the_run_started_it():
    assert HERE.running(ToolState(CALL, starts=1, epoch=2))
    assert not HERE.running(ToolState(CALL, starts=1, epoch=1))
    assert not HERE.running(ToolState(CALL))


def test_a_call_is_in_doubt_if_a_worker_that_is_gone_started_it():
    assert HERE.in_doubt(ToolState(CALL, starts=1, epoch=1))
    assert not HERE.in_doubt(ToolState(CALL, starts=1, epoch=2))
    assert not HERE.in_doubt(ToolState(CALL))


def test_a_call_with_a_result_is_neither_open_nor_running_nor_in_doubt():
    finished = ToolFinished(call_id="call_1", outcome="ok")
    done = ToolState(CALL, starts=1, epoch=2, result=finished)
    settled = replace(HERE, tools=(done, ToolState(CALL)))
    assert settled.open_tools == (ToolState(CALL),)
    assert not settled.running(done)
    assert not RunState(epoch=3).in_doubt(done)


def test_an_attempt_has_shown_something_once_it_said_or_thought_a_word():
    attempt = AttemptState(number=1, model="main", epoch=1, called=3, at=0.0)
    assert not attempt.shown
    assert replace(attempt, text=("a",)).shown
    assert replace(attempt, reasoning=("a",)).shown


def test_a_tool_is_described_as_it_was_when_the_run_was_accepted():
    pay = ToolSpec(name="pay")
    run = state(accepted(tools=(pay,)))
    assert (run.spec("pay"), run.spec("fly")) == (pay, None)
