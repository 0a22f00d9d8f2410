"""The loader of tensors that are on a device already: batches are made there, and the state is exact."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, Literal, final, get_args

import numpy as np
import torch

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError
from samplerkit.loading.background import ended_iteration
from samplerkit.loading.device.batch_tree import leaves, map_leaves
from samplerkit.loading.device.order import DeviceOrder, order_on
from samplerkit.loading.run.delivery import Reading, Tail
from samplerkit.loading.run.run import Run, checked_tail
from samplerkit.loading.run.run_cursor import RunCursor
from samplerkit.loading.stats import Received
from samplerkit.loading.steps import CountsSteps
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids, as_array
from samplerkit.samplers.base import Sampler

EvaluateOn = Literal["auto", "device", "host"]
"""Where the ids of batches are computed."""

_AT_ONCE = 1 << 18


@final
class TensorLoader(CountsSteps):
    """Hands out batches of tensors that are on a device, in the order of a sampler.

    Positions, ids and batches are computed on the device; only three numbers are copied to the host, a few
    times per epoch.

    The state is that of a `Loader` over as many samples, and each takes the other's: exactly the samples that
    were handed out, on any number of ranks and batch sizes.

    Iterating reads the rest of the current epoch, then moves on to the next one. After an early break, the
    next iteration begins the epoch again. A second iteration ends the first.

    Args:
        data: a tensor, or tensors in tuples, lists, mappings and dataclasses, all on one device and with as
            many rows: sample i is row i of each.
        sampler: the recipe; None for the rows in their own order.
        batch_size: samples a rank and step.
        tail: `pad`, `drop` or `ragged`, as in a `Loader`.
        world: which rank of how many this process is; None asks the running job at first use. Each rank holds
            all rows.
        evaluate_on: where ids are computed. `device`: on the device. `host`: by numpy, and the ids of each
            batch are copied. `auto`: on the device, but on the host for rows on the cpu, where numpy is
            faster, and for orders that `order_on` does not take; `evaluates_on` says which.
        agreement_seconds: how long the ranks of a job wait for one another when an iteration begins.

    Raises:
        ArgumentTypeError: `data` holds no tensor, or something else than tensors.
        ArgumentValueError: they differ in rows or device; or the tail or `evaluate_on` is not known.
        ArgumentRangeError: `batch_size` is not positive.
        NotSupportedError: when an iteration begins: `evaluate_on="device"` and an order that cannot be there.

    Example:
        >>> import samplerkit as sk
        >>> data = {"image": torch.rand(100, 3, 8, 8), "label": torch.arange(100)}
        >>> loader = sk.TensorLoader(data, sk.RandomSampler(seed=7), batch_size=32)
        >>> for batch in loader:
        ...     if loader.step == 2:
        ...         break
        >>> batch["image"].shape, loader.state_dict()["position"], loader.evaluates_on
        (torch.Size([32, 3, 8, 8]), 64, 'host')
        >>> batch["label"].tolist() == loader.order[32:64].tolist()
        True
    """

    def __init__(
        self,
        data: Any,
        sampler: Sampler | None = None,
        *,
        batch_size: int,
        tail: Tail = "pad",
        world: World | None = None,
        evaluate_on: EvaluateOn = "auto",
        agreement_seconds: float = 10.0,
    ) -> None:
        self.device, rows = _device_and_rows(data)
        self.data: Final = data
        self.batch_size: Final = arguments.positive("batch_size", batch_size)
        self.tail: Final = checked_tail(tail, batch_size, None)
        chosen = arguments.choice("evaluate_on", evaluate_on, get_args(EvaluateOn))
        is_host_better = chosen == "auto" and self.device.type in {"cpu", "meta"}  # meta holds no ids
        self._evaluate_on: Final = "host" if is_host_better else chosen
        run = Run.of(sampler, rows, world, batch_size=self.batch_size, tail=self.tail)
        self._received = Received()
        self._cursor = RunCursor(run, agreement_seconds, waits=True)

    @property
    def evaluates_on(self) -> Literal["device", "host"]:
        """Where the ids of the current epoch are computed."""
        return "host" if self._on_device(self.order) is None else "device"

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the batches handed out: JSON values, under 4 KB, on every rank the same."""
        return self._cursor.state()

    def load_state_dict(self, state: Mapping[str, Any], allow: Collection[str] = ()) -> None:
        """Makes the next iteration begin at the place of a saved state, of this class or of a `Loader`.

        Args:
            state: from `state_dict`.
            allow: names of fields that may differ, as for `Loader.load_state_dict`.

        Raises:
            StateError: it is damaged, of a newer schema, or of another run; or an iteration is under way.
        """
        self._cursor.restore(state, allow)

    def __iter__(self) -> Iterator[Any]:
        iteration = self._cursor.begin()
        is_at_its_end = False
        try:
            reading = self._reading
            self._cursor.require_agreement(iteration)
            for step, ids in enumerate(self._ids(reading)):
                batch = map_leaves(methodcaller("index_select", 0, ids), self.data)
                iteration.taken = step + 1
                yield batch
                del batch
                if not iteration.is_open:
                    raise ended_iteration()
            is_at_its_end = True
        finally:
            self._cursor.end(iteration, at_its_end=is_at_its_end)

    def _ids(self, reading: Reading) -> Iterator[torch.Tensor]:
        """Yields the ids of each step, on the device; more steps at once as one goes."""
        order = reading.units.order
        ids_at = self._on_device(order)
        if ids_at is None:
            for _, ids in reading.batches():
                yield torch.from_numpy(ids).to(self.device)
            return
        steps, at_once = range(reading.steps), 1
        while steps:
            dealt = reading.delivery.dealt_in(reading.shard, steps[:at_once])
            positions = self._positions(dealt)
            # Pads repeat the samples from the first one on.
            yield from torch.split(ids_at[positions % len(order)], [len(part) for part in dealt])
            steps, at_once = steps[at_once:], min(2 * at_once, max(1, _AT_ONCE // self.batch_size))

    def _positions(self, dealt: Sequence[range | Ids]) -> torch.Tensor:
        """Puts the positions of some steps on the device, or has it count them."""
        begin, end = dealt[0], dealt[-1]
        if isinstance(begin, range) and isinstance(end, range):
            # Each step begins where the one before it ends.
            return torch.arange(begin.start, end.stop, begin.step, device=self.device)
        return torch.from_numpy(np.concatenate([as_array(part) for part in dealt])).to(self.device)

    def _on_device(self, order: Order) -> DeviceOrder | None:
        """Returns an order on the device; None where it is evaluated on the host."""
        if self._evaluate_on == "host":
            return None
        try:
            return order_on(order, self.device)
        except NotSupportedError:
            if self._evaluate_on == "device":
                raise
            return None


def _device_and_rows(data: Any) -> tuple[torch.device, int]:
    """Returns the device of tensors, and how many rows each of them has."""
    pairs = set()
    for tensor in leaves(data):
        if not isinstance(tensor, torch.Tensor) or not tensor.ndim:
            raise ArgumentTypeError("data", "must hold tensors with rows", tensor)
        pairs.add((tensor.device, len(tensor)))
    if not pairs:
        raise ArgumentTypeError("data", "holds no tensor", data)
    if len(pairs) > 1:
        shown = sorted(f"{rows} rows on {device}" for device, rows in pairs)
        raise ArgumentValueError("data", "must be on one device, and have as many rows each", shown)
    return pairs.pop()
