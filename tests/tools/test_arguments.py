import json
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from holdfast.errors import ToolError
from holdfast.tools.arguments import MOST_ARGUMENTS, read_arguments, schema


class Cup(Struct, forbid_unknown_fields=True):
    drink: Annotated[str, Meta(description="what is in it", min_length=1)]
    size: Annotated[int, Meta(ge=1, le=3)] = 2
    kind: Literal["hot", "cold"] = "hot"


def test_a_schema_is_one_plain_object():
    assert json.loads(schema(Cup)) == {
        "type": "object",
        "properties": {
            "drink": {"type": "string", "minLength": 1, "description": "what is in it"},
            "size": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
            "kind": {"type": "string", "enum": ["cold", "hot"], "default": "hot"},
        },
        "required": ["drink"],
        "additionalProperties": False,
    }


def test_arguments_come_in_their_shape():
    assert read_arguments("pour", Cup, '{"drink":"tea"}') == Cup("tea", 2, "hot")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", "missing required field `drink`"),
        ('{"drink":""}', "length >= 1"),
        ('{"drink":"tea","size":9}', "<= 3"),
        ('{"drink":"tea","saucer":true}', "unknown field `saucer`"),
        ("[]", "Expected `object`"),
        ("nonsense", "malformed"),
        ('{"drink":"\ud800"}', "surrogates"),
        ('{"drink":' + "[" * 100_000, "Expected `str`, got `array`"),
    ],
)
def test_what_is_wrong_with_arguments_is_said_and_what_would_be_right(arguments, said):
    with pytest.raises(ToolError, match=said) as refusal:
        read_arguments("pour", Cup, arguments)
    assert str(refusal.value).startswith("pour cannot use these arguments: ")
    assert schema(Cup) in str(refusal.value)


def test_arguments_have_a_length_that_can_be_read_at_once():
    arguments = json.dumps({"drink": ""})
    fitting = arguments.replace('""', f'"{"x" * (MOST_ARGUMENTS - len(arguments))}"')
    assert read_arguments("pour", Cup, fitting).size == 2
    with pytest.raises(ToolError, match=r"given 1,048,577 characters.*at most 1,048,576"):
        read_arguments("pour", Cup, fitting + " ")
