"""Loader options of a config: torch's are listed here, and arguments of `Loader` are added automatically."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, final, get_type_hints

import torch.utils.data

from samplerkit.config.constructor import Constructor
from samplerkit.errors import ArgumentValueError
from samplerkit.loading.loader import Loader

_Options = TypeVar("_Options")

FROM_PYTHON = frozenset({"dataset", "sampler", "batches", "world", "agreement_seconds", "dataloader_options"})
"""Arguments of `Loader` that are not options of this section: some have their own, others are for Python."""


def _with_arguments_of_loader(options: type[_Options]) -> type[_Options]:
    """Adds a field for each missing argument of `Loader` to a class that becomes a dataclass."""
    hints = get_type_hints(Loader.__init__)
    for name, parameter in inspect.signature(Loader).parameters.items():
        if name not in options.__annotations__ and name not in FROM_PYTHON:
            options.__annotations__[name] = hints[name]
            setattr(options, name, parameter.default)
    return options


@final
@dataclass(frozen=True)
@_with_arguments_of_loader
class LoaderOptions:
    """Options of torch's DataLoader, and the arguments of `Loader`.

    Args:
        batch_size: samples in a batch.
        num_workers: worker processes; 0 reads in the training process.
        drop_last: whether a last, smaller batch is dropped.
        pin_memory: whether batches are copied into pinned memory.
        prefetch_factor: batches that each worker prefetches; None takes torch's default.
        persistent_workers: whether workers are kept alive between epochs.
        timeout: seconds to wait for a worker's batch; 0 waits without limit.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` or `prefetch_factor` is not positive, or `timeout` negative.
        ArgumentValueError: `num_workers` is negative, an option that needs workers is given without workers,
            or an option has an unknown value.

    Example:
        >>> LoaderOptions(batch_size=256, num_workers=4).prefetch_factor is None
        True
        >>> LoaderOptions(tail="drop").of_ours()
        {'batch_size': 1, 'tail': 'drop'}
    """

    batch_size: int = 1
    num_workers: int = 0
    drop_last: bool = False
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    timeout: float = 0.0

    def __post_init__(self) -> None:
        # A loader without samples starts nothing and only checks its arguments. `split` is not checked here:
        # whether there is a recipe for batches is known from another section.
        options = asdict(self)
        Loader((), **(options | ({"tail": "ragged"} if options["tail"] == "split" else {})))

    def of_torch(self) -> dict[str, Any]:
        """Returns the options that torch's DataLoader also has.

        Raises:
            ArgumentValueError: an option is set that it does not have.
        """
        parameters = inspect.signature(torch.utils.data.DataLoader).parameters
        for name, value in self.of_ours().items():
            if name not in parameters:
                hint = "use config.make_loader, which gives samplerkit's Loader"
                raise ArgumentValueError(name, "is not an option of torch's DataLoader", value, hint=hint)
        return {name: value for name, value in asdict(self).items() if name in parameters}

    def of_ours(self) -> dict[str, Any]:
        """Returns the options for a `Loader`: `batch_size`, and those that differ from the default."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name == "batch_size" or value != getattr(LoaderOptions, name)
        }


LOADER = Constructor("loader", LoaderOptions, {"device": str | None}, example="loader: {batch_size: 256}")
"""The constructor of the section."""
