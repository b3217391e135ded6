import re
from typing import get_args

import msgspec
import pytest

from holdfast.core.events import (
    FINAL,
    WISHES,
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    Final,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    Receipt,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunQueued,
    StopRequested,
    ToolFinished,
    ToolStarted,
    Unknown,
    Wish,
)
from holdfast.core.messages import (
    AssistantMessage,
    Image,
    Reasoning,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holdfast.core.usage import Usage
from holdfast.core.watchdog import Patience
from tests.core.stories import accepted

EVENTS = get_args(Event)


def tag(kind):
    return kind.__struct_config__.tag


def test_no_tag_is_used_twice():
    assert len({tag(kind) for kind in EVENTS}) == len(EVENTS)


@pytest.mark.parametrize("kind", EVENTS)
def test_a_tag_is_a_subject_and_what_happened_to_it(kind):
    assert re.fullmatch(r"(run|model|tool|approval|stop|input)\.[a-z]+", tag(kind))


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_cannot_be_changed(kind):
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_written_by_name_so_that_fields_can_be_added(kind):
    config = kind.__struct_config__
    assert config.tag_field == "type"
    assert not config.array_like
    assert not config.forbid_unknown_fields


def test_wishes_and_finals_are_listed_for_those_who_look_at_run_time():
    assert set(get_args(Wish)) == set(WISHES)
    assert set(get_args(Final)) == set(FINAL)
    assert set(WISHES) | set(FINAL) <= set(EVENTS)


def test_what_was_accepted_is_spelled_out_so_that_new_defaults_change_nothing():
    written = msgspec.to_builtins(accepted())
    assert set(written) == {"type", *RunAccepted.__struct_fields__}
    assert written["budget"] == {"turns": 90, "seconds": 0.0, "tokens": 0, "money": 0.0}
    patience = {"connect": 30.0, "first": 45.0, "between": 120.0, "whole": 1800.0}
    choice = {"name": "main", "options": {}, "patience": patience, "grows": ()}
    assert written["models"][0] == choice


@pytest.mark.parametrize(
    ("event", "written"),
    [
        (StopRequested(), {"type": "stop.requested"}),
        (RunCancelled(), {"type": "run.cancelled"}),
        (
            ToolFinished(call_id="c1", outcome="ok"),
            {"type": "tool.finished", "call_id": "c1", "outcome": "ok"},
        ),
        (ModelReplied(turn=1, attempt=1), {"type": "model.replied", "turn": 1, "attempt": 1}),
        (
            ModelFailed(turn=1, attempt=1, reason="reset"),
            {"type": "model.failed", "turn": 1, "attempt": 1, "reason": "reset"},
        ),
    ],
)
def test_a_default_is_left_out_of_every_other_event(event, written):
    assert msgspec.to_builtins(event) == written


#: What a field means that is left out of the stored bytes. Lines are added, never changed.
DEFAULTS = {
    RunQueued: {"worker": "", "detail": ""},
    ModelCalled: {"patience": Patience(connect=30.0, first=45.0, between=120.0, whole=1800.0)},
    ModelReplied: {
        "text": "",
        "reasoning": (),
        "calls": (),
        "stop": "stop",
        "usage": Usage(input=0, output=0, cached=0, reasoning=0, cost=0.0),
        "seconds": 0.0,
        "model": "",
    },
    ModelHeard: {"unstreamed": False},
    ModelFailed: {
        "message": "",
        "status": None,
        "retry_after": None,
        "waited": 0.0,
        "seconds": 0.0,
    },
    ToolFinished: {"output": "", "blob": None, "seconds": 0.0},
    ToolStarted: {"rule": ""},
    ApprovalRequested: {
        "subject": "",
        "reason": "",
        "doubt": "",
        "expires": 0.0,
        "binding": "",
        "digest": "",
        "key": "",
    },
    ApprovalAnswered: {"by": ""},
    StopRequested: {"by": "", "reason": "", "removed": False},
    InputAdded: {"message_id": "", "by": ""},
    InputEdited: {"by": ""},
    RunCompleted: {"incomplete": ""},
    RunCancelled: {"receipt": Receipt()},
    Receipt: {
        "model_calls": 0,
        "tool_calls": (),
        "may_bill": False,
        "problems": (),
        "ended": (),
        "left": (),
    },
    Usage: {
        "input": 0,
        "output": 0,
        "cached": 0,
        "reasoning": 0,
        "estimated": 0,
        "cost": 0.0,
        "written": 0,
    },
    Image: {"media_type": "", "blob": None, "url": "", "detail": ""},
    Reasoning: {"text": "", "wire": "", "seal": "", "origin": "", "before": 0, "said": 0},
    ToolCall: {
        "arguments": "{}",
        "model_id": "",
        "problem": "",
        "gate": "auto",
        "reason": "",
        "subject": "",
        "key": "",
        "binding": "",
    },
    UserMessage: {"id": ""},
    AssistantMessage: {"text": "", "reasoning": (), "calls": ()},
    ToolMessage: {"ok": True},
}


def defaults(kind):
    fields = msgspec.structs.fields(kind)
    return {field.name: field.default for field in fields if not field.required}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_what_a_missing_field_means_never_changes(kind):
    assert defaults(kind) == DEFAULTS[kind]


def test_every_event_that_leaves_fields_out_is_watched():
    sparing = {kind for kind in EVENTS if kind.__struct_config__.omit_defaults}
    assert {kind for kind in sparing if defaults(kind)} <= DEFAULTS.keys()


def test_an_event_of_a_newer_version_is_known_by_its_tag_alone():
    assert Unknown("run.forked").tag == "run.forked"
    assert Unknown not in EVENTS


def test_what_is_recorded_has_a_place_a_time_an_event_and_its_bytes():
    assert Recorded.__struct_fields__ == ("seq", "at", "event", "body")
