"""Many seeds of the simulated world. `make soak` lives through far more."""

import asyncio
import gc
import logging

import pytest

from holdfast.testing.simulation import World
from holdfast.testing.virtual_time import VirtualTimeLoop

SEEDS, AT_ONCE = 40, 10
SOAK_SEEDS = 20_000


@pytest.fixture(autouse=True)
def quietly(caplog):
    with caplog.at_level(logging.CRITICAL, logger="holdfast"):
        yield


def live(seeds):
    gc.disable()
    try:
        for seed in seeds:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run(World(seed).live())
            gc.collect(1)
    finally:
        gc.enable()


@pytest.mark.seeds
@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_promise_holds_in_a_world_of_misfortune(first):
    live(range(first, first + AT_ONCE))


def test_one_world_in_full():
    live([7])


def test_a_world_that_breaks_a_promise_names_its_seed():
    world = World(1, runs=5)

    async def forge():
        """Somebody claims to have seen what is not in the journal."""
        await world.live()
        next(iter(world.stories.values())).seen.pop()
        await world.check()

    with (
        pytest.raises(AssertionError, match=r"seed 1, run_.: a follower saw something else"),
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
    ):
        runner.run(forge())


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(100_000, 100_000 + SOAK_SEEDS, 100))
def test_every_promise_holds_for_a_long_time(first):
    live(range(first, first + 100))


def test_a_seed_lives_the_same_life_each_time():
    def journals(seed):
        world = World(seed, runs=10)
        live_one = asyncio.Runner(loop_factory=VirtualTimeLoop)
        with live_one as runner:
            runner.run(world.live())
        return {id: [(r.at, r.body) for r in story.seen] for id, story in world.stories.items()}

    assert journals(3) == journals(3)
