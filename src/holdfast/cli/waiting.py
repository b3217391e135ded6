"""What a run is waiting for, as a line for people: since when, until when, and what then."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.phase import Awaited, Phase

_WAITING: Mapping[Awaited, str] = {
    "worker": "waiting for a worker",
    "turn": "waiting for its turn behind {name}",
    "first_event": "waiting for the first word of {name}",
    "next_event": "waiting for the next word of {name}",
    "retry": "about to ask {name} again",
    "tool": "{name} is at work",
    "approval": "{name} waits for an approval",
    "missing_model": "waiting for the model {name}, which is not here",
    "missing_tool": "waiting for the tool {name}, which is not here",
    "place": "waiting for its turn: {name} has as many calls as it may",
    "stop": "stopping; Ctrl-C again leaves at once",
    "newer_version": "waiting for a newer version, which understands {name}",
}


def waiting(phase: Phase, *, now: float) -> str:
    """One line. `now` is wall time, as the phase's is."""
    seconds = max(now - phase.since, 0.0)
    line = f"{_WAITING[phase.waiting_for].format(name=phase.name)} · {seconds:.0f}"
    if phase.limit:
        line += f" of {phase.limit:g}"
    line += " s"
    if phase.next and phase.waiting_for != "stop":
        line += f", then {phase.next}"
    if phase.attempts > 1:
        line += f" · attempt {phase.attempt} of {phase.attempts}"
    return line
