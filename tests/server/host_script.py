"""A server whose model does what the input says, for tests that need a model or a tool to order.

The input of a run is a JSON array: for each turn what the model does in it, one thing after another.

    "words"                           it says them
    {"say": "words", "times": 9}      it says them over and over
    {"think": "words"}                it thinks them
    {"wait": 0.5}                     it is silent for so many seconds
    {"call": "work", "args": {…}}     it asks for a tool
    {"fail": "words"}                 it refuses

Any other input is answered with "Hello!". After the last turn of the array it says "done".
"""

import argparse
import json

import anyio

from holdfast.config import read_settings
from holdfast.core.messages import UserMessage, plain
from holdfast.errors import ModelRefused
from holdfast.host import serve
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think


def main():
    options = argparse.ArgumentParser()
    for name in ("port", "data", "config"):
        options.add_argument(f"--{name}")
    settings = read_settings(**vars(options.parse_args()))
    anyio.run(start, settings)


async def start(settings):
    model = ScriptedModel()
    model._choose = choose
    await serve(settings, say_where, models={settings.default_model: model}, tools=TOOLS)


def say_where(address):
    print(f"holdfast is listening on {address}", flush=True)  # noqa: T201 (it is waited for)


# --- the model


def choose(request):
    """By the last script that was asked for: there may be others before it in its session."""
    turns, since = None, 0
    for message in request.messages:
        if isinstance(message, UserMessage):
            asked = script(message)
            turns, since = (asked, 0) if asked is not None else (turns, since)
        else:
            since += hasattr(message, "calls")
    if turns is None:
        return ["Hel", "lo!"]
    if since >= len(turns):
        return ["done"]
    return [line(one) for one in turns[since] for _ in range(times(one))]


def script(message):
    try:
        turns = json.loads(plain(message.parts))
    except ValueError:
        return None
    return turns if isinstance(turns, list) else None


def times(one):
    return one.get("times", 1) if isinstance(one, dict) else 1


def line(one):
    match one:
        case {"say": words}:
            return words
        case str():
            return one
        case {"think": words}:
            return Think(words)
        case {"wait": seconds}:
            return Silence(seconds)
        case {"fail": words}:
            return ModelRefused(words)
        case {"call": tool, **more}:
            return Call(tool, json.dumps(more.get("args", {})))


# --- the tools


async def work(use):
    """Takes `seconds`, reports `progress` and returns what it should `say`."""
    asked = json.loads(use.arguments)
    if "progress" in asked:
        await use.progress(asked["progress"])
    await anyio.sleep(asked.get("seconds", 0))
    if "fail" in asked:
        raise RuntimeError(asked["fail"])
    return asked.get("say", "worked")


async def misbehave(use):
    """Never returns, and makes a fuss when it is cut off."""
    try:
        await anyio.sleep_forever()
    finally:
        raise RuntimeError("I will not be cut off")


async def linger(use):
    """Never returns, and takes a second to go when it is cut off."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)


def ask_about_money(arguments):
    amount = json.loads(arguments).get("amount", 1)
    return Review(gate="ask", reason="it spends money", subject=f"pay {amount}", key="pay")


TOOLS = [
    ScriptedTool("work", work=work, writes=False, repeatable=True, parallel=True),
    ScriptedTool("stubborn", work=misbehave),
    ScriptedTool("slow", work=linger),
    ScriptedTool("pay", review=ask_about_money, parallel=True),
]

if __name__ == "__main__":
    main()
