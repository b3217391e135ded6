"""`holdfast models`: which models there are, and whether one answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Config

if TYPE_CHECKING:
    from msgspec import Struct

    from holdfast.cli.trial import Trial
    from holdfast.config import ModelSettings, Settings

_HEAD = ("NAME", "WIRE", "MODEL", "KEY", "FALLBACK", "WHERE")
_SPARE = ("FALLBACK", "KEY", "WHERE", "WIRE")

command = App(
    name="models",
    usage="Usage: holdfast models [OPTIONS] [NAME]",
    help="List the configured models, or try one of them.\n\n"
    "With a name, that model is asked to say hello, as a run would ask it: you see how long it took"
    " to its first word, and what it cost. Nothing of it is kept. Where no model is configured, the"
    " first of OPENAI_API_KEY, ANTHROPIC_API_KEY and OPENROUTER_API_KEY that is set says which one is"
    " used, or else an Ollama server on this machine, or else the demo.",
    help_epilogue=f"""\
Examples:

  holdfast models
  holdfast models demo

Exit codes:

  0    listed, or it answered
  1    it did not answer
{EXIT_CODES}""",
)


@command.default
def models(
    name: Annotated[str, Parameter(name="NAME", show_default=False, help="The model to try.")] = "",
    /,
    *,
    json: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print each as one line of JSON."),
    ] = False,
    config: Config = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.run import check_model
    from holdfast.config import read_settings

    settings = read_settings(config=config)
    check_model(settings, name)
    if not name:
        _list(settings, json=json)
        return 0
    import anyio

    from holdfast.cli.terminal import Terminal
    from holdfast.cli.trial import try_model

    if not json:
        Terminal(sys.stderr).line(f"asking {name} to say hello …", "dim")
    trial = anyio.run(try_model, settings.models, name)
    _tell(trial, json=json)
    return 0 if trial.ok else 1


def _list(settings: Settings, *, json: bool) -> None:
    from holdfast.cli.table import show_table
    from holdfast.cli.terminal import Terminal
    from holdfast.cli.trial import Listed

    found = settings.models.values()
    if json:
        for one in found:
            _print(
                Listed(
                    name=one.name,
                    wire=one.wire,
                    model=one.model,
                    base_url=one.base_url,
                    key_env=one.key_env,
                    fallback=one.fallback,
                    default=one.name == settings.default_model,
                )
            )
        return
    terminal = Terminal(sys.stdout)
    rows = [_row(one, default=one.name == settings.default_model) for one in found]
    show_table(terminal, _HEAD, rows, spare=_SPARE)
    where = settings.file or "no file of settings; these were found"
    Terminal(sys.stderr).line(f"* the default · {where}", "dim")


def _row(one: ModelSettings, *, default: bool) -> tuple[str, ...]:
    return (
        f"{one.name}{' *' if default else ''}",
        one.wire,
        one.model or "the first it has",
        one.key_env or "-",
        ", ".join(one.fallback) or "-",
        one.base_url or "in this program",
    )


def _tell(trial: Trial, *, json: bool) -> None:
    from holdfast.cli.terminal import Terminal

    if json:
        _print(trial)
        return
    terminal = Terminal(sys.stdout)
    if not trial.ok:
        Terminal(sys.stderr).line(f"! {trial.name} did not answer: {trial.error}", "red")
        return
    terminal.line(f"first event after {trial.first_event:.2f} s, the whole in {trial.whole:.2f} s")
    cost = "price unknown" if trial.cost is None else f"{trial.cost:.6f} dollars"
    terminal.line(f"{trial.model} · {trial.input} tokens in, {trial.output} out · {cost}")
    terminal.line(trial.text)


def _print(value: Struct) -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
