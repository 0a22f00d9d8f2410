"""The recipes for batches that a config can name: ours, and a user's after `register_batches`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from samplerkit.batches.bucket import BucketBatches
from samplerkit.batches.classes import ClassBatches
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.batches.tokens import TokenBatches
from samplerkit.config.constructor import Kinds
from samplerkit.errors import ArgumentTypeError

_AnyRecipe = TypeVar("_AnyRecipe", bound=BatchRecipe)

BATCHES = Kinds("batches", example="{kind: tokens, max_tokens: 32768}")
"""All kinds of recipes for batches."""

for _name, _class in {
    "tokens": TokenBatches,
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
    if recipe is None:
        return lambda decorated: _registered(kind, decorated)
    return _registered(kind, recipe)


def _registered(kind: str, recipe: Any) -> Any:
    if not (isinstance(recipe, type) and issubclass(recipe, BatchRecipe)):
        raise ArgumentTypeError(
            "recipe", "must be a subclass of samplerkit.BatchRecipe", recipe, mend="write its method cut"
        )
    BATCHES.add(kind, recipe)
    return recipe
