"""A session in a list."""

from __future__ import annotations

from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """A session in a list, in the words in which a server tells of it, and in one more: its
    `status` is interrupted if a run of it lives and nobody carries that."""

    session_id: str
    title: str
    created_at: float
    moved_at: float
    pinned: bool = False
    archived: bool = False
    runs: int = 0
    status: str = "idle"
    queued: int = 0
    current_run_id: str = ""
    deleted_at: float | None = None
