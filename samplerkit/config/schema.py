"""The JSON Schema of a config, for editors and for validation in other languages."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema

from samplerkit.config.constructor import Kinds
from samplerkit.config.datasets import DATASETS
from samplerkit.config.derive import KIND_OF
from samplerkit.config.registry import BATCHES, SAMPLERS, targets
from samplerkit.config.sections import LOADER, MIN_QUALITY, SECTION

_SAMPLER = {"$ref": "#/$defs/$sampler"}
_CHILD = {"anyOf": [_SAMPLER, {"type": "null"}], "default": None}

_ARGUMENTS = {"type": ["object", "null"], "properties": {"child": _CHILD}}
_OTHER_SPELLINGS = {
    "_target_": {"properties": {"child": _CHILD}},
    "class_path": {"properties": {"class_path": {}, "init_args": _ARGUMENTS}, "additionalProperties": False},
}
"""The schemas of Hydra's and LightningCLI's forms, with any arguments, by the key that names the class."""


class OpenSchema(GenerateJsonSchema):
    """A generator that allows any value where JSON Schema has no equivalent, such as for a user's class."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Omits titles: they would repeat the names."""
        return False

    def callable_schema(self, schema: Any) -> JsonSchemaValue:
        """Allows no value: functions cannot be written in a config, only given from Python."""
        return {"not": {}}

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        """Allows any value."""
        return {}


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of configs.

    It includes registered samplers. It does not include ranges and the rules of nesting, which the
    constructors check.

    Example:
        >>> sorted(json_schema()["properties"])
        ['batches', 'dataset', 'loader', 'min_quality', 'sampler']
    """
    constructors = [*SAMPLERS.values(), *DATASETS.values(), *BATCHES.values(), LOADER, MIN_QUALITY]
    references, generated = models_json_schema(
        [(constructor.model, "validation") for constructor in constructors],
        schema_generator=OpenSchema,
        ref_template="#/$defs/{model}",
    )
    definitions = generated["$defs"]

    def by_kind(kinds: Kinds, more: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
        """Validates a section only against the model of its kind, so nested sections are checked once."""
        named, chosen = {"kind": {"enum": list(kinds)}}, []
        for constructor in kinds.values():
            reference = references[constructor.model, "validation"]
            model = definitions[reference["$ref"].rpartition("/")[2]]
            kind = {"kind": {"const": constructor.name}}
            model["properties"] = _with_kinds({**kind, **model["properties"], **more})
            model["required"] = ["kind", *model.get("required", [])]
            model["description"] = (constructor.make.__doc__ or "").partition("\n")[0]
            chosen.append({"if": {"properties": kind, "required": ["kind"]}, "then": reference})
        for name, other in others.items():
            named[name] = {"enum": list(targets())}
            chosen.append({"if": {"required": [name]}, "then": other})
        required = [{"required": [name]} for name in named]
        return {"type": "object", "properties": named, "anyOf": required, "allOf": chosen}

    definitions["$sampler"] = by_kind(SAMPLERS, {"child": _CHILD}, _OTHER_SPELLINGS)
    definitions["$dataset"] = by_kind(DATASETS, {}, {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "samplerkit config",
        "type": "object",
        "properties": {
            "dataset": {"anyOf": [{"$ref": "#/$defs/$dataset"}, {"type": "null"}]},
            "sampler": _SAMPLER,
            "batches": {"anyOf": [by_kind(BATCHES, {}, {}), {"type": "null"}]},
            "loader": {"anyOf": [references[LOADER.model, "validation"], {"type": "null"}]},
            SECTION: {
                "anyOf": [references[MIN_QUALITY.model, "validation"], {"type": "number"}, {"type": "null"}]
            },
        },
        "required": ["sampler"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _with_kinds(schema: Any) -> Any:
    """Replaces the placeholders of tables by references to the schema of all their kinds."""
    if isinstance(schema, dict):
        entries = {name: _with_kinds(value) for name, value in schema.items()}
        return {"$ref": f"#/$defs/${entries[KIND_OF]}"} if KIND_OF in entries else entries
    return [_with_kinds(entry) for entry in schema] if isinstance(schema, list) else schema
