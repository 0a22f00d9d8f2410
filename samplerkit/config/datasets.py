"""The kinds of datasets that a config can name, and how a user's dataset gets the layout of a config."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from pydantic import Field, Strict

from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.derive import PathArgument, Sections
from samplerkit.config.error_messages import below
from samplerkit.errors import ArgumentValueError, ConfigError, DatasetError, SamplerkitError
from samplerkit.order.layout import Layout
from samplerkit.storage.batch_readers import present_reader
from samplerkit.storage.files.json_lines import LineKind
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tree import TreeDataset

_Paths = str | list[str]

Paths = Annotated[_Paths, PathArgument]
"""A path, a pattern, or a list of them."""

CorpusPaths = Annotated[_Paths | dict[str, _Paths | dict[str, _Paths]], PathArgument]
"""Paths, or corpora by name; a corpus may have named parts itself."""

FieldNames = Annotated[list[str] | None, Strict()]
"""Names listed in the config itself; a list without this annotation may also be a `.npy` file."""

PathOrLengths = Annotated[str | list[int] | dict[str, int] | None, PathArgument]
"""The number of samples in each file, in order or by name, or the path of a file with these numbers."""

REMOTE = Constructor("remote", RemoteOptions, example="remote: {cache: /scratch/cache}")

Remote = Annotated[Any, Sections("remote", REMOTE, others=(None,))]
"""Options for fetching URLs."""

RemoteOrFalse = Annotated[Any, Sections("remote", REMOTE, others=(None, False))]
"""Options for fetching URLs; false passes the URLs to the reader."""

Conditions = Annotated[list[Any] | None, Strict()]
"""Conditions on rows, or lists of conditions."""


def with_layout(dataset: Any, declared: Any) -> Any:
    """Adds the layout of a config to a dataset.

    Args:
        dataset: the user's dataset; None for that of the config.
        declared: the dataset or layout of the config; None if the config has no dataset section.

    Returns:
        The dataset, with the layout of the config if that has files or parts that the dataset does not know.

    Raises:
        ConfigError: the two contradict each other, or there is no dataset that can be read.

    Example:
        >>> with_layout("abc", Layout([1, 2])).layout
        Layout([1, 2])
    """
    if dataset is None:
        if declared is None or isinstance(declared, Layout):
            problem = "is missing" if declared is None else "is only a layout"
            raise ConfigError("dataset", problem, hint="pass the dataset, or name one of kind files or tar")
        return declared
    if declared is None:
        return dataset
    declared = Layout.of(declared)
    try:
        own = Layout.of(dataset)
    except DatasetError:
        return WithLayout(dataset, declared)
    if own.num_samples != declared.num_samples:
        problem = f"declares {declared.num_samples} samples, but the dataset has another number"
        raise ConfigError("dataset", problem, own.num_samples)
    if own == declared or not declared.has_files or (own.parts and not declared.parts):
        return dataset
    if own.has_files and own.sizes.tolist() != declared.sizes.tolist():
        raise ConfigError("dataset", f"declares {declared!r}, but the dataset has other files", own)
    if own.parts and [path for path, _ in own.leaves] != [path for path, _ in declared.leaves]:
        raise ConfigError("dataset", f"declares {declared!r}, but the dataset has other parts", own)
    return WithLayout(dataset, declared)


class WithLayout:
    """A dataset with another layout; all other attributes are those of the dataset."""

    def __init__(self, dataset: Any, layout: Layout) -> None:
        self._dataset = dataset
        self.layout = layout

    def __len__(self) -> int:
        return self.layout.num_samples

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    @property
    def read_present(self) -> Callable[..., Any] | None:
        """The method that reads available samples and reports missing ones; None if the dataset has none."""
        # A loader looks for it on the class, so `__getattr__` is not enough.
        return present_reader(self._dataset)

    def __getattr__(self, name: str) -> Any:
        # copy and pickle look up attributes before `_dataset` is set.
        if name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)


DATASETS = Kinds("dataset", example="{kind: size, size: 1000}")
"""All kinds of datasets; to add one, add a function to this module."""

Parts = Annotated[
    Any,
    Sections("parts", DATASETS, dict),
    Field(json_schema_extra={"minProperties": 1}),
]
"""The parts of a tree: dataset sections by name."""


def of_size(size: int) -> Layout:
    """A number of samples without files."""
    try:
        return Layout(size)
    except SamplerkitError as error:
        raise type(error)("size", error.problem, size, hint=error.hint) from None


def of_files(sizes: Iterable[int], names: Iterable[str] | None = None) -> Layout:
    """Samples in files: the number of samples in each, and the names of the files."""
    return Layout(sizes, names)


def of_tar_shards(
    urls: Paths,
    decode: str | bool | None = None,
    to_tuple: FieldNames = None,
    shuffle: int | None = None,
    **options: Any,
) -> TarDataset:
    """Samples in tar shards, with the pipeline steps that need no user function.

    Args:
        urls: paths or URLs: a pattern with braces or stars, or a list.
        decode: how images are decoded, such as `pil` or `torchrgb`; True decodes all fields but images.
        to_tuple: the fields of a sample, in this order.
        shuffle: the window of the default order.
        options: the other arguments of `TarDataset`.
    """
    dataset = TarDataset(urls, **options)
    if decode:
        dataset = dataset.decode() if decode is True else dataset.decode(decode)
    if to_tuple is not None:
        dataset = dataset.to_tuple(*to_tuple)
    return dataset if shuffle is None else dataset.shuffle(shuffle)


def of_parts(parts: Parts) -> Layout | TreeDataset:
    """Several datasets, or layouts, by name; trees may be nested.

    Args:
        parts: dataset sections of any kind by name, in the order of their ids.
    """
    layouts = [name for name, part in parts.items() if isinstance(part, Layout)]
    if len(layouts) == len(parts):
        return Layout.tree(parts)
    if layouts:
        problem = "is only a layout, but other parts have files to read"
        hint = "name one of kind files, tar or tree"
        raise ArgumentValueError(below("parts", layouts[0]), problem, parts[layouts[0]], hint=hint)
    return TreeDataset(parts)


_WRITTEN: Final = {
    **dict.fromkeys(("files", "urls"), Paths),
    **dict.fromkeys(("columns", "arrays", "outputs", "scalars", "leave_out"), FieldNames),
    "filters": Conditions,
    "remote": Remote,
    "progress": None,
}
"""The types that a config writes for arguments whose hints do not define them."""

for _name, _make, _more in (
    ("size", of_size, {}),
    ("layout", of_files, {}),
    ("files", "FileDataset", {"reader": str, "lengths": PathOrLengths, "remote": RemoteOrFalse}),
    ("tar", of_tar_shards, {"lengths": PathOrLengths}),
    ("arrow", "ArrowDataset", {}),
    ("hdf5", "Hdf5Dataset", {}),
    ("jsonl", "JsonlDataset", {"decode": LineKind}),
    ("parquet", "ParquetDataset", {}),
    ("sqlite", "SqliteDataset", {"decode": None}),
    ("litdata", "LitDataset", {"decode": None}),
    ("lmdb", "LmdbDataset", {"decode": None}),
    ("mds", "MdsDataset", {"decode": None}),
    ("mindrecord", "MindRecordDataset", {"decode": None}),
    ("tfrecord", "TfRecordDataset", {"decode": None}),
    ("zarr", "ZarrDataset", {}),
    ("tokens", "TokenDataset", {"files": CorpusPaths, "dtype": str | None, "as_dtype": str}),
    ("megatron", "compat.megatron.MegatronDataset", {"prefixes": Paths}),
    ("tree", of_parts, {}),
):
    DATASETS.add(_name, _make, {**_WRITTEN, **_more})
