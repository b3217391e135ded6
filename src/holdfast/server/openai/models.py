"""The models that can be asked for, as clients of OpenAI list them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.config import Settings
from holdfast.server.problems import Problem


class ModelRow(Struct, frozen=True):
    """`root` is what the endpoint calls it; `parent` the configured model it is another name of."""

    id: str
    created: int
    root: str
    parent: str | None = None
    permission: tuple[str, ...] = ()
    object: str = "model"
    owned_by: str = "hermes"


class ModelList(Struct, frozen=True):
    data: tuple[ModelRow, ...]
    object: str = "list"


def models(settings: Settings, *, created: int = 0) -> ModelList:
    """The usual one first. What an endpoint calls a model may be asked for, too."""
    return ModelList(tuple(_rows(settings, created)))


def model(settings: Settings, id: str, *, created: int = 0) -> ModelRow:
    """Raises Problem if there is none of this name."""
    for row in _rows(settings, created):
        if row.id == id:
            return row
    raise Problem(404, f"The model '{id}' does not exist", code="model_not_found", param="model")


def _rows(settings: Settings, created: int) -> Iterator[ModelRow]:
    usual = settings.models[settings.default_model]
    others = [one for one in settings.models.values() if one is not usual]
    known = set(settings.models)
    for one in (usual, *others):
        yield ModelRow(one.name, created, one.model or one.name)
    for one in (usual, *others):
        if one.model and one.model not in known:
            known.add(one.model)
            yield ModelRow(one.model, created, one.model, one.name)
