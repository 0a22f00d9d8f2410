"""Ids from a user's code: iterables of ids, and the random generators that they use."""

import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, DatasetError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.keys import Key
from samplerkit.order.typing import Ids

ROLE = "lent"
"""The role in the keys of the seeds that are lent."""


GeneratorFunctions = tuple[Callable[[], Any], Callable[[int], Any], Callable[[Any], Any]]
"""Functions of a random generator: get its state, seed it with 64 bits, set its state."""


@contextmanager
def seeded_generators(sampler: Any, seed: int, epoch: int) -> Iterator[None]:
    """Seeds all generators that a sampler may draw from by seed and epoch, within a `with`.

    These are torch's default generator, those of CUDA if it is in use, numpy's and Python's, and the
    generators in attributes of the sampler or of a sampler in it. Each gets a separate seed, and afterwards
    its previous state again.

    Args:
        sampler: the sampler that draws.
        seed: in [0, 2^64).
        epoch: from 0.

    Example:
        >>> before = random.getstate()
        >>> with seeded_generators(None, seed=7, epoch=0):
        ...     first = random.random()
        >>> with seeded_generators(None, seed=7, epoch=0):
        ...     print(random.random() == first)
        True
        >>> random.getstate() == before
        True
    """
    torch = _torch()
    # torch's comes first, and those of CUDA last: the seeds of the others depend on neither.
    holders = [torch and torch.default_generator, np.random, random, *_generators_in(sampler, torch)]
    if torch is not None and torch.cuda.is_initialized():
        holders += torch.cuda.default_generators
    words = Key(seed, epoch, 0, ROLE).words(len(holders)).tolist()
    with ExitStack() as stack:
        for holder, word in zip(holders, words, strict=True):
            if (functions := _functions_of(holder, torch)) is not None:
                get_state, seed_with, set_state = functions
                stack.callback(set_state, get_state())
                seed_with(word)
        yield


def _functions_of(holder: Any, torch: Any) -> GeneratorFunctions | None:
    """Returns the functions of a random generator, or of a module with one; None for any other object."""
    if torch is not None and isinstance(holder, torch.Generator):
        return holder.get_state, holder.manual_seed, holder.set_state
    if isinstance(holder, np.random.Generator):
        bits: Any = holder.bit_generator
        set_state = partial(setattr, bits, "state")
        return lambda: bits.state, lambda word: set_state(type(bits)(word).state), set_state
    if holder is np.random or isinstance(holder, np.random.RandomState):
        # numpy's older generators are seeded with 32 bits, or with several such words.
        seed: Any = holder.seed
        return holder.get_state, lambda word: seed([word & 0xFFFFFFFF, word >> 32]), holder.set_state
    if holder is random or isinstance(holder, random.Random):
        return holder.getstate, holder.seed, holder.setstate
    return None


def _generators_in(sampler: Any, torch: Any) -> Iterator[Any]:
    """Finds the generators in the attributes of a sampler and of the samplers in it, each once."""
    queue, seen = [sampler], set()
    samplers = () if torch is None else torch.utils.data.Sampler
    while queue:
        for value in list(getattr(queue.pop(), "__dict__", {}).values()):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if _functions_of(value, torch) is not None:
                yield value
            elif isinstance(value, samplers):
                queue.append(value)
            elif isinstance(value, list | tuple) and value and isinstance(value[0], samplers):
                queue.extend(value)


def _torch() -> Any:
    """Returns torch if it is imported; a module that is half imported has no generators yet."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") and "torch.utils.data" in sys.modules else None


LONGEST_ITERATION = 1 << 28
"""The most ids that are read from an iterable with a length."""

LONGEST_UNSIZED = 1 << 24
"""The most ids that are read from an iterable without a length, which might never end: a few seconds."""


def read_ids(ids: Iterable[Any], limit: int | None, place: str) -> Ids:
    """Reads the ids that a user's iterable yields into an array.

    Raises:
        ArgumentTypeError: it yields something else.
        OutOfDatasetError: it yields an integer that can be no id.
        DatasetError: it yields too many, and perhaps never ends.
    """
    numbers = (_checked(number, place) for number in ids)
    cap = LONGEST_ITERATION if isinstance(ids, Sized) else LONGEST_UNSIZED
    array = np.fromiter(islice(numbers, limit or cap + 1), dtype=np.int64)
    if not limit and array.size > cap:
        problem = f"yields more than {cap:,} ids" + ("" if isinstance(ids, Sized) else ", and has no length")
        raise DatasetError(place, problem, hint="use num_samples")
    return array


def read_sampler(sampler: Any, size: int, epoch: int) -> Ids:
    """Reads the ids that the `__iter__` of a sampler yields for a number of samples.

    Generators of the process, and those that it holds, are seeded by its `seed`, or 0, and the epoch: each
    rank reads the same, and so does a job that resumes.
    """
    # A copy, so that the recipe does not change: __iter__ may use the size and keep state.
    reader = copy.copy(sampler)
    reader.dataset_size = size
    with seeded_generators(reader, getattr(sampler, "seed", 0), epoch):
        return read_ids(reader, sampler.num_samples, type(sampler).__name__)


def _checked(number: Any, place: str) -> int:
    id = arguments.integer(f"{place}: id", number)
    if not -arguments.INT64_MAX <= id <= arguments.INT64_MAX:
        raise OutOfDatasetError(f"{place}: id", "is outside of any dataset", id)
    return id


def checked_ids(ids: Any, size: int, place: str) -> Ids:
    """Checks a user's ids against the number of samples.

    Raises:
        ArgumentTypeError: an id is not an integer.
        OutOfDatasetError: an id is outside of [0, size).
    """
    array = arguments.integers(place, ids)
    if array.ndim != 1:
        raise ArgumentTypeError(place, "must draw integers", ids)
    outside = (array < 0) | (array >= size)
    if outside.any():
        problem = f"draws an index outside of a dataset of {size} samples"
        raise OutOfDatasetError(place, problem, int(array[outside][0]))
    return array.astype(np.int64)
