import pytest

from holdfast.calls.line import Line
from holdfast.core.events import ModelCalled, ModelFailed, RunCancelled
from holdfast.ports import Census
from holdfast.server.metrics import Metrics
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, StoreContract, held
from holdfast.testing.intake import IntakeContract
from holdfast.testing.scripted import ScriptedModel

NOBODY = Census(queued=0, running=0)


def value(metrics, name, *, census=NOBODY, readers=0, lines=None, **labels):
    registry = metrics.registry(census, readers=readers, lines=lines or {})
    return registry.get_sample_value(name, labels)


async def test_what_is_written_is_counted():
    metrics = Metrics()
    store = metrics.wrap(MemoryStore())
    lease = await held(store)
    called = ModelCalled(turn=1, attempt=1, model="m")
    stalled = ModelFailed(turn=1, attempt=1, reason="ttfb_kill")
    again = ModelCalled(turn=1, attempt=2, model="m")
    await store.append(lease, called, stalled, again, seen=1)
    await store.append(lease, RunCancelled(), seen=4)
    assert value(metrics, "holdfast_events_total", type="model.called") == 2
    assert value(metrics, "holdfast_runs_ended_total", status="cancelled") == 1
    assert value(metrics, "holdfast_model_failures_total", reason="ttfb_kill") == 1
    assert value(metrics, "holdfast_model_stalls_total") == 1
    assert value(metrics, "holdfast_model_retries_total") == 1
    assert value(metrics, "holdfast_commit_seconds_count") == 3


async def test_what_is_refused_is_not():
    metrics = Metrics()
    store = metrics.wrap(MemoryStore())
    await store.accept("run_1", ACCEPTED)
    with pytest.raises(Exception, match="already exists"):
        await store.accept("run_1", ACCEPTED)
    assert value(metrics, "holdfast_events_total", type="run.accepted") == 1


def test_commits_are_counted_by_how_long_they_took():
    metrics = Metrics()
    for seconds in (0.0005, 0.0006, 0.2, 60):
        metrics.written((), seconds)
    assert value(metrics, "holdfast_commit_seconds_sum") == pytest.approx(60.2011)
    for bound, count in {"0.0005": 1, "0.001": 2, "0.1": 2, "0.25": 3, "5.0": 3, "+Inf": 4}.items():
        assert value(metrics, "holdfast_commit_seconds_bucket", le=bound) == count


def test_how_things_stand_is_told():
    metrics, line = Metrics(), Line(ScriptedModel())
    now = {
        "census": Census(queued=3, running=7, held=2, stopping=1),
        "readers": 7,
        "lines": {"main": line},
    }
    assert value(metrics, "holdfast_queue_length", **now) == 3
    assert value(metrics, "holdfast_runs", status="queued", **now) == 3
    assert value(metrics, "holdfast_runs", status="running", **now) == 2
    assert value(metrics, "holdfast_runs", status="stopping", **now) == 1
    assert value(metrics, "holdfast_runs", status="waiting", **now) == 4
    assert value(metrics, "holdfast_subscribers", **now) == 7
    assert value(metrics, "holdfast_breaker_open", model="main", **now) == 0
    line.endpoint.breaker.failures = 5
    assert value(metrics, "holdfast_breaker_open", model="main", **now) == 1


class TestCountedStore(StoreContract):
    @pytest.fixture
    def store(self):
        return Metrics().wrap(MemoryStore())


class TestCountedStoreTakingIn(IntakeContract):
    @pytest.fixture
    def clock(self):
        return [1000.0]

    @pytest.fixture
    def store(self, clock):
        return Metrics().wrap(MemoryStore(now=lambda: clock[0]))

    @pytest.fixture
    def wait(self, clock):
        def wait(seconds):
            clock[0] += seconds

        return wait
