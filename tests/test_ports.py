from holdfast.core.messages import ToolSpec
from holdfast.ports import Model, Review, Store, Tool, ToolUse
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import ScriptedModel, ScriptedTool


def test_the_fakes_have_the_shape_of_what_they_stand_for():
    """The type checker reads these lines; running them shows that they are not out of date."""
    store: Store = MemoryStore()
    model: Model = ScriptedModel()
    tool: Tool = ScriptedTool("pay")
    assert (store, model) is not None
    assert tool.spec == ToolSpec(name="pay", description="pay, in a script")


def test_a_review_lets_a_call_run_unless_it_says_otherwise():
    assert Review() == Review(gate="auto", reason="", subject="", key="")


def test_a_use_is_known_by_its_effect():
    async def nowhere(text):
        pass

    assert ToolUse("{}", "call_1", nowhere) != ToolUse("{}", "call_2", nowhere)
