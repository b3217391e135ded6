import dataclasses

import anyio
import pytest
from msgspec.structs import replace

from holdfast.calls.foreign import MOST_WORDS
from holdfast.core.events import ApprovalRequested, ToolFinished, ToolProgressed, ToolStarted
from holdfast.core.messages import Asked, ToolSpec
from holdfast.core.run import RunState
from holdfast.core.secrets import MASK, Secrets
from holdfast.engine.means import Means
from holdfast.engine.use import (
    LONGEST_TRACE,
    MOST_TRACES,
    PROGRESS_LIMIT,
    look_again,
    review,
    review_all,
    shortened,
)
from holdfast.errors import ToolError
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage

#: Characters of output that a model is shown unless its tool says otherwise.
OUTPUT_LIMIT = ToolSpec("").output

KEY = "sk-canary-0123456789"


def setting(tool, *, have=True):
    means = Means(MemoryStore(), {}, {"pay": tool} if have else {})
    return RunState(accepted=replace(ACCEPTED, tools=(tool.spec,))), means


def reviewed(tool, arguments="{}", *, name="pay", have=True):
    state, means = setting(tool, have=have)
    return review(Asked(name, arguments, model_id="theirs"), state, means)


async def used(work):
    """What the model is told, and the recorded result."""
    model = ScriptedModel([Call("pay")], ["ok"])
    async with stage(model, ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await play.ended(run_id)
        (result,) = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
        whole = await play.means.store.blob(result.blob.sha256) if result.blob else None
    return result, whole


def returns(output):
    async def work(use):
        return output

    return work


def test_a_call_gets_an_id_of_ours_and_keeps_the_model_s_beside_it():
    one, two = reviewed(ScriptedTool()), reviewed(ScriptedTool())
    assert one.model_id == two.model_id == "theirs"
    assert one.id != two.id


def test_an_unknown_tool_is_a_problem_that_names_the_known_ones():
    assert reviewed(ScriptedTool(), name="fly").problem == "there is no tool 'fly'; there are: pay"


@pytest.mark.parametrize(
    "arguments", ["{", "[]", "null", "1", '"x"', "{}{}", "[" * 100_000, "\ud83d"]
)
def test_arguments_that_are_no_object_are_a_problem_and_are_never_looked_at(arguments):
    def explode(arguments):
        raise AssertionError("looked at")

    assert "must be a JSON object" in reviewed(ScriptedTool(review=explode), arguments).problem


def test_no_arguments_at_all_are_an_empty_object():
    assert (reviewed(ScriptedTool(), "").arguments, reviewed(ScriptedTool(), "").problem) == (
        "{}",
        "",
    )


def test_what_a_tool_says_against_the_arguments_is_told_in_its_words():
    def picky(arguments):
        raise ToolError("euro must be positive")

    assert reviewed(ScriptedTool(review=picky)).problem == "euro must be positive"


def test_a_tool_that_stumbles_over_the_arguments_is_a_problem_and_not_a_crash():
    def broken(arguments):
        raise KeyError("\ud83d")

    assert "KeyError" in reviewed(ScriptedTool(review=broken)).problem


def test_the_gate_is_on_record_with_the_call():
    call = reviewed(ScriptedTool(review=Review("ask", "money", "pay 5", "pay")))
    assert (call.gate, call.reason, call.subject, call.key) == ("ask", "money", "pay 5", "pay")


def test_a_tool_that_is_not_at_hand_is_asked_about():
    assert reviewed(ScriptedTool(), have=False).gate == "ask"


async def test_ten_megabytes_of_output_are_kept_whole_and_shown_shortened():
    output = "".join(f"line {n}\n" for n in range(1_000_000))[:10_000_000]
    result, whole = await used(returns(output))
    assert whole == output.encode() and result.blob.size == len(whole)
    assert len(result.output) < OUTPUT_LIMIT + 200
    assert result.output.startswith("line 0\n") and result.output.endswith(output[-50:])
    assert "characters left out" in result.output


async def test_output_up_to_the_limit_is_shown_as_it_is():
    result, whole = await used(returns("x" * OUTPUT_LIMIT))
    assert (result.output, whole) == ("x" * OUTPUT_LIMIT, None)


async def test_output_that_cannot_be_stored_is_said_to_be_lost():
    result, _ = await used(returns("a\ud83d"))
    assert (result.outcome, "half a character at 1" in result.output) == ("error", True)


async def test_output_that_is_no_text_is_shown_as_text():
    result, _ = await used(returns(None))
    assert (result.outcome, result.output) == ("ok", "None")


async def test_a_tool_s_own_error_is_told_as_it_is():
    async def work(use):
        raise ToolError("the account is empty")

    result, _ = await used(work)
    assert (result.outcome, result.output) == ("error", "the account is empty")


async def test_what_came_before_an_error_is_kept_whole_like_any_output():
    async def work(use):
        raise ToolError("its time is up", output="line\n" * 100_000)

    result, whole = await used(work)
    assert whole == b"line\n" * 100_000 + b"its time is up"
    assert result.outcome == "error" and result.output.endswith("line\nits time is up")
    assert "characters left out" in result.output


async def test_the_effect_id_is_the_call_s_own():
    seen = []

    async def work(use):
        seen.append((use.effect_id, use.arguments))
        return "ok"

    result, _ = await used(work)
    assert seen == [(result.call_id, "{}")]


async def test_a_tool_without_a_limit_may_take_its_time():
    async def work(use):
        await anyio.sleep(5000)
        return "at last"

    async with stage(
        ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work, timeout=0)
    ) as play:
        assert (await play.ended(await play.start())).output == "ok"


