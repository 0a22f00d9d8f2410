"""A mark for arguments that a config writes as sections of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from samplerkit.config.derive import derived_model
from samplerkit.config.error_messages import refuse


@final
@dataclass(frozen=True)
class SectionOf:
    """Marks an argument for which a config writes a mapping: the arguments of a class.

    A `Constructor` reads the mapping before the other arguments are looked at, so that its mistakes have a
    path of their own. What remains is the live object, or one of the values that may be in its place.

    Args:
        name: of the model in the JSON Schema.
        make: the class.
        others: what may be written in place of a mapping.
        many: whether it is a list of mappings that a config writes.
    """

    name: str
    make: Callable[..., Any]
    others: tuple[Any, ...] = ()
    many: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, value: Any) -> Any:
        entries = value if self.many and isinstance(value, list | tuple) else [value]
        if isinstance(self.make, type) and all(isinstance(entry, self.make) for entry in entries):
            return value
        if self.many:
            refuse("must be a list of mappings")
        if not any(value is other for other in self.others):
            words = ", or ".join({None: "null", False: "false", True: "true"}[other] for other in self.others)
            refuse(f"must be a mapping{words and ', or '}{words}")
        return value

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        model = handler(_model(self.make, self.name).__pydantic_core_schema__)
        if self.many:
            return {"type": "array", "items": model}
        return {"anyOf": [model, *({"const": one} for one in self.others)]}


@final
@dataclass(frozen=True, eq=False)
class Named:
    """Marks an argument for which a config writes a mapping of names to sections, each of a kind.

    Args:
        kinds: the table of kinds. Sections are read before the other arguments are looked at.
    """

    kinds: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    @staticmethod
    def _read(value: Any) -> Any:
        return value if isinstance(value, dict) else refuse("must be a mapping of names to sections")

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "object"}  # what stands in it is said where all kinds are known


@lru_cache
def _model(make: Callable[..., Any], name: str) -> type[BaseModel]:
    """Gives one model for all arguments of one class, so that the schema has it once."""
    return derived_model(make, name)
