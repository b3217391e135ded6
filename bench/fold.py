"""How long folding takes, and whether it stays linear.

Folds a journal of N events and one of 4N in one run, interleaved, and prints seconds and the
ratio of the two, which is 4 when folding is linear and 16 when it is quadratic. Two shapes: one
reply streamed in many deltas, and many turns with a tool call each.

    python bench/fold.py [--events 100000]

Exits 1 if a ratio is above 6 or the larger journal takes a second or more per 100,000 events.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter

from holdfast.core.codec import recall, record
from holdfast.core.events import (
    Event,
    ModelCalled,
    ModelChoice,
    ModelReplied,
    RunAccepted,
    RunStarted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text, ToolCall
from holdfast.core.run import replay

OPENING: list[Event] = [
    RunAccepted(input=(Text("hi"),), models=(ModelChoice("model"),)),
    RunStarted(worker="worker", epoch=1),
]


def deltas(count: int) -> list[Event]:
    """One reply in `count` pieces."""
    called = ModelCalled(turn=1, attempt=1, model="model")
    return [*OPENING, called, *[TextStreamed(turn=1, attempt=1, text="word ")] * count]


def turns(count: int) -> list[Event]:
    """Turn after turn, five events each."""
    events = list(OPENING)
    for turn in range(1, count // 5 + 1):
        call = ToolCall(id=f"call_{turn}", tool="look")
        events += [
            ModelCalled(turn=turn, attempt=1, model="model"),
            TextStreamed(turn=turn, attempt=1, text="Let me look."),
            ModelReplied(turn=turn, attempt=1, text="Let me look.", calls=(call,)),
            ToolStarted(call_id=call.id),
            ToolFinished(call_id=call.id, outcome="ok", output="nothing"),
        ]
    return events


def seconds(make: Callable[[int], list[Event]], count: int) -> float:
    """From stored bytes to state."""
    bodies = [record(seq, 0.0, event).body for seq, event in enumerate(make(count), 1)]
    began = perf_counter()
    replay(recall(seq, 0.0, body) for seq, body in enumerate(bodies, 1))
    return perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=100_000, metavar="N", help="of the larger journal"
    )
    events = parser.parse_args().events
    good = True
    print(f"{'journal':<10}{'events':>10}{'seconds':>10}{'µs/event':>10}{'ratio to a quarter':>20}")
    for make in (deltas, turns):
        pairs = [(seconds(make, events // 4), seconds(make, events)) for _ in range(5)]
        small, large = (min(pair[n] for pair in pairs) for n in (0, 1))
        ratio = large / small
        print(
            f"{make.__name__:<10}{events:>10}{large:>10.3f}{large / events * 1e6:>10.2f}{ratio:>20.2f}"
        )
        good = good and ratio < 6 and large < events / 100_000
    if not good:
        print("folding is not linear, or takes a second per 100,000 events", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
