"""What a sampler may depend on, besides its arguments and its layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from samplerkit.order.keys import Key
from samplerkit.order.order import Order


@dataclass(frozen=True)
class RunConstants:
    """What the first start of a run fixes, so that later starts on other numbers of ranks agree with it.

    Args:
        lanes: the number of lanes where a sampler leaves it out: the number of shards at the first start.
        limit: how many samples all shards read at most in an epoch; None for all.
        path: of a source of a mixture: the names of the parts that lead there; empty for the run itself.

    Example:
        >>> import samplerkit as sk
        >>> sk.DistributedSampler(8, 0, num_samples=100).run_constants()
        RunConstants(lanes=8, limit=800)
    """

    lanes: int = 1
    limit: int | None = None
    path: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Context:
    """Where and when a sampler draws.

    Args:
        epoch: the epoch, from 0.
        depth: the sampler's place in the chain; the one that reads the dataset has depth 0.
        lanes: the number of lanes where the sampler leaves it out.
        dataset: what was given to `Sampler.order`: a dataset, a layout or a number.
        child: the order of the child, whose positions this sampler draws; None at depth 0.
        path: of a source of a mixture: the names of the parts that lead there.
    """

    epoch: int
    depth: int = 0
    lanes: int = 1
    dataset: Any = None
    child: Order | None = None
    path: tuple[str, ...] = ()

    def key(self, seed: int, role: str) -> Key:
        """Gives the key for a role, at most 16 ASCII characters, of a sampler with this seed."""
        return Key(seed, self.epoch, self.depth, role)
