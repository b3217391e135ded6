"""What a worker works with: the store, the models and tools it has, a clock, and new ids.

And which values it is to keep to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from time import time  # noqa: TID251 - this is where the clock is handed out

from holdfast.calls.line import Line
from holdfast.core.events import RunAccepted
from holdfast.core.secrets import NO_SECRETS, Secrets
from holdfast.engine.recall import Recall
from holdfast.ports import Clock, Model, Rulebook, Store, Tool


def random_id(prefix: str) -> str:
    """An id nobody can guess: a prefix that says of what, and 128 random bits."""
    return f"{prefix}_{token_hex(16)}"


@dataclass(frozen=True)
class Means:
    store: Store
    models: Mapping[str, Model]
    tools: Mapping[str, Tool] = field(default_factory=dict)
    #: Where standing answers are kept; without one they hold for the rest of their run.
    rulebook: Rulebook | None = None
    clock: Clock = time
    new_id: Callable[[str], str] = random_id
    #: How to call the models that need more than to be called.
    lines: Mapping[str, Line] = field(default_factory=dict)
    #: Masked in all that is recorded.
    secrets: Secrets = NO_SECRETS
    #: What was said in sessions, at hand for their next runs.
    recall: Recall = field(default_factory=Recall)

    def tools_for(self, accepted: RunAccepted | None) -> Mapping[str, Tool]:
        """Those that work where this run does. One made for another workspace is as good as missing."""
        workspace = accepted.workspace if accepted else ""
        if not workspace:
            return self.tools
        places = ("", workspace)
        return {
            name: tool
            for name, tool in self.tools.items()
            if getattr(tool, "workspace", "") in places
        }

    def line(self, model: str) -> Line:
        return self.lines.get(model) or Line(self.models[model])
