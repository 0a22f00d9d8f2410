"""The options of a loader."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, final, get_args

from samplerkit.config.constructor import Constructor
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.loading.delivery import Tail
from samplerkit.loading.device.stage import checked_device
from samplerkit.loading.loader import AfterBreak
from samplerkit.loading.request import BadSamples
from samplerkit.order import arguments


@final
@dataclass(frozen=True)
class LoaderOptions:
    """How batches are made and handed over; names are those of torch's DataLoader, then those of `Loader`.

    Args:
        batch_size: samples in a batch.
        num_workers: worker processes; 0 reads in the training process.
        drop_last: whether a last, smaller batch is left out.
        pin_memory: whether batches are copied into pinned memory.
        prefetch_factor: batches that each worker reads ahead; None leaves it to torch.
        persistent_workers: whether workers live on from epoch to epoch.
        timeout: seconds to wait for a worker's batch; 0 waits for ever.
        tail: `pad`, `drop` or `ragged`; this and what follows is for `Loader` alone.
        after_break: `restart` or `continue`.
        bad_samples: `raise` or `skip`.
        run_ahead: whether the next epoch is begun early.
        seed_draws: whether random generators are seeded before each sample, for its draw.
        device: on which batches are handed out, such as `cuda`; None leaves them on the host.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` or `prefetch_factor` is not positive, or `num_workers` or `timeout`
            is negative.
        ArgumentValueError: an option that needs workers is given without any, or a choice is not known.

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
    tail: Tail = "pad"
    after_break: AfterBreak = "restart"
    bad_samples: BadSamples = "raise"
    run_ahead: bool = False
    seed_draws: bool = False
    device: str | None = None

    def __post_init__(self) -> None:
        arguments.positive("batch_size", self.batch_size)
        if arguments.integer("num_workers", self.num_workers) < 0:
            raise ArgumentRangeError("num_workers", "must not be negative", self.num_workers)
        for name in ("drop_last", "pin_memory", "persistent_workers", "run_ahead", "seed_draws"):
            arguments.boolean(name, getattr(self, name))
        if self.prefetch_factor is not None:
            arguments.positive("prefetch_factor", self.prefetch_factor)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float):
            raise ArgumentTypeError("timeout", "must be a number of seconds", self.timeout)
        if not (math.isfinite(self.timeout) and self.timeout >= 0):
            raise ArgumentRangeError("timeout", "must be finite and not negative", self.timeout)
        for name, choices in (("tail", Tail), ("after_break", AfterBreak), ("bad_samples", BadSamples)):
            arguments.choice(name, getattr(self, name), get_args(choices))
        if self.device is not None:
            checked_device(self.device)
        self._check_workers()

    def of_torch(self) -> dict[str, Any]:
        """Gives the options that torch's DataLoader knows too.

        Raises:
            ArgumentValueError: an option is set that it does not know.
        """
        options = asdict(self)
        for name in FOR_OURS:
            value = options.pop(name)
            if value != getattr(LoaderOptions, name):
                raise ArgumentValueError(name, "is no option of torch's DataLoader", value, mend=OURS_MEND)
        return options

    def of_ours(self) -> dict[str, Any]:
        """Gives the options that a `Loader` takes; those that are as by default are left out."""
        options = asdict(self)
        return {
            name: value
            for name, value in options.items()
            if name == "batch_size" or value != getattr(LoaderOptions, name)
        }

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


FOR_OURS = ("tail", "after_break", "bad_samples", "run_ahead", "seed_draws", "device")
"""The options that torch's DataLoader does not know."""

OURS_MEND = "use config.make_loader, which gives samplerkit's Loader"

LOADER = Constructor.of("loader", LoaderOptions)
"""How a config writes them."""