def test_if_one_call_of_a_reply_cannot_be_read_none_is_run():
    tool = ScriptedTool()
    state, means = setting(tool)
    asked = [Asked("pay", '{"euro": 1}'), Asked("pay", '{"euro": '), Asked("fly", "{}")]
    whole, cut, unknown = review_all(asked, state, means)
    assert whole.problem == "not run: another call of the same reply could not be read"
    assert "must be a JSON object" in cut.problem and "no tool" in unknown.problem


def test_a_problem_with_one_call_is_its_own_if_it_could_be_read():
    state, means = setting(ScriptedTool())
    whole, unknown = review_all([Asked("pay", "{}"), Asked("fly", "{}")], state, means)
    assert (whole.problem, unknown.problem != "") == ("", True)


def hiding(tool):
    state, means = setting(tool)
    return state, dataclasses.replace(means, secrets=Secrets([KEY]))


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (f'{{"to":"{KEY}"}}', f'{{"to":"{MASK}"}}'),
        ('{"to":"\\u0073k-canary-0123456789"}', f'{{"to":"{MASK}"}}'),
        (f'{{"to":"{KEY}","to":"bob"}}', f'{{"to":"{MASK}","to":"bob"}}'),
        (f'{{"{KEY}":1}}', f'{{"{MASK}":1}}'),
        (f"no JSON, but {KEY}", f"no JSON, but {MASK}"),
    ],
)
def test_a_call_that_would_take_a_secret_along_is_not_even_looked_at(arguments, kept):
    def explode(arguments):
        raise AssertionError("looked at")

    state, means = hiding(ScriptedTool(review=explode))
    call = review(Asked("pay", arguments), state, means)
    assert call.arguments == kept
    assert (
        call.problem == "not run: its arguments contain a secret that must not leave this machine"
    )


def test_arguments_without_a_secret_are_kept_letter_by_letter():
    state, means = hiding(ScriptedTool())
    arguments = '{ "b": 1.0, "a": "\\u0073k-" }'
    call = review(Asked("pay", arguments), state, means)
    assert (call.arguments, call.problem) == (arguments, "")


def test_a_secret_in_one_call_does_not_make_another_unreadable():
    state, means = hiding(ScriptedTool())
    means = dataclasses.replace(means, secrets=Secrets(["12345678"]))
    secret, other = review_all([Asked("pay", '{"n":12345678}'), Asked("pay", "{}")], state, means)
    assert (secret.problem != "", other.problem) == (True, "")


