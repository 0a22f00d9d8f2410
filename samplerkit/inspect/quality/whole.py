"""Which chains read all samples once each: only of these does a shuffle mode alone say what is read."""

from __future__ import annotations

from samplerkit.samplers.base import Sampler
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler


def chooses(sampler: Sampler) -> Sampler | None:
    """Finds the sampler of a chain that leaves samples out, or repeats some; None where each comes once.

    Args:
        sampler: the chain. What deals pads to ranks is no choice.

    Example:
        >>> import samplerkit as sk
        >>> chain = sk.DistributedSampler(shuffle=False)
        >>> chain.add_child(sk.SubsetSampler([4, 2]))
        >>> chooses(chain), chooses(sk.RandomSampler())
        (SubsetSampler(indices=[4, 2], num_samples=None), None)
    """
    deals = 0
    for link in sampler._links():
        is_whole = not link.num_samples and (
            (isinstance(link, SequentialSampler) and not link.start_index)
            or (isinstance(link, RandomSampler) and not link.replacement)
            or isinstance(link, DistributedSampler)
        )
        deals += link.deal is not None
        if not is_whole or deals > 1:
            return link
    return None
