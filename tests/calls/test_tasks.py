import anyio
import pytest

from holdfast.calls.tasks import task_group


async def fail(error, after=0.0):
    await anyio.sleep(after)
    raise error


async def test_a_failing_task_s_error_comes_out_as_itself():
    with pytest.raises(ValueError, match="one"):
        async with task_group() as tasks:
            tasks.start_soon(fail, ValueError("one"))
            await anyio.sleep_forever()


async def test_of_several_the_gravest_comes_out_and_the_others_are_noted():
    class Grave(BaseException):
        pass

    with pytest.raises(Grave) as raised:
        async with task_group() as tasks:
            async with task_group() as inner:
                inner.start_soon(fail, ValueError("one"))
                inner.start_soon(fail, Grave())
            tasks.start_soon(anyio.sleep_forever)
    assert raised.value.__notes__ == ["beside it: ValueError('one')"]


async def test_nested_groups_are_looked_into():
    async def two():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, ValueError("one"))
            tasks.start_soon(fail, KeyError("two"))

    with pytest.raises(ValueError, match="one") as raised:
        async with task_group() as tasks:
            tasks.start_soon(two)
    assert len(raised.value.__notes__) == 1


async def test_cancellation_passes_through():
    with anyio.move_on_after(1) as scope:
        async with task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
    assert scope.cancelled_caught
