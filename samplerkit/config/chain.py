"""Nested sampler sections: read from the outermost to the innermost, built the other way round."""

from __future__ import annotations

from typing import Any

from samplerkit.config.constructor import Call
from samplerkit.config.folder import Folder
from samplerkit.config.place import below
from samplerkit.config.registry import choose_sampler
from samplerkit.errors import CompositionError, ConfigError
from samplerkit.samplers.base import Sampler


def read_chain(section: Any, place: str, folder: Folder) -> tuple[Sampler, dict[str, Any], list[str]]:
    """Builds the chain of samplers that a section describes.

    It goes from link to link without recursion, so that a chain may be as deep as the config.

    Args:
        section: plain data.
        place: the path of the section.
        folder: what relative paths start from.

    Returns:
        The outermost sampler, the section in its plainest spelling, and the path of each link.

    Raises:
        ConfigError: a key, a type, a value or the nesting is wrong; of several mistakes, one.

    Example:
        >>> from pathlib import Path
        >>> child = {"kind": "sequential", "start_index": 2}
        >>> read_chain({"kind": "subset", "indices": [1, 0], "child": child}, "sampler", Path())[0]
        SubsetSampler(indices=[1, 0], num_samples=None) <- SequentialSampler(start_index=2, num_samples=None)
    """
    calls: list[Call] = []
    while section is not None or not calls:
        constructor, given, inside = choose_sampler(section, place)
        section = given.pop("child", None)
        calls.append(constructor.read(given, inside, folder, also=("kind", "child")))
        place = below(inside, "child")
    samplers = [call.make() for call in calls]
    for index in range(len(calls) - 2, -1, -1):
        _nest(samplers[index], samplers[index + 1], calls[index], calls[index + 1])
    written: dict[str, Any] = {}
    for call in reversed(calls):
        nested = {"child": written} if written else {}
        written = {"kind": call.constructor.name, **call.written, **nested}
    return samplers[0], written, [call.place for call in calls]


def _nest(parent: Sampler, child: Sampler, parent_call: Call, child_call: Call) -> None:
    try:
        parent.add_child(child)
    except CompositionError as error:
        # The core names the samplers; a config is mended at the key that says the mode.
        if error.value is child:
            place, value = _mode_key(child_call), child.get_shuffle_mode().value
        elif isinstance(error.value, str):
            place, value = _mode_key(parent_call), error.value
        else:
            place, value = below(parent_call.place, "child"), error.value
        raise ConfigError(place, error.problem, value, mend=error.mend) from None


def _mode_key(call: Call) -> str:
    return below(call.place, "shuffle") if "shuffle" in call.constructor.names else call.place
