"""Arguments that are sections of their own, such as `remote: {cache: /scratch}` of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from samplerkit.config.arrays import refuse
from samplerkit.config.derive import derived_model


@final
@dataclass(frozen=True)
class Section:
    """Marks an argument for which a config writes a mapping: the arguments of a class.

    A `Constructor` reads the mapping before the other arguments are looked at, so that its mistakes have a
    path of their own. What is left is the live object, or one of the values that may stand in its place.

    Args:
        name: of the model in the JSON Schema.
        make: the class.
        others: what may be written in place of a mapping.
    """

    name: str
    make: Callable[..., Any]
    others: tuple[Any, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, value: Any) -> Any:
        if isinstance(self.make, type) and isinstance(value, self.make):
            return value
        if not any(value is other for other in self.others):
            words = ", or ".join({None: "null", False: "false", True: "true"}[other] for other in self.others)
            refuse(f"must be a mapping{words and ', or '}{words}")
        return value

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        model = handler(_model(self.make, self.name).__pydantic_core_schema__)
        return {"anyOf": [model, *({"const": one} for one in self.others)]}


@lru_cache
def _model(make: Callable[..., Any], name: str) -> type[BaseModel]:
    """Gives one model for all arguments of one class, so that the schema has it once."""
    return derived_model(make, name)
