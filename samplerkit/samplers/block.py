"""Blocks of tokens in any order, cut into windows: an order that survives a change of the window's length."""

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.algebra import compose
from samplerkit.order.files import BlockShuffle, CutBlocks
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context, RunConstants
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.samplers.mixing.sources import require_undealt

_HINT = "give a TokenDataset, or use windows_per_block= for another one whose files are whole blocks"


def shared_value(dataset: Any, name: str) -> Any:
    """Returns an attribute of a dataset, such as `windows_per_block`, or the value that all its parts share.

    Returns:
        None if it has none, or its parts have different values.
    """
    values = {*_values(dataset, name).values()}
    return values.pop() if len(values) == 1 else None


def block_layout(dataset: Any, pieces: int) -> Layout:
    """Returns the layout of the blocks of a dataset, with the files and parts of its windows.

    Args:
        dataset: a dataset, a layout, or a number of windows.
        pieces: windows in a block.

    Raises:
        DatasetError: a file is not cut into whole blocks.
    """
    windows = Layout.of(dataset)
    reported = getattr(dataset, "block_layout", None)
    blocks = reported if isinstance(reported, Layout) else _divided(windows, pieces)
    if not np.array_equal(blocks.sizes * pieces, windows.sizes):
        problem = f"has windows that do not make whole blocks of {pieces}"
        raise DatasetError("dataset", problem, windows, hint=_HINT)
    return blocks


def required_pieces(dataset: Any, given: int | None) -> int:
    """Returns the number of windows in a block, from the argument or from the dataset.

    Raises:
        DatasetError: neither has it, or they contradict one another, or parts of a tree do.
    """
    reported, shared = _values(dataset, "windows_per_block"), shared_value(dataset, "windows_per_block")
    if len({*reported.values()}) > 1:
        problem = "have different numbers of windows in a block"
        raise DatasetError("parts", problem, reported, hint="give all parts one seq_len and one block_len")
    if given is None and shared is None:
        raise DatasetError("dataset", "has no number of windows per block", dataset, hint=_HINT)
    if None not in (given, shared) and given != shared:
        problem = f"contradict the dataset, which has {shared} in a block"
        raise DatasetError("windows_per_block", problem, given, hint="leave them out")
    return int(given or shared or 1)


def _divided(windows: Layout, pieces: int) -> Layout:
    if windows.parts:
        return Layout.tree({name: _divided(part, pieces) for name, part in windows.parts.items()})
    sizes = windows.sizes // pieces
    return Layout(sizes, windows.names) if windows.has_files else Layout(int(sizes[0]))


def _values(dataset: Any, name: str, path: str = "") -> dict[str, Any]:
    """Returns an attribute of the datasets at the ends of a tree, unless the tree itself knows its blocks."""
    parts = getattr(dataset, "parts", None)
    if not isinstance(parts, Mapping) or not parts or hasattr(dataset, "windows_per_block"):
        return {path: getattr(dataset, name, None)}
    nested = (_values(part, name, f"{path}/{key}" if path else key) for key, part in parts.items())
    return {place: value for values in nested for place, value in values.items()}


@final
class BlockSampler(Sampler):
    """Reads windows of tokens in an order that does not depend on their length.

    Blocks of K tokens are ordered by the child or, without one, by a global permutation. Each is cut into K /
    S windows of S tokens, and windows are shuffled within pools of `pool` consecutive blocks of that order.
    So the first R tokens that are read are the same for every S that divides K, wherever R is a multiple of
    `pool` K tokens, or the end of the epoch: there a run may continue with another `seq_len`.

    The child sees blocks as samples, in the files and parts of the dataset: a `MixtureSampler` over a tree
    reads one block at a position, so that its draws do not depend on S, and a `Ledger` counts blocks.

    Args:
        pool: blocks within which windows are shuffled.
        seed: of the permutation and of the pools, in [0, 2^64).
        windows_per_block: K / S; None for what the dataset says, as a `TokenDataset` does.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: `pool` or `windows_per_block` is not positive.
        ArgumentValueError: `seed` is negative.
        DatasetError: when the order is made: the dataset says nothing of blocks, or has files that are
            not whole blocks.
        CompositionError: when the order is made: a distributed sampler is below.
        ArgumentValueError: when the order is made: an edit of a ledger below is within a pool, or has a
            `global_batch`.

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
        self.seed: Final = arguments.seed("seed", seed)
        self.windows_per_block: Final = arguments.limit("windows_per_block", windows_per_block)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the windows of a dataset, from the dataset's layout: the child reads its blocks."""
        dataset = layout if context.dataset is None else context.dataset
        pieces = required_pieces(dataset, self.windows_per_block)
        blocks = self._blocks(block_layout(dataset, pieces), context)
        self._require_between_pools(len(blocks))
        if len(blocks) * pieces > arguments.LARGEST:
            hint = "use a smaller num_samples of the child"
            raise ArgumentRangeError("windows", "must be at most 2^62", len(blocks) * pieces, hint=hint)
        windows, key = CutBlocks(blocks, pieces), context.key(self.seed, "blocks-pool")
        return compose(BlockShuffle(np.array([0, len(windows)]), self.pool * pieces, key), windows)

    def _blocks(self, layout: Layout, context: Context) -> Order:
        child = self.get_child()
        if child is None:
            return Permuted(len(layout), context.key(self.seed, "blocks"))
        require_undealt("BlockSampler", child, "it")
        constants = RunConstants(context.lanes, path=context.path)
        return child.undealt_order(layout, context.epoch, constants=constants)

    def _require_between_pools(self, num_blocks: int) -> None:
        """Refuses edits that would change a pool that was partly read."""
        child = self.get_child()
        for edit in child.edits if isinstance(child, Ledger) else ():
            epoch, block = divmod(edit.at, max(1, num_blocks))
            if block % self.pool:
                following = epoch * num_blocks + min(num_blocks, (block // self.pool + 1) * self.pool)
                problem = f"is within a pool of {self.pool} blocks"
                raise ArgumentValueError(f"edit at {edit.at}", problem, edit, hint=f"use at={following}")
            if edit.global_batch is not None:
                problem = "sets the samples of a step, but below a BlockSampler edits count blocks"
                raise ArgumentValueError(f"edit at {edit.at}", problem, edit)


def block_sampler_of(sampler: Sampler) -> BlockSampler | None:
    """Finds the sampler of blocks of a run: the outermost sampler, or the one below a distributed one.

    Example:
        >>> import samplerkit as sk
        >>> root = sk.DistributedSampler(2, 0, shuffle=False)
        >>> root.add_child(sk.BlockSampler())
        >>> block_sampler_of(root), block_sampler_of(sk.RandomSampler())
        (BlockSampler(), None)
    """
    for link in sampler._links():
        if isinstance(link, BlockSampler):
            return link
        if link.deal is None or link.get_shuffle_mode() is not Shuffle.FALSE:
            break
    return None


def ledger_below(sampler: Sampler) -> Ledger | None:
    """Finds the ledger whose positions are the blocks of a run; None where there is none."""
    blocks = block_sampler_of(sampler)
    child = None if blocks is None else blocks.get_child()
    return child if isinstance(child, Ledger) else None
