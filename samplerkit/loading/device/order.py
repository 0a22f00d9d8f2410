"""Orders on a device: the ids at positions as torch operations, for data that lies in device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np
import torch

from samplerkit.errors import ArgumentTypeError, NotSupportedError, OutOfDatasetError
from samplerkit.loading.device.arithmetic import permutation_on
from samplerkit.loading.device.stage import checked_device
from samplerkit.loading.device.streams import require_available
from samplerkit.order.algebra import Composed, Prefix, Shard
from samplerkit.order.files import FileSequence, Lanes, LaneWeave
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order, part_of
from samplerkit.order.sequences import Permuted, Range, Table
from samplerkit.order.typing import Ids

Evaluate = Callable[[torch.Tensor], torch.Tensor]
"""From positions to ids, both int64 tensors of shape (m,) on one device."""

_COMPARED = 64
_AT_ONCE = {"cpu": 1 << 15}
_AT_ONCE_ELSEWHERE = 1 << 20


@final
class DeviceOrder:
    """An order that is evaluated on a device: no id comes from the host.

    Made by `order_on`. Indexing takes a slice, or an int64 tensor of positions on the device.

    Args:
        order: the order.
        device: where it is evaluated.

    Attributes:
        order: the same ids, on the host.
        device: as given.
    """

    def __init__(self, order: Order, device: torch.device) -> None:
        self.order: Final = order
        self.device: Final = device
        self._evaluate: Final = _evaluation(order, device)
        self._at_once: Final = _AT_ONCE.get(device.type, _AT_ONCE_ELSEWHERE)

    def __len__(self) -> int:
        """The number of positions."""
        return len(self.order)

    def __getitem__(self, index: slice | torch.Tensor) -> torch.Tensor:
        """Gives the ids at positions.

        Args:
            index: a slice; or an int64 tensor on the device, of any shape, each position in [0, len).

        Returns:
            int64 tensor on the device, of the shape of the positions.

        Raises:
            ArgumentTypeError: it is neither.
            ArgumentValueError: the step of a slice is 0.
            OutOfDatasetError: a position lies outside.
        """
        if isinstance(index, slice):
            return self._of_range(part_of(len(self), index))
        if not isinstance(index, torch.Tensor) or index.dtype != torch.int64:
            raise ArgumentTypeError("index", "must be a slice or an int64 tensor", index)
        if index.device.type != self.device.type:
            mend = "move the positions there, or give a slice"
            raise ArgumentTypeError("index", f"must be on {self.device}", str(index.device), mend=mend)
        if index.numel():
            low, high = (int(bound) for bound in torch.aminmax(index))
            if low < 0 or high >= len(self):
                outside = low if low < 0 else high
                raise OutOfDatasetError("position", f"must be in [0, {len(self)})", outside)
        flat = index.reshape(-1)
        parts = [self._evaluate(part) for part in torch.split(flat, self._at_once)]
        return torch.cat(parts).reshape(index.shape)

    def _of_range(self, positions: range) -> torch.Tensor:
        ids = torch.empty(len(positions), dtype=torch.int64, device=self.device)
        for begin in range(0, len(positions), self._at_once):
            part = positions[begin : begin + self._at_once]
            numbers = torch.arange(part.start, part.stop, part.step, dtype=torch.int64, device=self.device)
            ids[begin : begin + len(part)] = self._evaluate(numbers)
        return ids

    def __repr__(self) -> str:
        return f"DeviceOrder({self.order!r}, {str(self.device)!r})"


def order_on(order: Order, device: torch.device | str) -> DeviceOrder:
    """Puts an order on a device: the same ids as numpy gives, by torch operations there.

    GLOBAL, FALSE and FILES can be put there, with shards, limits and lanes, and what reads a table, such
    as a subset. PARTIAL, INFILE, draws with replacement and mixtures cannot: there, `order[positions]` on the
    host is the way.

    Some of the ids are compared with the host's once, so that a device that computes otherwise is an error
    here and never another order.

    Args:
        order: from `Sampler.order`, or a part of it.
        device: where ids are wanted: "cuda", "cpu" and others.

    Raises:
        ArgumentTypeError: no order, or no device.
        ArgumentValueError: the device is not there.
        NotSupportedError: a part of the order cannot be evaluated there, or the device gave other ids or
            holds none.

    Example:
        >>> import samplerkit as sk
        >>> order = sk.RandomSampler(seed=7).order(10**12)
        >>> there = order_on(order, "cpu")
        >>> bool((there[5:1000:3].numpy() == order[5:1000:3]).all())
        True
        >>> there[torch.tensor([[0, 999]])].shape
        torch.Size([1, 2])
    """
    if not isinstance(order, Order):
        raise ArgumentTypeError("order", "must be an Order", order, mend="Sampler.order gives one")
    checked = checked_device(device)
    require_available(checked)
    if checked.type == "meta":
        raise NotSupportedError("device", "holds no numbers", str(checked), mend="evaluate it elsewhere")
    there = DeviceOrder(order, checked)
    step = max(1, len(order) // _COMPARED)
    if not np.array_equal(there[::step].cpu().numpy(), order[::step]):
        problem = "gives other ids than the host: its integers do not wrap around in 64 bits"
        raise NotSupportedError("device", problem, str(checked), mend="evaluate the order on the host")
    return there


def _evaluation(order: Order, device: torch.device) -> Evaluate:
    """Gives what evaluates an order, which its recipe says whole."""
    make = _MAKERS.get(type(order))
    if make is None:
        problem = f"holds {type(order).__name__}, which is not evaluated on a device"
        mend = "evaluate it on the host, or take GLOBAL or FILES"
        raise NotSupportedError("order", problem, order, mend=mend)
    recipe: Any = order.recipe
    return make(device, *recipe)


def _permuted(device: torch.device, size: int, key: Key) -> Evaluate:
    return permutation_on(size, key, device)


def _range(_device: torch.device, start: int, _length: int) -> Evaluate:
    return lambda positions: positions + start


def _table(device: torch.device, ids: Ids) -> Evaluate:
    there = torch.tensor(ids, device=device)
    return lambda positions: there[positions]


def _prefix(device: torch.device, order: Order, _length: int) -> Evaluate:
    return _evaluation(order, device)


def _shard(device: torch.device, order: Order, num_shards: int, first: int, _length: int) -> Evaluate:
    read, size = _evaluation(order, device), len(order)
    return lambda positions: read((positions * num_shards + first) % size)


def _composed(device: torch.device, *parts: Order) -> Evaluate:
    """Reads the ids of each order at those of the one before it."""
    chain = [_evaluation(part, device) for part in parts]

    def evaluate(positions: torch.Tensor) -> torch.Tensor:
        for part in chain:
            positions = part(positions)
        return positions

    return evaluate


def _files(device: torch.device, layout: Layout, files: Ids) -> Evaluate:
    """Gives the samples of files that come in another order."""
    ends = np.cumsum(layout.sizes[files])
    moves = torch.tensor(layout.starts[files] - ends + layout.sizes[files], device=device)
    borders = torch.tensor(ends, device=device)
    return lambda positions: positions + moves[torch.searchsorted(borders, positions, right=True)]


def _lanes(device: torch.device, lanes: Lanes) -> Evaluate:
    """Gives the rows of lanes that are woven."""
    starts = torch.tensor(lanes.starts, device=device)
    return lambda positions: positions // lanes.count + starts[positions % lanes.count]


_MAKERS: Mapping[type[Order], Callable[..., Evaluate]] = {
    Composed: _composed,
    FileSequence: _files,
    LaneWeave: _lanes,
    Permuted: _permuted,
    Prefix: _prefix,
    Range: _range,
    Shard: _shard,
    Table: _table,
}
"""What evaluates an order of each class, from the device and the recipe."""