def test_a_problem_that_is_cut_short_keeps_nothing_of_a_secret():
    def picky(arguments):
        raise ToolError("x" * (MOST_WORDS - 10) + KEY)

    state, means = hiding(ScriptedTool(review=picky))
    problem = review(Asked("pay", "{}"), state, means).problem
    assert problem == "x" * (MOST_WORDS - 10) + MASK


def test_words_are_shortened_only_where_there_are_too_many():
    secrets = Secrets([KEY])
    assert shortened(KEY[:-1], secrets) == KEY[:-1]
    assert shortened("x" * 2 * MOST_WORDS, secrets) == "x" * MOST_WORDS


async def test_progress_that_waits_for_room_until_the_tool_has_ended_says_nothing_more():
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    async with anyio.create_task_group() as tasks:

        async def work(use):
            tasks.start_soon(use.progress, "x" * PROGRESS_LIMIT)
            await anyio.sleep(1)
            return "ok"

        model = ScriptedModel([Call("pay")], ["ok"])
        async with stage(model, ScriptedTool(work=work), store=line) as play:
            run_id = await play.start()
            await play.until(run_id, ToolStarted)
            line.delay = 2.0
            assert (await play.ended(run_id)).output == "ok"
            line.delay = 0.0
            events = await play.journal(run_id)
        tasks.cancel_scope.cancel()
    kinds = [type(event) for event in events]
    assert ToolProgressed not in kinds[kinds.index(ToolFinished) :]


async def test_a_tool_may_have_a_limit_of_its_own_and_a_way_to_read_on():
    tool = ScriptedTool("count", work=returns("0123456789" * 10))
    tool.spec = replace(tool.spec, output=40)
    reader = ScriptedTool("read_output")
    async with stage(ScriptedModel([Call("count")], ["ok"]), tool, reader) as play:
        run_id = await play.start()
        await play.ended(run_id)
        (result,) = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
    assert result.output.startswith("0123456789" * 3 + "\n[… 60 characters left out")
    assert f'read_output with output "{result.blob.sha256}" and offset 30' in result.output
    assert result.output.endswith("…]\n0123456789")


# --- second thoughts


def started_twice(first, second):
    """What a tool says of the same call when it is looked at and when it is about to start.

    In between it is looked at once more if a person is to be asked.
    """
    looks = iter([first, first, second] if first.gate == "ask" else [first, second])

    def review(arguments):
        seen = next(looks)
        if isinstance(seen, Exception):
            raise seen
        return seen

    return ScriptedTool(review=review)


async def came_of(tool, *, answer=""):
    async with stage(ScriptedModel([Call("pay")], ["ok"]), tool) as play:
        run_id = await play.start()
        if answer:
            await play.until(run_id, ApprovalRequested)
            await play.runs.answer(run_id, answer)
        await play.ended(run_id)
        (result,) = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
    return result, tool.effects


ASK = Review(gate="ask", reason="it costs money", subject="pay 5", binding="account: 7")


@pytest.mark.parametrize(
    "now",
    [
        Review(gate="ask", subject="pay 6", binding="account: 7"),
        Review(gate="ask", subject="pay 5", binding="account: 8"),
        Review(gate="refuse", subject="pay 5", binding="account: 7"),
        ToolError("there is no account 7"),
        RuntimeError("oops"),
    ],
)
async def test_what_is_not_to_the_byte_what_a_person_agreed_to_does_not_start(now):
    result, effects = await came_of(started_twice(ASK, now), answer="once")
    assert (result.outcome, effects) == ("refused", [])
    assert result.output.startswith("not run: ")


async def test_what_is_said_of_a_call_by_then_keeps_nothing_of_a_secret_where_it_is_cut_short():
    def picky(arguments):
        raise ToolError("x" * (MOST_WORDS - 10) + KEY)

    async with stage(ScriptedModel([Call("pay")]), ScriptedTool(review=ASK)) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        state = await play.runs.state(run_id)
    _, means = hiding(ScriptedTool(review=picky))
    look = await look_again(state.tools[0].call, state, means)
    assert look.why == "not run: " + "x" * (MOST_WORDS - 10) + MASK


