"""Numbers for Prometheus. Counted where events are written, since all that happens is one.

They are counted in plain numbers, and put into the words of Prometheus when somebody asks: many
events are written for each time that they are looked at, and most servers are never asked.
The store is wrapped, so that the engine knows nothing of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.calls.line import Line
from holdfast.core.events import FINAL, Event, ModelCalled, ModelFailed, Recorded
from holdfast.core.lease import Lease
from holdfast.core.retry import STALLED
from holdfast.ports import Census, Store

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

T = TypeVar("T")

#: Up to how many seconds a commit took, to be counted with others like it.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Metrics:
    def __init__(self) -> None:
        self._events = Counter[type[Event]]()
        self._failures = Counter[str]()
        self._retries = 0
        self._commits = [0] * (len(_SECONDS) + 1)
        self._seconds = 0.0

    def wrap(self, store: Store) -> Store:
        return cast("Store", _Counted(store, self))

    def written(self, events: Sequence[Event], seconds: float) -> None:
        self._commits[bisect_left(_SECONDS, seconds)] += 1
        self._seconds += seconds
        for event in events:
            self._events[type(event)] += 1
            if isinstance(event, ModelFailed):
                self._failures[event.reason] += 1
            elif isinstance(event, ModelCalled) and event.attempt > 1:
                self._retries += 1

    def registry(
        self, census: Census, *, readers: int, lines: Mapping[str, Line]
    ) -> CollectorRegistry:
        """All of it, and how things stand at this moment, as Prometheus' client has it."""
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(_Told((*self._counted(), *_standing(census, readers, lines))))
        return registry

    def _counted(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily as Counts
        from prometheus_client.core import HistogramMetricFamily as Spread

        events = Counts("holdfast_events", "Events written, by type.", labels=["type"])
        ended = Counts("holdfast_runs_ended", "Runs that ended, by status.", labels=["status"])
        for kind, count in self._events.items():
            tag = str(kind.__struct_config__.tag)
            events.add_metric([tag], count)
            if kind in FINAL:
                ended.add_metric([tag.removeprefix("run.")], count)
        yield from (events, ended)
        failures = Counts(
            "holdfast_model_failures", "Model calls without a reply, by reason.", labels=["reason"]
        )
        for reason, count in self._failures.items():
            failures.add_metric([reason], count)
        yield failures
        stalls = sum(count for reason, count in self._failures.items() if reason in STALLED)
        yield Counts("holdfast_model_stalls", "Model calls cut for silence.", stalls)
        yield Counts("holdfast_model_retries", "Attempts after the first.", self._retries)
        bounds = [*map(str, _SECONDS), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(self._commits)), strict=True))
        about = "From asking to durable."
        yield Spread("holdfast_commit_seconds", about, buckets=buckets, sum_value=self._seconds)


def _standing(census: Census, readers: int, lines: Mapping[str, Line]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily as Gauge

    about = (
        "Runs that have not ended: queued, running, stopping, or waiting for an answer or what is"
        " missing."
    )
    runs = Gauge("holdfast_runs", about, labels=["status"])
    runs.add_metric(["queued"], census.queued)
    runs.add_metric(["running"], census.held)
    runs.add_metric(["stopping"], census.stopping)
    runs.add_metric(["waiting"], census.running - census.held - census.stopping)
    yield runs
    yield Gauge("holdfast_queue_length", "Runs that wait for a worker.", census.queued)
    yield Gauge("holdfast_subscribers", "Readers of event streams.", readers)
    breakers = Gauge("holdfast_breaker_open", "1 while a model is left alone.", labels=["model"])
    for model, line in lines.items():
        breakers.add_metric([model], float(line.endpoint.breaker.open))
    yield breakers


class _Told:
    """What a registry collects from: all of it is known already."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


class _Counted:
    """A store that tells what is written to it, and is otherwise the store it wraps."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def accept(self, run_id: str, first: Any, **options: Any) -> Recorded:
        return await self._timed((first,), self._store.accept(run_id, first, **options))

    async def append(self, lease: Lease, *events: Event, **options: Any) -> Sequence[Recorded]:
        return await self._timed(events, self._store.append(lease, *events, **options))

    async def wish(self, run_id: str, wish: Any, **options: Any) -> Sequence[Recorded]:
        return await self._timed((wish,), self._store.wish(run_id, wish, **options))

    async def _timed(self, events: Sequence[Event], written: Awaitable[T]) -> T:
        began = perf_counter()
        result = await written
        self._metrics.written(events, perf_counter() - began)
        return result
