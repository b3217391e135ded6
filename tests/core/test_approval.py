import pytest
from msgspec.structs import replace

from holdfast.core.approval import Allowed, Ask, Forbidden, Waiting, covers, digest, verdict
from holdfast.core.events import ApprovalExpired
from holdfast.core.messages import ToolSpec
from holdfast.core.run import Grant, RunState, ToolState
from tests.core.stories import (
    answer,
    asked,
    asking,
    begun,
    call,
    called,
    done,
    lost,
    replied,
    state,
)

BOB = Grant("pay", "pay bob", "always")


def judge(now, *standing):
    """The verdict on the last call of the last reply."""
    return verdict(now, now.tools[-1], standing)


def in_doubt(again, **fields):
    """A payment was cut off by a crash, and the model asks for this next."""
    return state(
        *(*asking(call(tool=again.tool), **fields), begun(), *lost(2), done(outcome="unknown")),
        *(called(turn=2), replied(again, turn=2)),
    )


# --- gates


def test_a_call_that_needs_no_yes_may_run():
    assert judge(state(*asking(call(gate="auto")))) == Allowed()


def test_a_call_that_needs_a_yes_is_put_to_a_person_with_its_reason():
    assert judge(state(*asking(call(gate="ask", reason="it pays")))) == Ask("it pays")


def test_a_call_that_is_refused_does_not_run_whatever_anyone_says():
    refused = state(*asking(call(gate="refuse", key="pay bob", reason="never")), asked(), answer())
    assert judge(refused, BOB) == Forbidden("refused", "never")


def test_a_refusal_without_a_reason_has_words_all_the_same():
    said = judge(state(*asking(call(gate="refuse"))))
    assert isinstance(said, Forbidden)
    assert "not allowed here" in said.why


def test_where_nobody_can_be_asked_the_answer_is_no():
    said = judge(state(*asking(call(gate="ask"), approval="deny")))
    assert isinstance(said, Forbidden)
    assert said.outcome == "refused"
    assert "nobody can be asked here" in said.why


def test_a_run_that_was_never_accepted_allows_nothing_that_needs_a_yes():
    assert isinstance(verdict(RunState(), ToolState(call(gate="ask")), ()), Forbidden)


# --- answers


def test_a_call_that_was_put_to_a_person_waits():
    assert judge(state(*asking(call(gate="ask")), asked())) == Waiting()


@pytest.mark.parametrize("choice", ["once", "session", "always"])
def test_a_yes_lets_the_call_run(choice):
    assert judge(state(*asking(call(gate="ask")), asked(), answer(choice))) == Allowed()


def test_a_no_is_told_to_the_model():
    said = judge(state(*asking(call(gate="ask")), asked(), answer("deny")))
    assert isinstance(said, Forbidden)
    assert said.outcome == "denied"
    assert "said no" in said.why


def test_silence_is_not_consent():
    expired = ApprovalExpired(approval_id="a1")
    said = judge(state(*asking(call(gate="ask")), asked(), expired))
    assert isinstance(said, Forbidden)
    assert said.outcome == "expired"


def test_each_of_several_calls_has_an_answer_of_its_own():
    one, two, three = (call(f"c{n}", gate="ask") for n in (1, 2, 3))
    now = state(
        *(*asking(one, two, three), asked("c1", "a1"), asked("c2", "a2"), asked("c3", "a3")),
        *(answer("deny", "a3"), answer("once", "a1"), answer("deny", "a1")),
    )
    verdicts = [verdict(now, tool, ()) for tool in now.tools]
    assert verdicts[:2] == [Allowed(), Waiting()]
    assert isinstance(verdicts[2], Forbidden)


# --- how far a yes reaches


def test_a_standing_yes_covers_a_call_with_the_same_key():
    assert judge(state(*asking(call(gate="ask", key="pay bob"))), BOB) == Allowed()


@pytest.mark.parametrize(
    "other",
    [
        call(gate="ask", key="pay eve"),
        call(gate="ask", key="pay bob", tool="put"),
        call(gate="ask", key="pay bob "),
        call(gate="ask", key=""),
    ],
)
def test_a_standing_yes_covers_nothing_else(other):
    assert isinstance(judge(state(*asking(other)), BOB), Ask)


@pytest.mark.parametrize("choice", ["session", "always"])
def test_a_yes_for_the_session_covers_the_same_key_from_then_on(choice):
    first, later = call("c1", gate="ask", key="k"), call("c2", gate="ask", key="k")
    before = (*asking(first), asked(), answer(choice), begun(), done(), called(turn=2))
    now = state(*before, replied(later, turn=2))
    assert verdict(now, now.tools[-1]) == Allowed()


def test_where_rules_are_kept_elsewhere_only_those_that_stand_there_count():
    """So that a rule that was revoked is revoked for the run it was granted in."""
    first, later = call("c1", gate="ask", key="k"), call("c2", gate="ask", key="k")
    before = (*asking(first), asked(), answer("always"), begun(), done(), called(turn=2))
    now = state(*before, replied(later, turn=2))
    assert isinstance(judge(now), Ask)
    assert judge(now, Grant("pay", "k", "always", "rule_1")) == Allowed("rule_1")


