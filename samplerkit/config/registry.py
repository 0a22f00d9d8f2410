"""The samplers and batch recipes that a config can name, how chains are read, and the JSON Schema."""

from itertools import pairwise
from typing import Annotated, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.datasets import DATASETS
from samplerkit.config.derive import KIND_OF, Parsed, Sections
from samplerkit.config.error_messages import below, public, require_known_keys, require_mapping, unknown_name
from samplerkit.config.reading import Folder
from samplerkit.config.sections import LOADER, MIN_QUALITY, SECTION
from samplerkit.errors import CompositionError, ConfigError
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.mixing.edit import Edit


class Samplers(Kinds):
    """The kinds of samplers, whose sections are chains."""

    def read(self, section: Any, place: str, folder: Folder) -> Parsed:
        """Builds the chain of samplers that a section describes, including samplers in arguments.

        The links are read in a loop, without recursion, so that a chain may be as deep as a config; sources
        of a mixture are read as chains of their own.

        Raises:
            ConfigError: a key, a type, a value or the nesting is wrong; of several mistakes, one.

        Example:
            >>> from pathlib import Path
            >>> section = {"kind": "subset", "indices": [1, 0], "child": {"kind": "sequential"}}
            >>> SAMPLERS.read(section, "sampler", Path()).places
            ['sampler', 'sampler.child']
        """
        links: list[Parsed] = []
        while section is not None or not links:
            constructor, given, path = choose_sampler(section, place)
            section = given.pop("child", None)
            links.append(constructor.read(given, path, folder))
            place = below(path, "child")
        written = links[-1].written
        for parent, child in reversed([*pairwise(links)]):
            _nest(parent, child)
            written = {**parent.written, "child": written}
        return Parsed(links[0].value, written, [path for link in links for path in link.places])


SAMPLERS = Samplers("sampler", example="{kind: random, seed: 7}", base=Sampler, extra_keys=("kind", "child"))
"""All kinds of samplers."""

EDIT = Constructor("edit", Edit, example="{at: 1000, skip: 20}")

for _name, _class in {
    "sequential": "SequentialSampler",
    "random": "RandomSampler",
    "subset": "SubsetSampler",
    "subset_random": "SubsetRandomSampler",
    "weighted_random": "WeightedRandomSampler",
    "pk": "PKSampler",
    "iter": "IterSampler",
    "mixture": "MixtureSampler",
    "repeat": "RepeatSampler",
    "repeat_factor": "RepeatFactorSampler",
    "window": "WindowSampler",
    "block": "BlockSampler",
    "fold": "FoldSampler",
    "distributed": "DistributedSampler",
    "megatron_single": "compat.megatron.MegatronPretrainingSampler",
    "megatron_cyclic": "compat.megatron.MegatronPretrainingRandomSampler",
}.items():
    SAMPLERS.add(_name, _class)
# The argument `sampler` of a ledger is written as its child.
SAMPLERS.add("ledger", "Ledger", {"sampler": None, "edits": Annotated[Any, Sections("edits", EDIT, list)]})


def targets() -> dict[str, str]:
    """Returns the kinds by their class names in configs of Hydra and LightningCLI.

    No other names are imported from a config.
    """
    return {constructor.target: kind for kind, constructor in SAMPLERS.items()}


def register_sampler(kind: str, sampler: type[Sampler]) -> None:
    """Registers a sampler class under a name for configs.

    The arguments in a config are derived from the signature and the type hints of the constructor. Hydra's
    `_target_` and LightningCLI's `class_path` name the class by its module and qualified name.

    Args:
        kind: the name in a config.
        sampler: the class.

    Raises:
        ArgumentTypeError: the class is not a sampler, an argument cannot be given by name, or a type hint
            cannot be understood.
        ArgumentValueError: the name is taken, or an argument is named like a key of a section.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> class EveryNth(sk.Sampler):
        ...     def __init__(self, step: int, num_samples: int | None = None) -> None:
        ...         super().__init__(num_samples)
        ...         self.step = step
        ...     def draw(self, layout, context):
        ...         return np.arange(0, len(layout), self.step)
        >>> sk.register_sampler("every_nth", EveryNth)
        >>> config = sk.load_config({"sampler": {"kind": "every_nth", "step": 4}})
        >>> list(config.sampler.order(10))
        [0, 4, 8]
    """
    SAMPLERS.register(kind, sampler)


