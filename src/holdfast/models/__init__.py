"""Model endpoints, and calls to them that are supervised, with a journal or without.

    open_model      a model at the other end of a wire, by address
    call            ask it, or several: stalls are cut off, failures retried, and you get a whole reply
    Reply           what came of it
    Retracted       what `call` tells whoever listens when an attempt is given up on
    Line, Endpoint  how to reach a model: hedging, and what is shared by all who call one endpoint

Each is loaded when it is first used, so that nobody pays for HTTP who speaks none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.calls.alone import Reply, Retracted, call
    from holdfast.calls.line import Endpoint, Line
    from holdfast.models.remote import RemoteModel, open_model

__all__ = ["Endpoint", "Line", "RemoteModel", "Reply", "Retracted", "call", "open_model"]

_HOMES = {
    "holdfast.calls.alone": "Reply Retracted call",
    "holdfast.calls.line": "Endpoint Line",
    "holdfast.models.remote": "RemoteModel open_model",
}

if not TYPE_CHECKING:  # pragma: no branch

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names.split():
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
