"""The sections `loader` and `min_quality` of a config: options of a loader, and the least quality allowed.

Options of torch's DataLoader are listed here; arguments of `Loader` are added automatically.
"""

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_type_hints

import numpy as np
import torch.utils.data

from samplerkit.config.constructor import Constructor
from samplerkit.config.derive import Parsed
from samplerkit.config.error_messages import below
from samplerkit.config.reading import Folder
from samplerkit.errors import ArgumentValueError, ConfigError
from samplerkit.inspect.quality.figure import Figure, shown
from samplerkit.inspect.quality.mixing import ALREADY_MIXED, label_mixing, mixing, storage_mixing
from samplerkit.inspect.quality.order_source import selector_of
from samplerkit.inspect.quality.recommend import checked_minimum, recommend
from samplerkit.loading.loader import Loader
from samplerkit.order import arguments
from samplerkit.order.dataset_protocol import find_column
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.samplers.base import Sampler

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


SECTION = "min_quality"
EXAMPLE = "min_quality: {mixing: 0.5}"


@dataclass(frozen=True, eq=False)
class MinQuality:
    """The minimum quality of an order; loading a config with a lower quality fails.

    Args:
        mixing: the minimum `mixing`, in (0, 1]; None for no limit.
        label_mixing: the minimum `label_mixing`, in (0, 1]; None for no limit.
        batch_size: samples in a batch of all ranks together; None for the loader's batch size times the
            number of ranks.
        labels: the label of each sample, a list or a `.npy` file; None takes `labels`, `label` or `targets`
            of the dataset, once there is a dataset.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: an argument is out of its range.
        ArgumentValueError: neither `mixing` nor `label_mixing` is set.

    Example:
        >>> MinQuality(mixing=0.5).mixing
        0.5
    """

    mixing: float | None = None
    label_mixing: float | None = None
    batch_size: int | None = None
    labels: Sequence[Any] | np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("mixing", "label_mixing"):
            if getattr(self, name) is not None:
                checked_minimum(name, getattr(self, name))
        if self.mixing is None and self.label_mixing is None:
            raise ArgumentValueError("mixing", "or label_mixing must be set", hint=f"write {EXAMPLE}")
        arguments.limit("batch_size", self.batch_size)

    def check(self, sampler: Sampler, dataset: Any, world: World, batch_size: int) -> list[Figure]:
        """Computes the figures that have a minimum, and compares them with it.

        Args:
            sampler: the chain of samplers.
            dataset: the dataset, or its layout.
            world: the ranks of the first start.
            batch_size: samples in a batch of one rank.

        Returns:
            The figures; without label mixing if the labels are not known yet.

        Raises:
            ConfigError: a figure is too low; the error has the figure, its weakest window and a hint.
            SamplerkitError: a figure cannot be computed: the mode or the labels do not fit the dataset.
        """
        batch = self.batch_size or batch_size * world.num_shards
        labels = _labels_of(dataset) if self.labels is None else self.labels
        figures = [] if self.mixing is None else [mixing(sampler, dataset, batch, world=world)]
        if self.label_mixing is not None and labels is not None:
            figures.append(label_mixing(sampler, dataset, batch, labels, world=world))
        for figure in figures:
            minimum = getattr(self, figure.name)
            if figure.value >= minimum:
                continue
            problem = _shortfall(figure, minimum)
            chooser = selector_of(sampler, len(Layout.of(dataset)))
            if figure.name != "mixing":
                hint = "mix more: take larger blocks, more files at a time, or GLOBAL"
            elif chooser is None:
                advice = recommend(dataset, batch, mixing=minimum, lanes=world.num_shards)
                hint = f"the cheapest mode that meets it is {advice.reason}"
            else:
                hint = f"put a RandomSampler over {type(chooser).__name__}, which chooses the samples"
            stored = None if labels is None else storage_mixing(dataset, batch, labels)
            if stored is not None and stored.value >= ALREADY_MIXED:
                problem += f"; labels are already mixed in storage, with a mixing of {shown(stored.value)}"
                hint = "every mode is about as good here: ask for label_mixing in place of mixing"
            raise ConfigError(below(SECTION, figure.name), problem, hint=hint)
        return figures


def _shortfall(figure: Figure, minimum: float) -> str:
    weakest = figure.weakest
    error = "" if figure.exact else f" (standard error {shown(figure.standard_error)})"
    return (
        f"falls short of {shown(minimum)}: {figure.name} is {shown(figure.value)}{error}, weakest in "
        f"windows of {weakest.window} samples with {shown(weakest.value)}"
    )


MIN_QUALITY = Constructor(SECTION, MinQuality, example=EXAMPLE)
"""The constructor of the section; a number in place of the section is the mixing."""


def read_min_quality(section: Any, place: str, folder: Folder) -> Parsed:
    """Reads the section `min_quality`.

    Raises:
        ConfigError: a key is unknown, or has a value of the wrong type.
    """
    if isinstance(section, int | float) and not isinstance(section, bool):
        section = {"mixing": section}
    return MIN_QUALITY.read(section, place, folder)


def _labels_of(dataset: Any) -> Any:
    """Returns the class labels of a dataset; None if it has none, or only targets of another kind."""
    _, column = find_column(dataset, "labels", "label", "targets") or ("", None)
    try:
        array = np.asarray(column)
    except ValueError:  # lists of different lengths
        return None
    return array if array.ndim == 1 and array.dtype.kind in "iubUS" else None
