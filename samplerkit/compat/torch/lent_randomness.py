"""Randomness that is lent to somebody else's sampler while it draws, and taken back afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data

from samplerkit.order.keys import Key

ROLE = "lent"
"""The role in the keys of what is lent."""


@dataclass(frozen=True)
class LentGenerator:
    """A random generator of any library: how its state is read, seeded and set."""

    get_state: Callable[[], Any]
    seed: Callable[[int], Any]
    set_state: Callable[[Any], Any]

    @contextmanager
    def seeded(self, word: int) -> Iterator[None]:
        """Seeds the generator with 64 bits for the time of a `with`."""
        state = self.get_state()
        self.seed(word)
        try:
            yield
        finally:
            self.set_state(state)


@contextmanager
def lent_randomness(sampler: Any, seed: int, epoch: int) -> Iterator[None]:
    """Makes all that a sampler may draw from depend on seed and epoch alone, for the time of a `with`.

    That is torch's default generator, those of CUDA where it is in use, numpy's and Python's, and the
    generators that the sampler, or a sampler in it, holds in an attribute. Each gets a seed of its own, and
    afterwards the state that it had before.

    Args:
        sampler: what draws.
        seed: in [0, 2^64).
        epoch: from 0.

    Example:
        >>> before = torch.get_rng_state()
        >>> with lent_randomness(None, seed=7, epoch=0):
        ...     first = torch.rand(3)
        >>> with lent_randomness(None, seed=7, epoch=0):
        ...     print(torch.rand(3).equal(first))
        True
        >>> torch.get_rng_state().equal(before)
        True
    """
    generators = [*_process_wide(), *_held_by(sampler)]
    words = Key(seed, epoch, 0, ROLE).words(len(generators)).tolist()
    with ExitStack() as stack:
        for generator, word in zip(generators, words, strict=True):
            stack.enter_context(generator.seeded(word))
        yield


def _process_wide() -> Iterator[LentGenerator]:
    yield _of_torch(torch.default_generator)
    yield _of_numpy_state(np.random)
    yield _of_python(random)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types there
        yield from map(_of_torch, torch.cuda.default_generators)


def _held_by(sampler: Any) -> Iterator[LentGenerator]:
    """Finds the generators in the attributes of a sampler and of the samplers in it, each once."""
    waiting, seen = [sampler], set()
    while waiting:
        holder = waiting.pop()
        for value in list(getattr(holder, "__dict__", {}).values()):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, torch.Generator):
                yield _of_torch(value)
            elif isinstance(value, np.random.Generator):
                yield _of_numpy(value)
            elif isinstance(value, np.random.RandomState):
                yield _of_numpy_state(value)
            elif isinstance(value, random.Random):
                yield _of_python(value)
            elif isinstance(value, torch.utils.data.Sampler):
                waiting.append(value)
            elif isinstance(value, list | tuple) and value and isinstance(value[0], torch.utils.data.Sampler):
                waiting.extend(value)


def _of_torch(generator: torch.Generator) -> LentGenerator:
    return LentGenerator(generator.get_state, generator.manual_seed, generator.set_state)


def _of_numpy(generator: np.random.Generator) -> LentGenerator:
    bits: Any = generator.bit_generator

    def set_state(state: Any) -> None:
        bits.state = state

    return LentGenerator(lambda: bits.state, lambda word: set_state(type(bits)(word).state), set_state)


def _of_numpy_state(state: Any) -> LentGenerator:
    # numpy's older generators are seeded with 32 bits, or with several such words.
    return LentGenerator(
        state.get_state, lambda word: state.seed([word & 0xFFFFFFFF, word >> 32]), state.set_state
    )


def _of_python(generator: Any) -> LentGenerator:
    return LentGenerator(generator.getstate, generator.seed, generator.setstate)
