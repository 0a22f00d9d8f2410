"""The samplers that a config can name: ours, and a user's after `register_sampler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from samplerkit.config.constructor import Constructor
from samplerkit.config.kinds import Kinds
from samplerkit.config.mistakes import require_mapping, unknown_key
from samplerkit.config.place import below, meant
from samplerkit.config.private import public, resembling
from samplerkit.errors import ArgumentTypeError, ConfigError
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.iterable import IterSampler
from samplerkit.samplers.mixture import MixtureSampler
from samplerkit.samplers.pk import PKSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler
from samplerkit.samplers.subset import SubsetRandomSampler, SubsetSampler
from samplerkit.samplers.weighted import WeightedRandomSampler

_AnySampler = TypeVar("_AnySampler", bound=Sampler)

SAMPLERS = Kinds("sampler", example="{kind: random, seed: 7}")
"""All kinds of samplers."""

TARGETS: dict[str, str] = {}
"""The kind that a class name in Hydra's or LightningCLI's spelling means. Nothing is imported by name."""

for _name, _class in {
    "sequential": SequentialSampler,
    "random": RandomSampler,
    "subset": SubsetSampler,
    "subset_random": SubsetRandomSampler,
    "weighted_random": WeightedRandomSampler,
    "pk": PKSampler,
    "iter": IterSampler,
    "mixture": MixtureSampler,
    "distributed": DistributedSampler,
}.items():
    SAMPLERS.add(_name, _class)
    TARGETS[f"samplerkit.{_class.__name__}"] = _name


@overload
def register_sampler(kind: str) -> Callable[[type[_AnySampler]], type[_AnySampler]]: ...
@overload
def register_sampler(kind: str, sampler: type[_AnySampler]) -> type[_AnySampler]: ...
def register_sampler(kind: str, sampler: Any = None) -> Any:
    """Lets a config name a sampler of yours; as a decorator, or with the class as second argument.

    What a config may write follows from the signature and the type hints of the constructor. Hydra's
    `_target_` and LightningCLI's `class_path` take the class by its module and qualified name.

    Args:
        kind: the name in a config.
        sampler: the class; left out, the result is a decorator.

    Returns:
        The class as it is.

    Raises:
        ArgumentTypeError: the class is no sampler, an argument cannot be given by name, or a type hint
            cannot be understood.
        ArgumentValueError: the name is taken, or an argument is called like a key of the config.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> @sk.register_sampler("every_nth")
        ... class EveryNth(sk.Sampler):
        ...     def __init__(self, step: int, num_samples: int | None = None) -> None:
        ...         super().__init__(num_samples)
        ...         self.step = step
        ...     def draw(self, layout, context):
        ...         return np.arange(0, len(layout), self.step)
        >>> config = sk.load_config({"sampler": {"kind": "every_nth", "step": 4}})
        >>> list(config.sampler.order(10))
        [0, 4, 8]
    """
    if sampler is None:
        return lambda decorated: _registered(kind, decorated)
    return _registered(kind, sampler)


def _registered(kind: str, sampler: Any) -> Any:
    if not (isinstance(sampler, type) and issubclass(sampler, Sampler)):
        raise ArgumentTypeError("sampler", "must be a subclass of samplerkit.Sampler", sampler)
    SAMPLERS.add(kind, sampler)
    TARGETS.setdefault(f"{sampler.__module__}.{sampler.__qualname__}", kind)
    return sampler


def choose_sampler(section: Any, place: str) -> tuple[Constructor, dict[str, Any], str]:
    """Picks the sampler class of a section in one of the three spellings.

    Returns:
        The constructor, what is given to it (its arguments, and a child), and the path of that.

    Raises:
        ConfigError: no mapping, or it names no known sampler, or several.
    """
    given = dict(require_mapping(section, place, SAMPLERS.example))
    spellings = [key for key in ("kind", "_target_", "class_path") if key in given]
    if len(spellings) > 1:
        where = below(place, spellings[1])
        shown = public(where, given[spellings[1]])
        raise ConfigError(where, f"stands beside {spellings[0]}", shown, mend="name the sampler once")
    if not spellings or spellings == ["kind"]:
        return *SAMPLERS.choose(given, place), place
    named = given.pop(spellings[0])
    if not isinstance(named, str) or named not in TARGETS:
        hint = meant(named, TARGETS)
        where = below(place, spellings[0])
        raise ConfigError(
            where,
            "names no class that a config may name",
            resembling(where, named, hint),
            mend=hint if hint.startswith("did") else "a sampler of your own needs register_sampler",
        )
    constructor = SAMPLERS[TARGETS[named]]
    if spellings == ["_target_"]:
        return constructor, given, place
    if given.keys() - {"init_args"}:
        raise unknown_key(place, given, ["init_args"], "a class_path section")
    inside = below(place, "init_args")
    arguments = given.get("init_args")
    arguments = {} if arguments is None else require_mapping(arguments, inside, "init_args: {seed: 7}")
    return constructor, dict(arguments), inside
