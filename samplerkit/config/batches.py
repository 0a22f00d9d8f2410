"""The recipes for batches that a config can name: ours, and a user's after `register_batches`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, overload

from samplerkit.batches.bucket_batches import BucketBatches
from samplerkit.batches.class_batches import ClassBatches
from samplerkit.batches.packs.pack_batches import PackBatches
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.batches.token_batches import TokenBatches
from samplerkit.config.constructor import Kinds
from samplerkit.config.loader import LoaderOptions
from samplerkit.config.paths import Folder
from samplerkit.config.quality import SECTION
from samplerkit.errors import ConfigError

_AnyRecipe = TypeVar("_AnyRecipe", bound=BatchRecipe)

BATCHES = Kinds("batches", example="{kind: tokens, max_tokens: 32768}", base=BatchRecipe)
"""All kinds of recipes for batches."""

for _name, _class in {
    "tokens": TokenBatches,
    "packs": PackBatches,
    "bucket": BucketBatches,
    "classes": ClassBatches,
}.items():
    BATCHES.add(_name, _class)


@overload
def register_batches(kind: str) -> Callable[[type[_AnyRecipe]], type[_AnyRecipe]]: ...
@overload
def register_batches(kind: str, recipe: type[_AnyRecipe]) -> type[_AnyRecipe]: ...
def register_batches(kind: str, recipe: Any = None) -> Any:
    """Lets a config name a recipe of yours; as a decorator, or with the class as second argument.

    What a config may write follows from the signature and the type hints of the constructor.

    Args:
        kind: the name in a config.
        recipe: the class; left out, the result is a decorator.

    Returns:
        The class as it is.

    Raises:
        ArgumentTypeError: the class is no recipe, an argument cannot be given by name, or a type hint cannot
            be understood.
        ArgumentValueError: the name is taken, or an argument is called like a key of the config.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> @sk.register_batches("pairs_of_neighbours")
        ... class PairsOfNeighbours(sk.BatchRecipe):
        ...     window = 4
        ...     def cut(self, ids, lengths, context):
        ...         return np.split(np.argsort(ids), range(2, ids.size, 2))
        >>> plan = PairsOfNeighbours().plan(sk.RandomSampler(seed=7), 6)
        >>> sorted(batch.size for batch in plan)
        [2, 2, 2]
    """
    return BATCHES.register(kind, recipe)


def read_batches(section: Any, folder: Folder) -> tuple[BatchRecipe, dict[str, Any]]:
    """Builds the recipe that a section describes.

    Returns:
        The recipe, and the section in its plainest spelling.

    Raises:
        ConfigError: a key, a type or a value is wrong.

    Example:
        >>> from pathlib import Path
        >>> read_batches({"kind": "bucket", "boundaries": [4, 8], "batch_size": 2}, Path())[1]
        {'kind': 'bucket', 'boundaries': [4, 8], 'batch_size': 2}
    """
    call = BATCHES.read(section, BATCHES.section, folder)
    keys = call.arguments.get("keys")
    if isinstance(keys, list):
        # YAML has no tuples, and lists are no keys.
        keys = [tuple(key) if isinstance(key, list) else key for key in keys]
        call = replace(call, arguments={**call.arguments, "keys": keys})
    return call.make(), call.written


def require_one_size(sections: dict[str, Any], recipe: BatchRecipe | None, options: LoaderOptions) -> None:
    """Refuses what means batches of one size where a recipe makes them, and the other way round.

    Args:
        sections: of the config.
        recipe: from the section `batches`; None without.
        options: from the section `loader`.

    Raises:
        ConfigError: both are said, or `loader.tail` splits batches, and there is no recipe.
    """
    if recipe is None:
        if getattr(options, "tail", None) == "split":
            hint = f"write for instance batches: {BATCHES.example}, or tail: ragged"
            problem = "splits batches of samples of different lengths"
            raise ConfigError("loader.tail", problem, "split", hint=hint)
        return
    if "batch_size" in (sections.get("loader") or {}):
        hint = "leave out one of the two: batches says how many samples a batch holds"
        raise ConfigError("loader.batch_size", "stands beside batches", options.batch_size, hint=hint)
    if sections.get(SECTION) is not None:
        hint = "leave it out: plans of batches are mixed by themselves, and samplerkit plan shows how well"
        raise ConfigError(SECTION, "stands beside batches, whose mixing it cannot measure", hint=hint)
