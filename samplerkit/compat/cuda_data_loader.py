"""`CudaDataLoader`: a drop-in for the class of this name in other projects, with the same signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from samplerkit.loading.device.batch_tree import map_leaves
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.streams import streams_for
from samplerkit.storage.threads import weak_method


class CudaDataLoader(DeviceLoader):
    """Loads batches to a device in the background, epoch after epoch.

    It is its own iterator. An epoch ends with `StopIteration`, and the next one is already being loaded then;
    a sampler with `set_epoch` receives its number. After an early break, the next `for` begins the epoch
    again. A subclass may override `load_instance`. Everything else, such as the state, is inherited from
    `DeviceLoader`.

    Differences from the original class: the loop waits for the copy before it uses a batch, errors of the
    loader are raised in the loop, nested batches keep their container classes and may hold `None` and
    numbers, and no thread is left running. It works on any device.

    Args:
        loader: a `DataLoader` or any iterable of batches.
        device: the device of the returned batches.
        queue_size: how many batches are prefetched.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `queue_size` is not positive.
        ArgumentValueError: the device does not exist.

    Example:
        >>> loader = CudaDataLoader(torch.utils.data.DataLoader(torch.arange(4), batch_size=2), "cpu")
        >>> for epoch in range(2):
        ...     for batch in loader:
        ...         print(epoch, batch)
        0 tensor([0, 1])
        0 tensor([2, 3])
        1 tensor([0, 1])
        1 tensor([2, 3])
        >>> loader.close()
    """

    def __init__(self, loader: Iterable[Any], device: torch.device | str, queue_size: int = 2) -> None:
        overrides = type(self).load_instance is not CudaDataLoader.load_instance
        # The thread holds a weak reference: otherwise a dropped loader would live as long as its thread.
        load = weak_method(self.load_instance) if overrides else None
        super().__init__(loader, device, depth=queue_size, run_ahead=True, load=load)
        self._batches: Iterator[Any] | None = None

    @property
    def queue_size(self) -> int:
        """How many batches are prefetched."""
        return self.depth

    def load_instance(self, sample: Any) -> Any:
        """Moves a batch to the device; a subclass may override this to change the batches of the loop.

        Called once per batch by the loading thread, on another stream than the loop's.

        Args:
            sample: the batch, in pinned memory if that speeds up the copy to the device.
        """
        return map_leaves(streams_for(self.device).copy, sample)

    def __iter__(self) -> CudaDataLoader:
        self._batches = super().__iter__()
        return self

    def __next__(self) -> Any:
        """Returns the next batch; after the end of an epoch, the first one of the next epoch.

        Raises:
            StopIteration: the epoch is over.
        """
        if self._batches is None:
            self._batches = super().__iter__()
        try:
            return next(self._batches)
        except BaseException:
            self._batches = None
            raise

    def next(self) -> Any:
        """Returns the next batch, same as `next(loader)`."""
        return next(self)

    def reset(self) -> None:
        """Begins the current epoch again at the next batch."""
        super().close()
        self._batches = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration resume at a saved state."""
        self.reset()
        super().load_state_dict(state)

    def close(self) -> None:
        """Ends the thread. The loader can be used again."""
        self.reset()
