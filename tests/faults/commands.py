"""As `killed`, for a run whose tool is the terminal: `python commands.py SEED KILLS`.

Its commands append to a file, in the jail, so that what was really done can be counted. A command
of which nobody knows how it ended is asked for again by the model, and that must be put to a person,
who is told of the doubt and says no.
"""

import json
import sys
from collections import Counter

from holdfast.core.events import ApprovalRequested, ToolFinished, ToolStarted
from holdfast.core.messages import AssistantMessage, ToolMessage
from holdfast.core.run import replay
from holdfast.testing.scripted import Call, ScriptedModel, Silence
from holdfast.tools.jail import open_jail
from holdfast.tools.terminal import Terminal
from tests.faults import killed

#: Commands of a run, if none is lost.
DEEDS = 5


class Commands(killed.Run):
    #: A command takes longer than a tool in this process, most of all where others are busy.
    longest = 0.2

    def __init__(self, place):
        super().__init__(place)
        (place / "work").mkdir()

    async def carry(self, pipe):
        workspace = self.place / "work"
        jail = await open_jail(workspace, hidden=(self.place / "data",), visible=())
        assert not isinstance(jail, str), jail
        terminal = Terminal(workspace, jail=jail)
        model = ScriptedModel()
        model._choose = choose
        await killed.follow(self.place, pipe, {"script": model}, [terminal], say_no)

    def check_effects(self, journal):
        effects = self.place / "work" / "effects"
        done = Counter(effects.read_text().split() if effects.exists() else [])
        assert not [deed for deed, times in done.items() if times > 1], f"done twice: {done}"
        events = [recorded.event for recorded in journal]
        calls = {call.id: call for event in events for call in getattr(event, "calls", ())}
        starts = Counter(event.call_id for event in events if isinstance(event, ToolStarted))
        assert not starts or max(starts.values()) == 1, f"started twice: {starts}"
        for event in events:
            if isinstance(event, ToolFinished):
                check_told(event, deed_of(calls[event.call_id]), done)
        if replay(journal).status.final:
            self.seen["lost"] += check_doubts(events)


def check_told(event, deed, done):
    """What the model was told is what happened, or that nobody knows."""
    if event.outcome == "ok":
        assert done[deed] == 1, f"{deed} is said to be done: {done}"
    else:
        assert event.outcome in ("unknown", "denied"), event
        assert event.outcome == "denied" or "unknown" in event.output


def check_doubts(events):
    """Each doubt was asked about once more, and the person was told of it. Returns how many."""
    lost = [e.call_id for e in events if isinstance(e, ToolFinished) and e.outcome == "unknown"]
    asked = [event.doubt for event in events if isinstance(event, ApprovalRequested)]
    assert sorted(asked) == sorted(lost), f"lost {lost}, asked about {asked}"
    return len(lost)


async def say_no(app, asked):
    await killed.answer(app, asked, "deny")


def choose(request):
    """The next command, or the last one again if nobody knows what became of it."""
    calls = [
        call
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    last = request.messages[-1]
    if isinstance(last, ToolMessage) and "unknown" in last.output:
        return ["Again: ", Call("terminal", calls[-1].arguments)]
    deeds = {call.arguments for call in calls}
    if len(deeds) == DEEDS:
        return ["All done."]
    command = f"echo deed{len(deeds)} >> effects; sleep 0.005"
    return ["Next: ", Silence(0.001), Call("terminal", json.dumps({"command": command}))]


def deed_of(call):
    return json.loads(call.arguments)["command"].split()[1]


if __name__ == "__main__":
    killed.main(int(sys.argv[1]), int(sys.argv[2]), Commands)