async def test_nobody_is_asked_about_what_has_changed_by_then():
    looks = iter([ASK, replace(ASK, binding="account: 8")])
    result, effects = await came_of(ScriptedTool(review=lambda arguments: next(looks)))
    assert (result.outcome, effects) == ("refused", [])


async def test_what_is_still_what_a_person_agreed_to_starts():
    result, effects = await came_of(started_twice(ASK, replace(ASK, reason="dear")), answer="once")
    assert (result.outcome, len(effects)) == ("ok", 1)


async def test_what_needed_no_yes_before_and_does_now_does_not_start():
    result, effects = await came_of(started_twice(Review(), Review(gate="ask", reason="no jail")))
    assert (result.outcome, effects) == ("refused", [])
    assert "no jail" in result.output


# --- traces


async def test_a_tool_that_is_cut_off_says_in_the_receipt_what_it_ended_and_what_it_left():
    begun = anyio.Event()

    async def work(use):
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            for n in range(MOST_TRACES + 1):
                use.ended(f"process {n}: killed" + "x" * 1000)
            use.left("thread \ud83d: still running")

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await begun.wait()
        await play.runs.stop(run_id)
        receipt = (await play.ended(run_id)).ended.receipt
    assert len(receipt.ended) == MOST_TRACES and len(receipt.ended[0]) == LONGEST_TRACE
    assert receipt.ended[0].startswith("process 0: killed")
    assert receipt.left == ("thread \\ud83d: still running",)


@pytest.mark.parametrize("error", [RuntimeError("I will not go"), ToolError("I will not go")])
async def test_what_goes_wrong_in_a_tool_that_is_cut_off_is_on_the_receipt(error):
    begun = anyio.Event()

    async def work(use):
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            use.ended("process 7: killed")
            raise error

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await begun.wait()
        await play.runs.stop(run_id)
        receipt = (await play.ended(run_id)).ended.receipt
        (result,) = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
    assert result.outcome == "cancelled" and receipt.tool_calls == (result.call_id,)
    assert receipt.ended == ("process 7: killed",)
    (problem,) = receipt.problems
    assert problem.startswith("pay: ") and problem.endswith("I will not go")


async def test_what_came_of_a_tool_when_a_stop_came_too_is_what_came_of_it():
    begun, over = anyio.Event(), anyio.Event()

    async def work(use):
        begun.set()
        await over.wait()
        raise ToolError("no such account")

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await begun.wait()
        over.set()
        await play.runs.stop(run_id)
        receipt = (await play.ended(run_id)).ended.receipt
        (result,) = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
    assert (result.outcome, result.output) == ("error", "no such account")
    assert (receipt.tool_calls, receipt.problems) == ((), ())


async def test_a_tool_that_takes_too_long_tells_the_model_what_it_left():
    async def work(use):
        try:
            await anyio.sleep_forever()
        finally:
            use.ended("process 7: killed")
            use.left("thread 8: still running")

    result, _ = await came_of(ScriptedTool(work=work, timeout=5.0))
    assert result.outcome == "timeout"
    assert result.output.endswith("; process 7: killed; thread 8: still running")


def broken():
    raise OSError("nobody knows")


@pytest.mark.parametrize(
    ("going", "named"), [(lambda: True, 1), (lambda: False, 0), (broken, 1), (None, 0)]
)
async def test_what_an_earlier_timeout_left_is_on_the_receipt_if_it_still_goes_on(going, named):
    goes_on, second = [True], anyio.Event()

    async def late(use):
        try:
            await anyio.sleep_forever()
        finally:
            use.left("thread 8: still running", going and (lambda: goes_on[0] or going()))

    async def work(use):
        goes_on[0] = False
        second.set()
        await anyio.sleep_forever()

    model = ScriptedModel([Call("late")], [Call("pay")], ["ok"])
    tools = ScriptedTool("late", work=late, timeout=5.0), ScriptedTool(work=work)
    async with stage(model, *tools) as play:
        run_id = await play.start()
        await second.wait()
        await play.runs.stop(run_id)
        receipt = (await play.ended(run_id)).ended.receipt
    assert receipt.left == ("thread 8: still running",) * named
