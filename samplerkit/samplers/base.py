"""The base of all samplers; a sampler as plain data, and back."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, final

import numpy as np

from samplerkit import names
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, CompositionError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.samplers.chain import Chain, Link, RunConstants, chain_type, check_algorithm, class_name

_CHECKS = {"num_samples": arguments.num_samples, "seed": arguments.seed, "lanes": arguments.lanes}


class Sampler(Link):
    """A recipe for the order in which samples are read.

    A subclass writes one method, `draw`, or, MindSpore's way, `__iter__`, which finds the number of samples
    in `self.dataset_size`. Samplers nest: a parent draws from what its child yields. A sampler holds no
    state of an epoch, so that `order` gives the same for the same arguments, always.

    Args:
        num_samples: how many samples to draw; None and 0 mean all.

    Raises:
        ArgumentTypeError: `num_samples` is not an integer.
        ArgumentValueError: `num_samples` is negative.

    Source: the interface is MindSpore's `mindspore.dataset.Sampler`.

    Example:
        >>> import numpy as np
        >>> class EvenOdd(Sampler):
        ...     def draw(self, layout, context):
        ...         ids = np.arange(len(layout))
        ...         return np.concatenate([ids[::2], ids[1::2]])
        >>> class Backwards(Sampler):
        ...     def __iter__(self):
        ...         yield from range(self.dataset_size - 1, -1, -1)
        >>> sampler = EvenOdd()
        >>> sampler.add_child(Backwards())
        >>> list(sampler.order(5))
        [4, 2, 0, 3, 1]
    """

    _child: Sampler | None = None
    _cached_chain: Chain | None = None
    is_fixed: ClassVar[bool] = False
    """Whether it reads the same samples of its layout in each epoch, and in the same order."""
    yields_files: bool = False
    """Whether what it yields are whole files, so that a parent of any shuffle mode may draw from it."""
    num_samples: int | None = None
    """The argument `num_samples`, as it was given."""
    dataset_size: int = 0
    """The number of samples to draw from; known while `__iter__` runs."""

    def __init__(self, num_samples: int | None = None) -> None:
        self.num_samples = arguments.num_samples("num_samples", num_samples)

    def _check(self, **checks: Callable[[str, Any], Any]) -> None:
        """Replaces arguments of a sampler that is a dataclass by what their checks return.

        The algorithm is last, since it checks the other arguments too.

        Args:
            checks: by the names of arguments; those that many samplers have need none.
        """
        for name, check in {**_CHECKS, **checks}.items():
            if name in vars(self):
                setattr(self, name, check(name, getattr(self, name)))
        if "algorithm" in vars(self):
            check_algorithm(self)

    @property
    def is_foreign(self) -> bool:
        """Whether ids come from the user's code: states and ranks then compare a digest of them."""
        return not type(self).__module__.startswith("samplerkit.")

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuses to be iterated, for example by a plain DataLoader, if the subclass has no `__iter__`.

        Raises:
            ArgumentTypeError: always.
        """
        hint = "read sampler.order(dataset), or give a plain DataLoader TorchSampler(sampler, dataset)"
        raise ArgumentTypeError(type(self).__name__, "is a recipe, and holds no ids itself", hint=hint)

    def looks_at(self, dataset: Any) -> dict[str, Any]:
        """Returns by name all of the dataset that `draw` uses besides its layout: states notice a change.

        Args:
            dataset: a dataset, a `Layout`, or a number of samples.
        """
        return {}

    @final
    def add_child(self, sampler: Sampler | None) -> None:
        """Makes this sampler draw from what another one yields.

        Args:
            sampler: the child; None changes nothing, as in MindSpore.

        Raises:
            ArgumentTypeError: not a sampler.
            CompositionError: there is a child already, the child would contain this sampler, the child's
                shuffle mode is PARTIAL, this one's is neither GLOBAL nor FALSE, or their algorithms differ.
        """
        if sampler is None:
            return
        if not isinstance(sampler, Sampler):
            raise ArgumentTypeError("child", "must be a sampler", sampler)
        if self._child is not None:
            raise self._child_error("there is a child already", self._child, "nest the new one below it")
        if any(link is self for link in sampler._tree()):
            raise self._child_error("would make a cycle", sampler)
        if sampler.reads_a_stream and (self.reads_a_stream or not self.reads_below):
            hint = "give it this sampler as its child"
            raise self._child_error("a ledger must be the outermost sampler", sampler, hint)
        if sampler.get_shuffle_mode() is Shuffle.PARTIAL and not self.reads_below:
            raise self._child_error("the shuffle mode of a child must not be PARTIAL", sampler, "use GLOBAL")
        if self.get_shuffle_mode() not in (Shuffle.FALSE, Shuffle.GLOBAL) and not sampler.yields_files:
            problem = "the shuffle mode of a sampler with a child must be GLOBAL or FALSE"
            hint = "give the mode to the innermost sampler, which knows the files"
            raise self._child_error(problem, self.get_shuffle_mode().value, hint)
        algorithms = self._algorithms() | sampler._algorithms()
        if len(algorithms) > 1:
            raise self._child_error("the samplers of a chain must have one algorithm", sorted(algorithms))
        self._child = sampler

    def _child_error(self, problem: str, value: object, hint: str = "") -> CompositionError:
        return CompositionError(f"{type(self).__name__}.add_child", problem, value, hint=hint)

    @final
    def get_child(self) -> Sampler | None:
        """Returns the child, or None."""
        return self._child

    def get_num_samples(self) -> int | None:
        """Returns the smallest `num_samples` of the chain, as MindSpore does.

        Returns:
            The number as it was given (so 0, which means all, is the smallest), or None.
        """
        counts = []
        for link in self._links():
            counts.append(link._own_num_samples())
            if link._counts_alone:
                break
        return min((count for count in counts if count is not None), default=None)

    def _links(self) -> list[Sampler]:
        """The samplers of the chain, from this one down to the one without a child."""
        links = [self]
        while links[-1]._child is not None:
            links.append(links[-1]._child)
        return links

    def branches(self) -> dict[str, Sampler]:
        """Returns the samplers of the sources of a mixture, by name and sorted."""
        return {}

    def _tree(self, ancestors: tuple[Sampler, ...] = ()) -> Iterator[Sampler]:
        """The samplers of the chain and of all its branches, from this one on; `ancestors` branched to it."""
        for link in self._links():
            if any(link is ancestor for ancestor in ancestors):
                # Without the value: one that contains itself would be shown without end.
                hint = "give it a sampler that does not hold it"
                raise CompositionError(type(link).__name__, "is a source of itself", hint=hint)
            yield link
            for branch in link.branches().values():
                yield from branch._tree((*ancestors, link))

    def arguments(self) -> dict[str, Any]:
        """Returns the constructor's arguments by name, as they were understood."""
        return {name: getattr(self, name, None) for name in _defaults(type(self).__init__)}

    def __repr__(self) -> str:
        return " <- ".join(link._describe() for link in self._links())

    def _describe(self) -> str:
        """Names a sampler, with the arguments that differ from their defaults."""
        defaults = _defaults(type(self).__init__)
        fields = [
            f"{name}={shown(value)}"
            for name, value in self.arguments().items()
            if name in defaults and _differs(value, defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(fields)})"

    @property
    def _counts_alone(self) -> bool:
        """Whether this sampler's number of samples is the chain's: MindSpore's rule for custom samplers."""
        return hasattr(type(self), "__iter__")

    def _own_num_samples(self) -> int | None:
        """The number of samples of this sampler alone, whatever its child has."""
        if hasattr(type(self), "__iter__"):
            return self.num_samples or self.dataset_size
        return self.num_samples

    @final
    def order(self, dataset: Any, epoch: int = 0, *, world: World | None = None) -> Order:
        """Returns the order in which this process reads the dataset.

        Args:
            dataset: a dataset, a `Layout`, or a number of samples.
            epoch: from 0.
            world: which shard of how many this process is. Left out, a distributed sampler in the chain
                asks the running job, and a chain without one is not dealt.

        Returns:
            The order of this process's shard.

        Raises:
            ShuffleModeError: the mode needs files, and the dataset has none.
            OutOfDatasetError: an index is outside of the dataset.
            ArgumentRangeError: the order would be longer than 2^62.

        Example:
            >>> import samplerkit as sk
            >>> sampler = sk.DistributedSampler(num_shards=2, shard_id=1, shuffle=False)
            >>> list(sampler.order(5))
            [1, 3, 0]
        """
        epoch, chain = arguments.epoch(epoch), self.chain
        constants = chain.constants(world)
        if chain.deal is None and world is None:
            return chain.undealt(dataset, epoch, constants)
        return chain.shard(dataset, epoch, constants, chain.world(world))

    @final
    def undealt_order(self, dataset: Any, epoch: int = 0, *, constants: RunConstants | None = None) -> Order:
        """Returns the order that all shards read together; no rank is in it.

        Args:
            dataset: a dataset, a `Layout`, or a number of samples.
            epoch: from 0.
            constants: what the first start of the run fixed; left out, this is the first start.

        Returns:
            The undealt order: without a distributed sampler that of the chain; with one at the root the
            order that it deals; with one further down the orders of all shards, interleaved.
        """
        constants = self.chain.constants() if constants is None else constants
        return self.chain.undealt(dataset, arguments.epoch(epoch), constants)

    @property
    @final
    def chain(self) -> Chain:
        """The chain of this sampler and those below it; cached, since all evaluations begin with it."""
        links = self._links()[::-1]
        if self._cached_chain is None or self._cached_chain.links != links:
            algorithm = max(self._algorithms(), default=ALGORITHM)
            self._cached_chain = chain_type(algorithm)(links, algorithm)
        return self._cached_chain

    def _algorithms(self) -> set[str]:
        return {link.algorithm for link in self._tree() if hasattr(link, "algorithm")}


