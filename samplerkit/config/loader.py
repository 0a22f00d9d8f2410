"""The options of a loader: torch's stand here, and all arguments of `Loader` are options by themselves."""

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
"""The arguments of `Loader` that a config does not write: it has sections for some, others are for Python."""

OURS_HINT = "use config.make_loader, which gives samplerkit's Loader"


def _with_arguments_of_loader(options: type[_Options]) -> type[_Options]:
    """Adds a field to what is to be a dataclass, for each argument of `Loader` that it lacks."""
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
    """How batches are made and handed over: options of torch's DataLoader, then the arguments of `Loader`.

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
        ArgumentRangeError: `batch_size` or `prefetch_factor` is not positive, or `timeout` negative.
        ArgumentValueError: `num_workers` is negative, an option that needs workers is given without any, or a
            choice is not known.

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
        # Over nothing, a loader starts nothing: it only looks at its arguments. Whether there are batches to
        # split stands in another section.
        looked_at = asdict(self)
        Loader((), **(looked_at | ({"tail": "ragged"} if looked_at["tail"] == "split" else {})))

    def of_torch(self) -> dict[str, Any]:
        """Gives the options that torch's DataLoader knows too.

        Raises:
            ArgumentValueError: an option is set that it does not know.
        """
        known = inspect.signature(torch.utils.data.DataLoader).parameters
        for name, value in self.of_ours().items():
            if name not in known:
                raise ArgumentValueError(name, "is no option of torch's DataLoader", value, hint=OURS_HINT)
        return {name: value for name, value in asdict(self).items() if name in known}

    def of_ours(self) -> dict[str, Any]:
        """Gives the options that a `Loader` takes; those that are as by default are left out."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name == "batch_size" or value != getattr(LoaderOptions, name)
        }


LOADER = Constructor("loader", LoaderOptions, {"device": str | None}, example="loader: {batch_size: 256}")
"""How a config writes them."""
