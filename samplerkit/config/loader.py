"""The options of the torch DataLoader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from samplerkit.config.constructor import Constructor
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.samplers import arguments


@final
@dataclass(frozen=True)
class LoaderOptions:
    """How batches are made and handed over; the names are those of torch's DataLoader.

    Args:
        batch_size: samples in a batch.
        num_workers: worker processes; 0 reads in the training process.
        drop_last: whether a last, smaller batch is left out.
        pin_memory: whether batches are copied into pinned memory.
        prefetch_factor: batches that each worker reads ahead; None leaves it to torch.
        persistent_workers: whether workers live on from epoch to epoch.
        timeout: seconds to wait for a worker's batch; 0 waits for ever.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` or `prefetch_factor` is not positive, or `num_workers` or `timeout`
            is negative.
        ArgumentValueError: an option that needs workers is given without any.

    Example:
        >>> LoaderOptions(batch_size=256, num_workers=4).prefetch_factor is None
        True
    """

    batch_size: int = 1
    num_workers: int = 0
    drop_last: bool = False
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    timeout: float = 0.0

    def __post_init__(self) -> None:
        arguments.positive("batch_size", self.batch_size)
        if arguments.integer("num_workers", self.num_workers) < 0:
            raise ArgumentRangeError("num_workers", "must not be negative", self.num_workers)
        for name in ("drop_last", "pin_memory", "persistent_workers"):
            arguments.boolean(name, getattr(self, name))
        if self.prefetch_factor is not None:
            arguments.positive("prefetch_factor", self.prefetch_factor)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float):
            raise ArgumentTypeError("timeout", "must be a number of seconds", self.timeout)
        if not (math.isfinite(self.timeout) and self.timeout >= 0):
            raise ArgumentRangeError("timeout", "must be finite and not negative", self.timeout)
        self._check_workers()

    def _check_workers(self) -> None:
        """Torch refuses these too, some of them only at the first batch."""
        if self.num_workers:
            return
        for name in ("prefetch_factor", "persistent_workers", "timeout"):
            value = getattr(self, name)
            if value:
                raise ArgumentValueError(
                    name, "needs workers", value, mend="set num_workers, or leave it out"
                )


LOADER = Constructor.of("loader", LoaderOptions)
"""How a config writes them."""
