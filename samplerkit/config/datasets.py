"""The kinds of datasets that a config can name, and how one of yours is joined to what a config says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, final

from pydantic import Field, Strict

from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.derive import Sections, Under
from samplerkit.config.error_messages import below
from samplerkit.errors import ArgumentValueError, ConfigError, DatasetError, SamplerkitError
from samplerkit.order.layout import Layout
from samplerkit.storage.batch_readers import present_reader
from samplerkit.storage.files.lines import LineKind
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tree import TreeDataset

_Paths = str | list[str]

Paths = Annotated[_Paths, Under()]
"""A path, a pattern, or a list of them."""

CorpusPaths = Annotated[_Paths | dict[str, _Paths | dict[str, _Paths]], Under()]
"""Paths, or corpora by name; one of them may have parts by name itself."""

FieldNames = Annotated[list[str] | None, Strict()]
"""Names that are in the config itself; a list that is not annotated may also be a `.npy` file."""

PathOrLengths = Annotated[str | list[int] | dict[str, int] | None, Under()]
"""Samples in each file, in order or by name, or the path of a file that says so."""

REMOTE = Constructor("remote", RemoteOptions, example="remote: {cache: /scratch/cache}")

Remote = Annotated[Any, Sections("remote", REMOTE, others=(None,))]
"""How URLs are fetched."""

RemoteOrNot = Annotated[Any, Sections("remote", REMOTE, others=(None, False))]
"""How URLs are fetched; false leaves them to the reader."""

Conditions = Annotated[list[Any] | None, Strict()]
"""Conditions on rows, or lists of these."""


def placed(dataset: Any, said: Any) -> Any:
    """Joins a dataset to what a config says of it.

    Returns:
        What a sampler draws from: the dataset, with the layout of the config where that names the files.

    Raises:
        ConfigError: the two contradict one another, or there is nothing that could be read.

    Example:
        >>> placed("abc", Layout([1, 2])).layout
        Layout([1, 2])
    """
    if dataset is None:
        if said is None or isinstance(said, Layout):
            problem = "is missing" if said is None else "says only a layout"
            raise ConfigError("dataset", problem, hint="pass the dataset, or name one of kind files or tar")
        return said
    if said is None:
        return dataset
    said = Layout.of(said)
    try:
        found = Layout.of(dataset)
    except DatasetError:
        return WithLayout(dataset, said)
    if found.num_samples != said.num_samples:
        raise ConfigError(
            "dataset", f"says {said.num_samples} samples, and the dataset has others", found.num_samples
        )
    if found == said or not said.has_files or (found.parts and not said.parts):
        return dataset
    if found.has_files and found.sizes.tolist() != said.sizes.tolist():
        raise ConfigError("dataset", f"says {said!r}, and the dataset has other files", found)
    if found.parts and [path for path, _ in found.leaves] != [path for path, _ in said.leaves]:
        raise ConfigError("dataset", f"says {said!r}, and the dataset has other parts", found)
    return WithLayout(dataset, said)


@final
class WithLayout:
    """A dataset with a layout, and all else as before."""

    def __init__(self, dataset: Any, layout: Layout) -> None:
        self._dataset = dataset
        self.layout = layout

    def __len__(self) -> int:
        return self.layout.num_samples

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    @property
    def read_present(self) -> Callable[..., Any] | None:
        """What reads the available samples, and reports the missing ones; None if the dataset has none."""
        # A loader asks the class for it, so that handing on unknown names is not enough.
        return present_reader(self._dataset)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for attributes before there is a dataset to ask.
        if name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)


DATASETS = Kinds("dataset", example="{kind: size, size: 1000}")
"""All kinds; another one is another function here."""

Parts = Annotated[
    Any,
    Sections("parts", DATASETS, dict),
    Field(json_schema_extra={"minProperties": 1}),
]
"""The parts of a tree, by name: dataset sections."""


def of_size(size: int) -> Layout:
    """A number of samples, in no files."""
    try:
        return Layout(size)
    except SamplerkitError as error:
        raise type(error)("size", error.problem, size, hint=error.hint) from None


def of_files(sizes: Iterable[int], names: Iterable[str] | None = None) -> Layout:
    """Samples in files: how many in each, and what the files are called."""
    return Layout(sizes, names)


def of_tar_shards(
    urls: Paths,
    decode: str | bool | None = None,
    to_tuple: FieldNames = None,
    shuffle: int | None = None,
    **options: Any,
) -> TarDataset:
    """Samples in tar shards, with the steps of its pipeline that need no function of yours.

    Args:
        urls: a pattern with braces or stars, or a list; paths or URLs.
        decode: how images are decoded, such as `pil` or `torchrgb`; True for all but images.
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
    """Several datasets that know their names, or of which only layouts are given; trees may be in trees.

    Args:
        parts: by name, in the order of their ids: each a section as this one, of any kind.
    """
    told = [name for name, part in parts.items() if isinstance(part, Layout)]
    if len(told) == len(parts):
        return Layout.tree(parts)
    if told:
        problem, hint = "is only a layout, and others are read", "name one of kind files, tar or tree"
        raise ArgumentValueError(below("parts", told[0]), problem, parts[told[0]], hint=hint)
    return TreeDataset(parts)


_WRITTEN: Final = {
    **dict.fromkeys(("files", "urls"), Paths),
    **dict.fromkeys(("columns", "arrays", "outputs", "scalars", "leave_out"), FieldNames),
    "filters": Conditions,
    "remote": Remote,
    "progress": None,
}
"""How a config writes what the types of all these constructors do not say."""

for _name, _make, _more in (
    ("size", of_size, {}),
    ("layout", of_files, {}),
    ("files", "FileDataset", {"reader": str, "lengths": PathOrLengths, "remote": RemoteOrNot}),
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