@pytest.mark.parametrize(
    ("rule", "key", "covered"),
    [
        ('jail ["git","push"]', 'jail ["git","push"]', True),
        ('jail ["git","push"]', 'jail ["git","push","--force"]', False),
        ('jail ["git","push","..."]', 'jail ["git","push","--force"]', True),
        ('jail ["git","push","..."]', 'jail ["git","push"]', True),
        ('jail ["git","push","..."]', 'jail ["git","pushy"]', False),
        ('jail ["git","push","..."]', 'host ["git","push"]', False),
        ('jail ["git","..."]', 'jail ["git","..."]', False),
        ('jail ["git","..."]', 'jail ["git","push","..."]', False),
        ("", "", False),
    ],
)
def test_a_rule_reaches_as_far_as_its_words_and_what_follows_only_where_it_says_so(
    rule, key, covered
):
    assert covers(rule, key) is covered


def test_the_sum_of_what_is_shown_changes_with_every_part_of_it():
    one = call("c1", subject="pay 5", binding="account: 7")
    others = [
        replace(one, **{name: "other"})
        for name in ("id", "tool", "arguments", "subject", "binding")
    ]
    assert len({digest(each) for each in (one, *others)}) == 6
    assert digest(one) == digest(replace(one, reason="other"))


def test_a_yes_for_once_covers_one_call():
    first, later = call("c1", gate="ask", key="k"), call("c2", gate="ask", key="k")
    before = (*asking(first), asked(), answer("once"), begun(), done(), called(turn=2))
    assert isinstance(judge(state(*before, replied(later, turn=2))), Ask)


def test_a_call_without_a_key_is_covered_by_no_standing_yes():
    first, later = call("c1", gate="ask"), call("c2", gate="ask")
    before = (*asking(first), asked(), answer("always"), begun(), done(), called(turn=2))
    assert isinstance(
        judge(state(*before, replied(later, turn=2)), Grant("pay", "", "always")), Ask
    )


# --- doubt


AGAIN = call("c2", arguments='{"sum":1e0}')


def test_a_call_that_may_repeat_an_effect_is_put_to_a_person_though_it_needs_no_yes():
    said = judge(in_doubt(AGAIN))
    assert isinstance(said, Ask)
    assert said.doubt == "c1"
    assert "may have taken effect" in said.reason


def test_a_standing_yes_does_not_cover_a_doubt():
    again = call("c2", gate="ask", key="pay bob")
    assert isinstance(judge(in_doubt(again), BOB), Ask)


def test_a_yes_given_to_the_doubt_lets_the_call_run():
    before = (*asking(call()), begun(), *lost(2), done(outcome="unknown"), called(turn=2))
    assert judge(state(*before, replied(AGAIN, turn=2), asked("c2"), answer())) == Allowed()


def test_where_nobody_can_be_asked_a_doubt_is_a_no():
    said = judge(in_doubt(AGAIN, approval="deny"))
    assert isinstance(said, Forbidden)
    assert said.outcome == "refused"


def test_a_tool_that_only_reads_may_be_asked_again_in_any_doubt():
    assert judge(in_doubt(call("c2", tool="look"))) == Allowed()


def test_a_tool_nobody_knows_is_taken_to_write():
    assert isinstance(judge(in_doubt(call("c2", tool="fly"))), Ask)


@pytest.mark.parametrize("other", [call("c2", arguments='{"sum": 2}'), call("c2", tool="put")])
def test_a_doubt_is_about_the_same_tool_with_equal_arguments_only(other):
    before = (*asking(call()), begun(), *lost(2), done(outcome="unknown"), called(turn=2))
    assert judge(state(*before, replied(other, turn=2))) == Allowed()


@pytest.mark.parametrize(
    "again", ['{"sum":1,"by":"card"}', '{"by":"card","sum":1.0}', '{"sum":1,"by":"card","times":1}']
)
def test_a_default_that_is_spelled_out_makes_no_other_call_of_it(again):
    schema = '{"properties":{"by":{"default":"card"},"times":{"default":1.0},"note":true}}'
    tools = (ToolSpec("pay", schema=schema),)
    assert judge(in_doubt(call("c2", arguments=again), tools=tools)).doubt == "c1"
    other = call("c2", arguments='{"sum":1,"by":"cash"}')
    assert judge(in_doubt(other, tools=tools)) == Allowed()


def test_what_a_call_only_depends_on_makes_no_other_effect_of_it():
    def pays(id, subject, binding):
        return call(id, arguments=f'{{"id":"{id}"}}', subject=subject, binding=binding)

    def judged(again):
        first = pays("c1", "./pay.sh", "timeout: 180 s")
        before = (*asking(first), begun(), *lost(2), done(outcome="unknown"))
        return judge(state(*before, called(2), replied(again, turn=2)))

    assert judged(pays("c2", "./pay.sh", "timeout: 300 s")).doubt == "c1"
    assert judged(pays("c2", "./refund.sh", "timeout: 180 s")) == Allowed()


def test_a_call_that_failed_in_the_open_leaves_no_doubt():
    before = (*asking(call()), begun(), done(outcome="error"), called(turn=2))
    assert judge(state(*before, replied(AGAIN, turn=2))) == Allowed()
