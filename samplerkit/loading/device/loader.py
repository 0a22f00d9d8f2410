"""The device loader: any loader, with its batches on the device before the loop asks for them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from samplerkit.closing import Closing
from samplerkit.errors import ArgumentTypeError
from samplerkit.loading.device.stage import DeviceStage, EpochEnd, Load
from samplerkit.loading.device.streams import (
    PinMemory,
    checked_device,
    current_device,
    pin_policy,
    require_available,
)
from samplerkit.loading.device.wrapped_loader import WrappedLoader
from samplerkit.loading.stats import DeviceStats, StageCounts
from samplerkit.loading.steps import with_bar
from samplerkit.order import arguments

MAX_AHEAD = 2**16


class DeviceLoader(Closing):
    """Hands out the batches of a loader on a device, and prefetches the next ones while the loop trains.

    A thread loads, pins and copies on a side stream, so that a step takes the longer of loading and training,
    not their sum. Batches may be any nesting of tensors and objects with `to`; see `map_leaves`.

    The state counts batches that the loop received. It is that of samplerkit's `Loader`, or of torchdata's
    `StatefulDataLoader` after the latest batch. For any other loader, it is the epoch and the number of
    batches, which are read and skipped after a restore.

    A second iteration ends the first. After an early break, the next iteration begins the epoch again. The
    attributes of the loader can be read here too, and its methods called, such as `edit` of a `Loader`.

    Args:
        loader: a samplerkit `Loader`, a `StatefulDataLoader`, a `DataLoader`, or any iterable of batches.
        device: the device of the batches; None for the accelerator of this process, or the cpu if there is
            none.
        depth: how many batches are prefetched; at most depth + 2 are on the device at a time.
        pin_memory: whether tensors are pinned before they are copied; "auto" if the device benefits from it.
        run_ahead: whether loading continues into the next epoch before the loop asks for it. The sampler's
            epoch is set then. `set_epoch` with another one drops what was loaded.
        load: a function from a batch on the host, which may be pinned, to the batch that the loop receives;
            it replaces the copy of its tensors. The thread calls it once a batch, on the side stream, so that
            augmentation on the device does not delay the loop. It must not hold this object.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `depth` is not positive.
        ArgumentValueError: the device is not available, or `pin_memory` is True without an accelerator.

    Example:
        >>> import torch
        >>> batches = torch.utils.data.DataLoader(torch.arange(6), batch_size=2)
        >>> with DeviceLoader(batches, "cpu") as loader:
        ...     for batch in loader:
        ...         if 3 in batch:
        ...             state = loader.state_dict()
        >>> state
        {'schema': 1, 'epoch': 0, 'step': 2, 'ended': None}
        >>> resumed = DeviceLoader(batches, "cpu")
        >>> resumed.load_state_dict(state)
        >>> list(resumed)
        [tensor([4, 5])]
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        depth: int = 2,
        pin_memory: PinMemory = "auto",
        run_ahead: bool = False,
        load: Load | None = None,
    ) -> None:
        if not isinstance(loader, Iterable):
            raise ArgumentTypeError("loader", "must be an iterable of batches", loader)
        if isinstance(loader, DeviceLoader):
            raise ArgumentTypeError("loader", "is a device loader already", loader)
        pins = pin_policy(pin_memory)
        self.loader: Final[Any] = loader
        self.device: Final = current_device() if device is None else checked_device(device)
        require_available(self.device)
        self.depth: Final = arguments.positive("depth", depth, MAX_AHEAD)
        self.run_ahead: Final = arguments.boolean("run_ahead", run_ahead)
        if load is not None:
            arguments.function("load", load, "a batch")
        # samplerkit's own loader puts a stage behind its source itself, and counts what leaves it.
        has_stages = callable(getattr(loader, "iterate_on", None))
        self._staged: Any = loader if has_stages else WrappedLoader(loader)
        self._counts: Final = StageCounts()
        # It knows nothing of this object: a loader that keeps it does not keep this one alive.
        self._make_stage = partial(
            DeviceStage,
            device=self.device,
            depth=self.depth,
            pins=pins,
            counts=self._counts,
            load=load and partial(_with_loaded, load),
        )

    @property
    def stats(self) -> DeviceStats:
        """Figures of the current epoch, or of the last one: waits of the loop, loading, copies."""
        return self._counts.stats

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._counts.stats = DeviceStats()
        batches: Iterator[Any] = self._staged.iterate_on(self._make_stage, run_ahead=self.run_ahead)
        return batches

    def progress(self) -> Iterator[Any]:
        """Iterates like `iter(loader)`, with a progress bar on the terminal of the first rank."""
        return with_bar(self)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads: that of the loader, or else of its sampler.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        self._staged.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the batches handed out, without prefetched ones."""
        state: dict[str, Any] = self._staged.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a saved state.

        Raises:
            StateError: the state cannot be read or does not fit, or an iteration is under way.
        """
        self._staged.load_state_dict(state)

    def close(self) -> None:
        """Ends the thread and the iteration under way. The loader can be used again."""
        self._staged.close()


def _with_loaded(load: Load, item: Any) -> Any:
    """Returns what a stage hands out, with what a function makes of its batch."""
    return item if isinstance(item, EpochEnd) else replace(item, batch=load(item.batch))
