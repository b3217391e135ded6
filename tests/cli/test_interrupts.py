import signal

import anyio
import pytest

from holdfast.cli.interrupts import Interrupts


@pytest.mark.parametrize(
    ("number", "name", "code"), [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)]
)
async def test_the_first_signal_is_a_wish_and_the_second_a_command(number, name, code):
    left = []
    with Interrupts(left.append) as interrupts:
        assert not interrupts.came.is_set()
        signal.raise_signal(number)
        with anyio.fail_after(5):
            await interrupts.came.wait()
        assert (interrupts.name, interrupts.code, left) == (name, code, [])
        signal.raise_signal(signal.SIGINT)
    assert left == [130]


async def test_a_run_stopped_by_somebody_else_counts_as_stopped():
    assert Interrupts(print).code == 130


async def test_afterwards_signals_do_what_they_did_before():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(print):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
