"""Items of earlier responses that a request only names, put where they are named.

Some clients send what was answered before as no more than an id, since OpenAI keeps it. Words are
looked up in the response they are part of. Thoughts and calls are passed over, as they are when they
are sent whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.server.bodies import LONGEST_NAME, read_object
from holdfast.server.content import MOST_MESSAGES
from holdfast.server.frames import Fields, short
from holdfast.server.openai.ids import response_of
from holdfast.server.openai.kept import Kept
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.openai.response_request import REFERENCE, read_response
from holdfast.server.problems import Problem, malformed
from holdfast.server.service import Service


async def read_referring(service: Service, body: bytes) -> OpenAIRequest:
    """A request for a response. Raises Problem, also for words that there are not."""
    if REFERENCE.encode() not in body:
        return read_response(body)
    return read_response(body, known=await _named(service, body))


async def _named(service: Service, body: bytes) -> Mapping[str, Fields]:
    known, looked = dict[str, Fields](), set[str]()
    for place, id in _words_named(body):
        response = response_of(id)
        if response not in looked:
            looked.add(response)
            known.update(await _words_of(service, response))
        if id not in known:
            raise malformed(
                f"there is no message {short(id, LONGEST_NAME)}, or it was not stored",
                param=f"input[{place}].id",
                code="item_not_found",
            )
    return known


def _words_named(body: bytes) -> Iterator[tuple[int, str]]:
    """Messages by their ids, and where they are named."""
    items = read_object(body).get("input")
    for place, item in enumerate(items[:MOST_MESSAGES] if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("type") == REFERENCE:
            id = item.get("id")
            if isinstance(id, str) and id.startswith("msg_"):
                yield place, id


async def _words_of(service: Service, response_id: str) -> Mapping[str, Fields]:
    """What was said in it, and what it was given."""
    kept = Kept(service)
    try:
        found = await kept.find(response_id)
    except Problem:
        return {}
    items = (*await kept.inputs(found), *found.told["output"])
    return {item["id"]: item for item in items if item["type"] == "message"}
