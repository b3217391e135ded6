"""Numbers for Prometheus. Counted where events are written, since all that happens is one.

The store is wrapped, so that the engine knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.utils import INF

from holdfast.calls.line import Line
from holdfast.core.events import FINAL, Event, ModelCalled, ModelFailed, Recorded
from holdfast.core.lease import Lease
from holdfast.core.retry import STALLED
from holdfast.ports import Census, Store

T = TypeVar("T")

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, INF)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        on: dict[str, Any] = {"registry": self.registry}
        self._events = Counter("holdfast_events", "Events written, by type.", ["type"], **on)
        self._counts: dict[type[Any], Counter] = {}
        self._ended = Counter(
            "holdfast_runs_ended", "Runs that ended, by status.", ["status"], **on
        )
        self._failures = Counter(
            "holdfast_model_failures", "Model calls without a reply, by reason.", ["reason"], **on
        )
        self._stalls = Counter("holdfast_model_stalls", "Model calls cut for silence.", **on)
        self._retries = Counter("holdfast_model_retries", "Attempts after the first.", **on)
        self._commits = Histogram(
            "holdfast_commit_seconds", "From asking to durable.", buckets=_SECONDS, **on
        )
        self._runs = Gauge(
            "holdfast_runs", "Runs that have not ended, by status.", ["status"], **on
        )
        self._queue = Gauge("holdfast_queue_length", "Runs that wait for a worker.", **on)
        self.subscribers = Gauge("holdfast_subscribers", "Readers of event streams.", **on)
        self._breakers = Gauge(
            "holdfast_breaker_open", "1 while a model is left alone.", ["model"], **on
        )

    def wrap(self, store: Store) -> Store:
        return cast("Store", _Counted(store, self))

    def written(self, events: Sequence[Event], seconds: float) -> None:
        self._commits.observe(seconds)
        for event in events:
            self._count(type(event)).inc()
            if isinstance(event, FINAL):
                tag = str(event.__struct_config__.tag)
                self._ended.labels(tag.removeprefix("run.")).inc()
            elif isinstance(event, ModelFailed):
                self._failures.labels(event.reason).inc()
                if event.reason in STALLED:
                    self._stalls.inc()
            elif isinstance(event, ModelCalled) and event.attempt > 1:
                self._retries.inc()

    def _count(self, kind: type[Any]) -> Counter:
        """Looked up once each: there are many events, and few types of them."""
        if kind not in self._counts:
            self._counts[kind] = self._events.labels(str(kind.__struct_config__.tag))
        return self._counts[kind]

    def now(self, census: Census, *, lines: Mapping[str, Line]) -> None:
        """How things stand, for whoever asks this moment."""
        self._queue.set(census.queued)
        self._runs.labels("queued").set(census.queued)
        self._runs.labels("running").set(census.running)
        for model, line in lines.items():
            self._breakers.labels(model).set(float(line.endpoint.breaker.open))


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