@lru_cache(256)
def _defaults(constructor: Callable[..., None]) -> Mapping[str, Any]:
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _differs(value: Any, default: Any) -> bool:
    return shown(value) != shown(Shuffle.parse(default) if isinstance(value, Shuffle) else default)


def shown(value: Any) -> str:
    """Returns the value of an argument as text; of a long list its length."""
    if isinstance(value, Shuffle):
        return value.value
    if isinstance(value, np.ndarray | list | tuple) and len(value) > 6:
        return f"<{len(value)} values>"
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


_CLASS, _CHILD = "class", "child"


def plain(value: Any, place: str) -> Any:
    """Returns a value as plain data: of a sampler, its class and arguments, and its child.

    Args:
        value: an argument of a sampler or of an edit, or a sampler.
        place: for errors.

    Raises:
        NotSupportedError: it is an object that JSON does not know.

    Example:
        >>> import samplerkit as sk
        >>> data = plain(sk.SequentialSampler(start_index=3), "source")
        >>> data
        {'class': 'SequentialSampler', 'start_index': 3, 'num_samples': None}
        >>> from_plain(data)
        SequentialSampler(start_index=3)
    """
    if isinstance(value, Sampler):
        child = value.get_child()
        data = {_CLASS: class_name(type(value)), **plain(value.arguments(), place)}
        return data if child is None else {**data, _CHILD: plain(child, place)}
    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{place}.{name}") for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item, place) for item in value]
    value = value.value if isinstance(value, Enum) else value
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if value is None or isinstance(value, str | int | float):
        return value
    problem = "is an object whose arguments an edit cannot store"
    raise NotSupportedError(place, problem, value, hint="give a sampler whose arguments are plain values")


def from_plain(data: Any) -> Any:
    """Makes a value from the data that `plain` gives.

    Raises:
        ArgumentValueError: a sampler in it is of a class that is not samplerkit's own. Nothing is imported
            by name.
    """
    if not isinstance(data, dict):
        return data
    fields = {name: from_plain(value) for name, value in data.items()}
    if not isinstance(data.get(_CLASS), str):
        return fields
    kind, child = fields.pop(_CLASS), fields.pop(_CHILD, None)
    module = names.PUBLIC.get(kind, "")
    if not module.startswith("samplers."):
        hint = "give the edits from Python, or in a config"
        raise ArgumentValueError(_CLASS, "is not one of samplerkit's samplers", kind, hint=hint)
    sampler = names.load(module, kind)(**fields)
    sampler.add_child(child)
    return sampler
