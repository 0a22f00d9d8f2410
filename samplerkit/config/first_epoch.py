"""The first epoch of a config, made once: what order or plan refuse is an error at a key of the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.config.batches import BATCHES
from samplerkit.config.constructor import Kinds
from samplerkit.config.error_messages import from_constructor
from samplerkit.config.registry import SAMPLERS
from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.loading.run.run import beginning_of
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.sources import parts_of


def check_order(sampler: Sampler, places: Sequence[str], dataset: Any, constants: RunConstants) -> None:
    """Makes the order of a chain once, as its first epoch would.

    Raises:
        ConfigError: it cannot be made; the place is the whole path of the key.
    """
    try:
        sampler.undealt_order(dataset, constants=constants)
        beginning_of(sampler, dataset)
    except SamplerkitError as refused:
        known = dict(zip(map(id, sampler._tree()), places, strict=True))
        link, error = _first_refusal(sampler, dataset, constants, refused)
        raise _at_its_key(known[id(link)], error, SAMPLERS, link, link.arguments()) from None


def check_plan(recipe: BatchRecipe, sampler: Sampler, dataset: Any, constants: RunConstants) -> None:
    """Makes the plan of a first epoch, and its first batch.

    Raises:
        ConfigError: it cannot be made; the place is the whole path of the key.
    """
    try:
        recipe.plan(sampler, dataset, constants=constants).has(0)
    except SamplerkitError as error:
        raise _at_its_key(BATCHES.section, error, BATCHES, recipe, {}) from None


def _at_its_key(
    place: str, error: SamplerkitError, kinds: Kinds, made: Any, given: dict[str, Any]
) -> ConfigError:
    names = [name for kind in kinds if kinds[kind].make is type(made) for name in kinds[kind].names]
    given = given or {name: getattr(made, name, None) for name in names}
    return from_constructor(place, error, names, type(made).__name__, given)


def _first_refusal(
    sampler: Sampler, dataset: Any, constants: RunConstants, error: SamplerkitError
) -> tuple[Sampler, SamplerkitError]:
    """Goes from the innermost link outwards, and into its branches, to the first that makes no order.

    Of the outermost one that is known already: by its own refusal.
    """
    for link in reversed(sampler._links()):
        for name, branch in link.branches().items():
            try:
                part = parts_of(dataset)[name]
                branch.undealt_order(part, constants=constants)
            except (SamplerkitError, LookupError) as refused:
                if isinstance(refused, SamplerkitError):
                    return _first_refusal(branch, part, constants, refused)
        if link is not sampler:
            try:
                link.undealt_order(dataset, constants=constants)
            except SamplerkitError as refused:
                return link, refused
    return sampler, error
