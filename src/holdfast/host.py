"""`holdfast serve`: an engine and a server around it, from the first breath to the last."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from holdfast.app import App, open_app
from holdfast.calls.tasks import task_group
from holdfast.config import Settings, read_key
from holdfast.core.secrets import Secrets
from holdfast.engine.means import Means
from holdfast.errors import StoreError
from holdfast.logs import Masking
from holdfast.ports import Model, Tool
from holdfast.server.about import About
from holdfast.server.callers import Callers, stranger
from holdfast.server.files import allow_many, for_callers
from holdfast.server.keys import load_key
from holdfast.server.metrics import Metrics
from holdfast.server.serve import Serving, address, bind, check_certificate
from holdfast.server.service import Service
from holdfast.stores.owner import prepare
from holdfast.toolbox import Toolbox

#: Seconds beyond the drain for what was cut off to let go.
LAST_WORDS = 5.0

#: Seconds between two looks at what is to be purged.
PURGE = 3600.0

DAY = 24 * 3600.0

#: Seconds after which what was not needed to begin with is loaded: whoever waited for the start has
#: been served by then.
SETTLED = 1.0

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_log = logging.getLogger(__name__)


async def serve(
    settings: Settings,
    ready: Callable[[str], None],
    *,
    models: Mapping[str, Model] | None = None,
    tools: Sequence[Tool] | None = None,
) -> None:
    """Serve until told to end. `ready` is called with the address once it can be asked.

    Raises ConfigError, DataInUse or StoreError before that. The first signal to end drains; the
    second leaves at once.
    """
    with bind(settings.server) as door:
        check_certificate(settings.server)
        where = address(door, settings.server)
        prepare(settings.data)
        keys = load_key(settings.data, settings.server.key)
        # Known from now on, so that it can be masked, though it may have been made just now.
        key = settings.server.key or read_key(settings.data)
        settings = replace(settings, server=replace(settings.server, key=key))
        metrics, callers = Metrics(), _callers(settings)
        async with open_app(
            settings,
            models=models,
            tools=tools,
            address=_from_here(where),
            pin=_pin(settings.server.tls_cert),
            wrap=metrics.wrap,
        ) as app:
            box = app.toolbox
            service = Service(
                app.runs,
                app.means,
                settings,
                sessions=app.sessions,
                brief=box.brief if box else None,
            )
            about = About(
                service,
                settings,
                app.means,
                version("holdfast"),
                metrics,
                jail=box.report if box else None,
            )
            serving = Serving(service, about, settings.server, keys, door, callers)
            _spare_the_collector()
            with _masked_logs(app.means.secrets):
                drain, keep = settings.server.drain, settings.retention.deleted
                await _run(app, serving, drain, keep, partial(ready, where))


def _callers(settings: Settings) -> Callers:
    """As many as there can be, so that there is still a word for who is one too many."""
    files = allow_many()
    many = for_callers(files)
    if many < settings.max_concurrent_runs:
        _log.warning(
            "no more than %d files may be open, which is enough for %d connections; have the system"
            " allow more (ulimit -Hn), or lower max_concurrent_runs",
            files,
            many,
        )
    return Callers(partial(stranger, proxied=settings.server.behind_proxy), in_all=many)


def _from_here(where: str) -> str:
    """The address for who is on this machine: that of everybody is nobody's in particular."""
    return where.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _pin(cert: Path | None) -> str:
    """The SHA-256 of the certificate that is shown, which is the first of its file."""
    found = _CERTIFICATE.search(cert.read_text()) if cert else None
    return sha256(ssl.PEM_cert_to_DER_cert(found[0])).hexdigest() if found else ""


async def _run(
    app: App, serving: Serving, drain: float, keep: float, ready: Callable[[], None]
) -> None:
    async with task_group() as tasks:
        tasks.start_soon(_heed_signals, app, serving, drain, tasks)
        tasks.start_soon(_purge, app.means, keep)
        await serving.serve(partial(_when_ready, app, serving, tasks, ready))
        tasks.cancel_scope.cancel()


def _when_ready(app: App, serving: Serving, tasks: TaskGroup, ready: Callable[[], None]) -> None:
    ready()
    tasks.start_soon(_load, serving)
    if app.toolbox:
        # Nobody waits for it but the first command.
        tasks.start_soon(_test_jail, app.toolbox)


async def _load(serving: Serving) -> None:
    await anyio.sleep(SETTLED)
    await serving.load()
    gc.freeze()


async def _purge(means: Means, keep: float) -> None:
    """Remove what was deleted more than so many days ago, now and every hour; for 0 never.

    A few at a time, so that nobody waits for it.
    """
    while keep:
        try:
            before = means.clock() - keep * DAY
            await _forget_rules(means, before)
            while await means.store.purge(before=before):
                pass
        except StoreError as error:
            _log.warning("what was deleted could not be removed: %s", error)
        await anyio.sleep(PURGE)


async def _forget_rules(means: Means, before: float) -> None:
    """What was allowed in a session that is about to go must not be allowed in another of its name."""
    place = None
    while means.rulebook and (
        found := await means.store.sessions(archived=None, deleted=True, before=place, limit=100)
    ):
        for entry in found:
            at = entry.state.deleted_at
            if at is not None and at < before:
                await means.rulebook.forget(entry.session_id)
        place = found[-1].place


async def _test_jail(box: Toolbox) -> None:
    if problem := await box.test():
        _log.warning("commands cannot be contained: %s", problem)


@contextmanager
def _masked_logs(secrets: Secrets) -> Iterator[None]:
    """What is logged anywhere in this process holds no secret of ours."""
    handlers, masking = logging.getLogger().handlers[:], Masking(secrets)
    for handler in handlers:
        handler.addFilter(masking)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(masking)


def _spare_the_collector() -> None:
    """What is loaded stays; and what runs leave behind is hardly ever a circle.

    What little of it is garbage stays as well: to find it would take a tenth of the start. To look
    through what five hundred live runs are made of takes as long as to carry fifty of them.
    """
    gc.freeze()
    gc.set_threshold(400_000, 20, 100)


async def _heed_signals(app: App, serving: Serving, seconds: float, tasks: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            serving.drain()
            tasks.start_soon(_drain, app, serving, seconds)
            break
        async for number in signals:
            # Whoever asks twice does not want to wait; what is on record is there.
            serving.break_off()
            os._exit(128 + number)


async def _drain(app: App, serving: Serving, seconds: float) -> None:
    assert app.worker is not None
    app.worker.leave(drain=seconds)
    with anyio.move_on_after(seconds + LAST_WORDS) as patience:
        await app.left.wait()
    serving.leave()
    if patience.cancelled_caught:
        # Some tool does not let go. What it did is in doubt on record, as after a crash.
        await anyio.sleep(LAST_WORDS)
        os._exit(0)
