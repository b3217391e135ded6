"""The contracts hold for the fakes, and bite when a promise is broken."""

import anyio
import msgspec
import pytest

from holdfast.core.messages import Done, Said, ToolSpec
from holdfast.errors import ModelUnavailable, ToolError
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ModelContract, StoreContract, ToolContract
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import ScriptedModel, ScriptedTool, Think


class TestScriptedModel(ModelContract):
    @pytest.fixture
    def model(self):
        return ScriptedModel.by_turn([Think("hm"), "Hel", "lo"])


class TestFaultlessStore(StoreContract):
    @pytest.fixture
    def store(self):
        return FaultyStore(MemoryStore())


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    euro: int = 0


def strict(arguments):
    try:
        msgspec.json.decode(arguments, type=Arguments)
    except msgspec.ValidationError as error:
        raise ToolError(str(error)) from error
    return Review()


class TestStrictTool(ToolContract):
    @pytest.fixture
    def tool(self):
        return ScriptedTool(review=strict)

    def test_arguments_it_knows_are_accepted(self, tool):
        assert tool.review('{"euro":5}') == Review()


class Forgetful(MemoryStore):
    """Grants every run to everyone."""

    async def claim(self, worker, *, ttl, limit=1):
        return [self._grant(run_id, worker, ttl) for run_id in list(self._runs)[:limit]]


async def test_a_store_that_grants_a_run_twice_is_found_out():
    with pytest.raises(AssertionError):
        await StoreContract().test_a_run_is_claimed_by_one_worker(Forgetful())


class Endless:
    async def stream(self, request):
        yield Done()
        yield Said("and another thing")


async def test_a_model_that_goes_on_after_its_end_is_found_out():
    with pytest.raises(AssertionError):
        await ModelContract().test_a_reply_ends_with_one_end_marker(Endless())


class Murdered:
    """Takes its own cancellation for a network error."""

    async def stream(self, request):
        try:
            await anyio.sleep(1)
        except BaseException as error:
            raise ModelUnavailable("the connection was closed") from error
        yield Done()


async def test_a_model_that_takes_a_cancel_for_an_error_is_found_out():
    with pytest.raises(pytest.fail.Exception, match="a cancel was taken for"):
        await ModelContract().test_being_cancelled_is_no_error_of_the_model(Murdered())


def test_a_tool_that_takes_anything_is_found_out():
    with pytest.raises(pytest.fail.Exception):
        ToolContract().test_arguments_that_are_none_are_refused_in_words(ScriptedTool())


def test_a_tool_without_a_description_is_found_out():
    tool = ScriptedTool()
    tool.spec = ToolSpec(name="pay")
    with pytest.raises(AssertionError):
        ToolContract().test_a_tool_says_what_it_is(tool)
