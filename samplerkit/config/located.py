"""Where in a config stands what an order cannot be made of: that shows only once the dataset is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplerkit.config.mistakes import from_constructor
from samplerkit.config.registry import SAMPLERS
from samplerkit.errors import SamplerkitError
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants


def check_order(sampler: Sampler, places: Sequence[str], dataset: Any, constants: RunConstants) -> None:
    """Makes the order of a chain once, as its first epoch would.

    Args:
        sampler: the chain.
        places: the path in the config of each link, the outermost first.
        dataset: what it draws from.
        constants: of the run.

    Raises:
        ConfigError: it cannot be made; the place is the whole path of the key.
    """
    try:
        sampler.undealt_order(dataset, constants=constants)
    except SamplerkitError as refused:
        link, place, error = _first_refusal(sampler, places, dataset, constants, refused)
        names = [
            name for kind in SAMPLERS if SAMPLERS[kind].make is type(link) for name in SAMPLERS[kind].names
        ]
        raise from_constructor(place, error, names, type(link).__name__, link.arguments()) from None


def _first_refusal(
    sampler: Sampler, places: Sequence[str], dataset: Any, constants: RunConstants, error: SamplerkitError
) -> tuple[Sampler, str, SamplerkitError]:
    """Goes from the innermost link outwards, to the first one with which no order can be made."""
    links: list[Sampler] = [sampler]
    while (child := links[-1].get_child()) is not None:
        links.append(child)
    for link, place in zip(reversed(links), reversed(places), strict=True):
        try:
            link.undealt_order(dataset, constants=constants)
        except SamplerkitError as refused:
            return link, place, refused
    return sampler, places[0], error
