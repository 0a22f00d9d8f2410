"""Blocks of tokens in any order, cut into windows: an order that survives a change of the window's length."""

from __future__ import annotations

from typing import Final, final

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, CompositionError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.cut import cut
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context, RunConstants
from samplerkit.samplers.ledger import Ledger
from samplerkit.samplers.pieces import block_layout, required_pieces


@final
class BlockSampler(Sampler):
    """Reads windows of tokens in an order that does not hang on how long a window is.

    What is ordered are blocks of K tokens, by the child or, without one, by a global permutation. Each is cut
    into K / S windows of S tokens, and windows are shuffled within pools of `pool` consecutive blocks of that
    order. So the first R tokens that are read are the same for every S that divides K, wherever R is a
    multiple of `pool` K tokens, or the end of the epoch: there a run may go on with another `seq_len`.

    The child sees blocks as samples, in the files and parts of the dataset: a `MixtureSampler` over a tree
    reads one block at a position, so that its dice never see S, and a `Ledger` counts blocks.

    Args:
        pool: blocks within which windows are shuffled.
        seed: of the permutation and of the pools, in [0, 2^64).
        windows_per_block: K / S; None for what the dataset says, as a `TokenDataset` does.

    Raises:
        ArgumentTypeError: an argument is no integer.
        ArgumentRangeError: `pool` or `windows_per_block` is not positive.
        ArgumentValueError: `seed` is negative.
        DatasetError: when the order is asked for: the dataset says nothing of blocks, or has files that are
            not whole blocks.
        CompositionError: when the order is asked for: a distributed sampler stands below.
        ArgumentValueError: when the order is asked for: an edit of a ledger below lies within a pool, or says
            how many samples a step has.

    Example:
        >>> import samplerkit as sk
        >>> files = {8: sk.Layout([64, 32]), 4: sk.Layout([32, 16])}  # windows of one length, and of twice it
        >>> orders = {m: BlockSampler(2, seed=7, windows_per_block=m).order(files[m]) for m in files}
        >>> [sorted({*(orders[m][: 2 * m] // m).tolist()}) for m in files]
        [[7, 9], [7, 9]]
    """

    reads_below = True
    _counts_alone = True

    def __init__(self, pool: int = 64, *, seed: int = 0, windows_per_block: int | None = None) -> None:
        super().__init__()
        self.pool: Final = arguments.positive("pool", pool)
        self.seed: Final = arguments.seed(seed)
        self.windows_per_block: Final = (
            None if windows_per_block is None else arguments.positive("windows_per_block", windows_per_block)
        )

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the windows of a dataset, by the dataset's layout: the child reads its blocks."""
        dataset = layout if context.dataset is None else context.dataset
        pieces = required_pieces(dataset, self.windows_per_block)
        blocks = self._blocks(block_layout(dataset, pieces), context)
        self._require_between_pools(len(blocks))
        if len(blocks) * pieces > LARGEST:
            mend = "say a smaller num_samples of the child"
            raise ArgumentRangeError("windows", "must be at most 2^62", len(blocks) * pieces, mend=mend)
        return cut(blocks, pieces, self.pool, context.key(self.seed, "blocks-pool"))

    def _blocks(self, layout: Layout, context: Context) -> Order:
        child = self.get_child()
        if child is None:
            return Permuted(len(layout), context.key(self.seed, "blocks"))
        if child.is_distributed:
            raise CompositionError(
                "BlockSampler",
                "reads what all ranks read together, and a distributed sampler stands below it",
                child,
                mend="put the distributed sampler above it, or leave it out: a loader deals by itself",
            )
        constants = RunConstants(context.lanes, path=context.path)
        return child.undealt_order(layout, context.epoch, constants=constants)

    def _require_between_pools(self, num_blocks: int) -> None:
        """Refuses edits that would change a pool of which some was read."""
        child = self.get_child()
        for edit in child.edits if isinstance(child, Ledger) else ():
            epoch, block = divmod(edit.at, max(1, num_blocks))
            if block % self.pool:
                following = epoch * num_blocks + min(num_blocks, (block // self.pool + 1) * self.pool)
                problem = f"lies within a pool of {self.pool} blocks"
                raise ArgumentValueError(f"edit at {edit.at}", problem, edit, mend=f"say at={following}")
            if edit.global_batch is not None:
                problem = "says how many samples a step has, below a BlockSampler, where it counts blocks"
                raise ArgumentValueError(f"edit at {edit.at}", problem, edit)
