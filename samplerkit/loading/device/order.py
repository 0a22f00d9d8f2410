"""Orders on a device: the ids at positions as torch operations, for data that is in device memory.

torch has no arithmetic of unsigned words on every device. Signed words of 64 bits do: their sums and products
wrap around, so that the low bits of a result depend on the low bits of what goes in alone. So the low 32 or
64 bits of a signed word hold an unsigned one, whatever is above them, and a shift to the right that is
followed by a mask is one without a sign.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from samplerkit.errors import ArgumentTypeError, NotSupportedError, OutOfDatasetError
from samplerkit.loading.device.streams import checked_device, require_available
from samplerkit.order.algebra import Composed, Shard
from samplerkit.order.files import FileSequence
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order, slice_positions
from samplerkit.order.permutation import ROUNDS, TABLE_LIMIT
from samplerkit.order.sequences import LaneWeave, Permuted, Range, Table
from samplerkit.order.typing import Ids

Evaluate = Callable[[torch.Tensor], torch.Tensor]
"""From positions to ids, both int64 tensors of shape (m,) on one device."""

_COMPARED = 64
_AT_ONCE_ON_CPU, _AT_ONCE = 1 << 15, 1 << 20


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
        self._at_once: Final = _AT_ONCE_ON_CPU if device.type == "cpu" else _AT_ONCE

    def __len__(self) -> int:
        """The number of positions."""
        return len(self.order)

    def __getitem__(self, index: slice | torch.Tensor) -> torch.Tensor:
        """Returns the ids at positions.

        Args:
            index: a slice; or an int64 tensor on the device, of any shape, each position in [0, len).

        Returns:
            int64 tensor on the device, of the shape of the positions.

        Raises:
            ArgumentTypeError: it is neither.
            ArgumentValueError: the step of a slice is 0.
            OutOfDatasetError: a position is outside.
        """
        if isinstance(index, slice):
            return self._at(slice_positions(len(self), index))
        if not isinstance(index, torch.Tensor) or index.dtype != torch.int64:
            raise ArgumentTypeError("index", "must be a slice or an int64 tensor", index)
        if index.device.type != self.device.type:
            hint = "move the positions there, or give a slice"
            raise ArgumentTypeError("index", f"must be on {self.device}", str(index.device), hint=hint)
        if index.numel():
            low, high = (int(bound) for bound in torch.aminmax(index))
            if low < 0 or high >= len(self):
                outside = low if low < 0 else high
                raise OutOfDatasetError("position", f"must be in [0, {len(self)})", outside)
        return self._at(index.reshape(-1)).reshape(index.shape)

    def _at(self, positions: range | torch.Tensor) -> torch.Tensor:
        ids = torch.empty(len(positions), dtype=torch.int64, device=self.device)
        for begin in range(0, len(positions), self._at_once):
            part = positions[begin : begin + self._at_once]
            if isinstance(part, range):
                part = torch.arange(part.start, part.stop, part.step, dtype=torch.int64, device=self.device)
            ids[begin : begin + len(part)] = self._evaluate(part)
        return ids

    def __repr__(self) -> str:
        return f"DeviceOrder({self.order!r}, {str(self.device)!r})"


def order_on(order: Order, device: torch.device | str) -> DeviceOrder:
    """Puts an order on a device: the same ids as numpy gives, by torch operations there.

    GLOBAL, FALSE and FILES can be put there, with shards, limits and lanes, and what reads a table, such
    as a subset. PARTIAL, INFILE, draws with replacement and mixtures cannot: read `order[positions]` on the
    host.

    Some of the ids are compared with the host's once, so that a device that computes otherwise is an error
    here and never another order.

    Args:
        order: from `Sampler.order`, or a part of it.
        device: where ids are wanted: "cuda", "cpu" and others.

    Raises:
        ArgumentTypeError: no order, or no device.
        ArgumentValueError: the device is not available.
        NotSupportedError: a part of the order cannot be evaluated there, or the device gave other ids.

    Example:
        >>> import samplerkit as sk
        >>> order = sk.RandomSampler(seed=7).order(10**12)
        >>> on_device = order_on(order, "cpu")
        >>> bool((on_device[5:1000:3].numpy() == order[5:1000:3]).all())
        True
        >>> on_device[torch.tensor([[0, 999]])].shape
        torch.Size([1, 2])
    """
    if not isinstance(order, Order):
        raise ArgumentTypeError("order", "must be an Order", order, hint="Sampler.order gives one")
    checked = checked_device(device)
    require_available(checked)
    device_order = DeviceOrder(order, checked)
    step = max(1, len(order) // _COMPARED)
    if not np.array_equal(device_order[::step].cpu().numpy(), order[::step]):
        problem = "gives other ids than the host: its integers do not wrap around in 64 bits"
        raise NotSupportedError("device", problem, str(checked), hint="evaluate the order on the host")
    return device_order


def _evaluation(order: Order, device: torch.device) -> Evaluate:
    """Returns what evaluates an order, which its recipe says whole."""
    make = _MAKERS.get(type(order))
    if make is None:
        problem = f"holds {type(order).__name__}, which is not evaluated on a device"
        hint = "evaluate it on the host, or take GLOBAL or FILES"
        raise NotSupportedError("order", problem, order, hint=hint)
    recipe: Any = order.recipe
    return make(device, *recipe)


def _permutation(device: torch.device, *recipe: Any) -> Evaluate:
    order = Permuted(*recipe)
    if order.size <= TABLE_LIMIT:
        return _table(device, order[:])
    return NetworkOnDevice(order).permuted


class NetworkOnDevice:
    """The network of a keyed permutation of [0, n), by torch operations; see `order.permutation`.

    Args:
        order: the permutation, larger than a table.
    """

    def __init__(self, order: Permuted) -> None:
        # Words as the signed ones of the same bits.
        constants = order.constants.astype(np.uint64).view(np.int64).tolist()
        self._size, self._modulus, self._bits, *rounds = constants
        self._rounds: Final = [*zip(rounds[:ROUNDS], rounds[ROUNDS:], strict=True)]
        self._width: Final = 32 if order.is_narrow else 64

    def permuted(self, positions: torch.Tensor) -> torch.Tensor:
        """Permutes positions in [0, n), an int64 tensor of shape (m,).

        If some values are outside of [0, n) at first, their number is read from the device: one number, no
        id.
        """
        values = self._once(positions)
        if self._modulus << self._bits == self._size:
            return values
        outside = torch.nonzero(values >= self._size).reshape(-1)
        while outside.numel():
            again = self._once(values[outside])
            values[outside] = again
            outside = outside[again >= self._size]
        return values

    def _once(self, values: torch.Tensor) -> torch.Tensor:
        """Permutes the values of the domain, a * 2^b of them."""
        modulus, bits, width = self._modulus, self._bits, self._width
        left, right = values >> bits, values & ((1 << bits) - 1)
        for step, (factor, term) in enumerate(self._rounds):
            mixed = (right if step % 2 == 0 else left) * factor
            mixed += term
            if step % 2:
                right ^= shifted_(mixed, width - bits, width)
                continue
            mixed *= mixed
            shifted_(mixed, width // 2 - 1, width).mul_(modulus)
            left += shifted_(mixed, width // 2 + 1, width)
            # A difference below zero has all bits above the modulus set: with them, it is added again.
            left -= modulus
            torch.bitwise_right_shift(left, 63, out=mixed)
            left += mixed.bitwise_and_(modulus)
        joined: torch.Tensor = left.bitwise_left_shift_(bits).bitwise_or_(right)
        return joined


def shifted_(values: torch.Tensor, bits: int, width: int) -> torch.Tensor:
    """Shifts the low `width` bits of values to the right, without their sign and in place."""
    return values.bitwise_right_shift_(bits).bitwise_and_((1 << (width - bits)) - 1)


def _table(device: torch.device, ids: Ids) -> Evaluate:
    on_device = torch.tensor(ids, device=device)
    return lambda positions: on_device[positions]


def _shard(device: torch.device, order: Order, num_shards: int, first: int, _length: int) -> Evaluate:
    read, size = _evaluation(order, device), len(order)
    return lambda positions: read((positions * num_shards + first) % size)


def _composed(device: torch.device, parts: tuple[Order, ...]) -> Evaluate:
    """Reads the ids of each order at those of the one before it."""
    chain = [_evaluation(part, device) for part in parts]

    def evaluate(positions: torch.Tensor) -> torch.Tensor:
        for part in chain:
            positions = part(positions)
        return positions

    return evaluate


def _files(
    device: torch.device, layout: Layout, files: Ids, counts: Ids | None, stride: int, *_: bool
) -> Evaluate:
    """Returns the samples of files that come in another order."""
    counts = layout.sizes[files] if counts is None else counts
    ends = np.cumsum(counts)
    moves = torch.tensor(layout.starts[files] - (ends - counts) * stride, device=device)
    borders = torch.tensor(ends, device=device)
    return lambda positions: positions * stride + moves[torch.searchsorted(borders, positions, right=True)]


def _lanes(device: torch.device, num_rows: int, count: int) -> Evaluate:
    """Returns the rows of lanes that are woven."""
    starts = torch.tensor(LaneWeave(num_rows, count).starts, device=device)
    return lambda positions: positions // count + starts[positions % count]


_MAKERS: Mapping[type[Order], Callable[..., Evaluate]] = {
    Composed: _composed,
    FileSequence: _files,
    LaneWeave: _lanes,
    Permuted: _permutation,
    Range: lambda _device, start, _length: lambda positions: positions + start,
    Shard: _shard,
    Table: _table,
}
"""What evaluates an order of each class, from the device and the recipe."""