def choose_sampler(section: Any, place: str) -> tuple[Constructor, dict[str, Any], str]:
    """Finds the sampler class of a section: of samplerkit's own form, Hydra's or LightningCLI's.

    Returns:
        The constructor, its arguments including a child, and the path of the arguments.

    Raises:
        ConfigError: the section is not a mapping, or names no known sampler, or several.
    """
    given = dict(require_mapping(section, place, SAMPLERS.example))
    spellings = [key for key in ("kind", "_target_", "class_path") if key in given]
    if len(spellings) > 1:
        where = below(place, spellings[1])
        shown = public(where, given[spellings[1]])
        raise ConfigError(where, f"conflicts with {spellings[0]}", shown, hint="name the sampler once")
    if not spellings or spellings == ["kind"]:
        return *SAMPLERS.choose(given, place), place
    target = given.pop(spellings[0])
    kinds = targets()
    if not isinstance(target, str) or target not in kinds:
        where, problem = below(place, spellings[0]), "names no class that a config may name"
        raise unknown_name(where, problem, target, kinds, "a sampler of your own needs register_sampler")
    constructor = SAMPLERS[kinds[target]]
    if spellings == ["_target_"]:
        return constructor, given, place
    require_known_keys(place, given, ["init_args"], "a class_path section")
    path = below(place, "init_args")
    arguments = given.get("init_args")
    arguments = {} if arguments is None else require_mapping(arguments, path, "init_args: {seed: 7}")
    return constructor, dict(arguments), path


def _nest(parent: Parsed, child: Parsed) -> None:
    """Adds a child to its parent in a chain."""
    try:
        parent.value.add_child(child.value)
    except CompositionError as error:
        # The error names samplers; in a config, the mistake is at the key of the mode or the kind.
        at_fault, value = (parent if isinstance(error.value, str) else child), error.value
        place = at_fault.places[0]
        if value is child.value:
            mode = value.get_shuffle_mode()
            value = child.written["kind"] if mode is Shuffle.FALSE else mode.value
        if isinstance(value, str) and "shuffle" in at_fault.value.arguments():
            place = below(place, "shuffle")
        raise ConfigError(place, error.problem, value, hint=error.hint) from None


BATCHES = Kinds("batches", example="{kind: tokens, max_tokens: 32768}", base=BatchRecipe)
"""All kinds of recipes for batches."""

for _name, _class in {
    "tokens": "TokenBatches",
    "packs": "PackBatches",
    "bucket": "BucketBatches",
    "classes": "ClassBatches",
}.items():
    BATCHES.add(_name, _class)


def register_batches(kind: str, recipe: type[BatchRecipe]) -> None:
    """Registers a recipe class under a name for configs.

    The arguments in a config are derived from the signature and the type hints of the constructor.

    Args:
        kind: the name in a config.
        recipe: the class.

    Raises:
        ArgumentTypeError: the class is not a recipe, an argument cannot be given by name, or a type hint
            cannot be understood.
        ArgumentValueError: the name is taken, or an argument is named like a key of a section.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> class PairsOfNeighbours(sk.BatchRecipe):
        ...     window = 4
        ...     def cut(self, ids, lengths, context):
        ...         return np.split(np.argsort(ids), range(2, ids.size, 2))
        >>> sk.register_batches("pairs_of_neighbours", PairsOfNeighbours)
        >>> plan = PairsOfNeighbours().plan(sk.RandomSampler(seed=7), 6)
        >>> sorted(batch.size for batch in plan)
        [2, 2, 2]
    """
    BATCHES.register(kind, recipe)


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
