"""A task group whose failure is the error itself, not a group around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """Like anyio's, but raises the gravest single error of its tasks; the others become its notes."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        errors = list(_leaves(group))
        gravest = next((e for e in errors if not isinstance(e, Exception)), errors[0])
        for other in errors:
            if other is not gravest:
                gravest.add_note(f"beside it: {other!r}")
        raise gravest from gravest.__cause__


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for error in group.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]
