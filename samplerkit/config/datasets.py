"""The kinds of datasets that a config can name, and how one of yours is joined to what a config says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, final

from samplerkit.config.constructor import Kinds
from samplerkit.config.formats import FORMATS
from samplerkit.config.hints import FieldNames, Folder, PathOrLengths, Paths, Remote, RemoteOrNot
from samplerkit.config.private import below
from samplerkit.config.section import Named
from samplerkit.errors import ArgumentValueError, ConfigError, DatasetError, SamplerkitError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.read.source import Fetch, OnError
from samplerkit.storage.tree import TreeDataset


def placed(dataset: Any, said: Any) -> Any:
    """Joins a dataset to what a config says of it.

    Returns:
        What a sampler draws from: the dataset, with the layout of the config where that tells the files.

    Raises:
        ConfigError: the two contradict one another, or there is nothing that could be read.

    Example:
        >>> placed("abc", Layout([1, 2])).layout
        Layout([1, 2])
    """
    if dataset is None:
        if said is None or isinstance(said, Layout):
            problem = "is missing" if said is None else "says only a layout"
            raise ConfigError("dataset", problem, mend="pass the dataset, or name one of kind files or tar")
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
    if not said.has_files or (found.parts and not said.parts):
        return dataset
    if found.has_files and found.sizes.tolist() != said.sizes.tolist():
        raise ConfigError("dataset", f"says {said!r}, and the dataset has other files", found)
    if found.parts and [path for path, _ in found.leaves] != [path for path, _ in said.leaves]:
        raise ConfigError("dataset", f"says {said!r}, and the dataset has other parts", found)
    return WithLayout(dataset, said)


@final
class WithLayout:
    """A dataset that tells its layout, and all else as before."""

    def __init__(self, dataset: Any, layout: Layout) -> None:
        self._dataset = dataset
        self.layout = layout

    def __len__(self) -> int:
        return self.layout.num_samples

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for attributes before there is a dataset to ask.
        if name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)


DATASETS = Kinds("dataset", example="{kind: size, size: 1000}")
"""All kinds; another one is another function here."""

Parts = Annotated[Any, Named(DATASETS)]
"""The parts of a tree, by name: dataset sections."""


@DATASETS.kind("size")
def of_size(size: int) -> Layout:
    """A number of samples, in no files."""
    try:
        return Layout(size)
    except SamplerkitError as error:
        raise type(error)("size", error.problem, size, mend=error.mend) from None


@DATASETS.kind("layout")
def of_files(sizes: Iterable[int], names: Iterable[str] | None = None) -> Layout:
    """Samples in files: how many in each, and what the files are called."""
    return Layout(sizes, names)


@DATASETS.kind("files")
def of_read_files(
    files: Paths,
    reader: str,
    lengths: PathOrLengths = None,
    max_files: int = 4,
    max_bytes: int | None = None,
    read_ahead: int = 1,
    threads: int = 1,
    as_columns: bool = False,
    remote: RemoteOrNot = None,
) -> FileDataset:
    """Samples in files that a reader reads; one of yours by its name, after `register_reader`."""
    return FileDataset(
        files,
        reader,
        lengths,
        max_files=max_files,
        max_bytes=max_bytes,
        read_ahead=read_ahead,
        threads=threads,
        as_columns=as_columns,
        remote=remote,
    )


@DATASETS.kind("tar")
def of_tar_shards(
    urls: Paths,
    decode: str | bool | None = None,
    to_tuple: FieldNames = None,
    shuffle: int | None = None,
    on_error: OnError = "raise",
    max_handles: int | None = None,
    checksums: bool = False,
    cache: Folder = None,
    lengths: PathOrLengths = None,
    remote: Remote = None,
    fetch: Fetch = "auto",
    max_shards: int = 8,
    read_ahead: int = 2,
) -> TarDataset:
    """Samples in tar shards, with the steps of its pipeline that need no function of yours.

    Args:
        urls: a pattern with braces or stars, or a list; paths or URLs.
        decode: how images are decoded, such as `pil` or `torchrgb`; True for all but images.
        to_tuple: the fields of a sample, in this order.
        shuffle: the window of the default order.
        on_error: `raise` or `skip`.
        max_handles: archives that a process holds open.
        checksums: whether each file is compared with the checksum in the index.
        cache: the folder for indexes.
        lengths: samples in each shard.
        remote: how URLs are fetched.
        fetch: `auto`, `shards` or `ranges`.
        max_shards: shards that a process holds at a time.
        read_ahead: shards that are fetched before they are needed.
    """
    dataset = TarDataset(
        urls,
        on_error=on_error,
        max_handles=max_handles,
        checksums=checksums,
        cache=cache,
        lengths=lengths,
        remote=remote,
        fetch=fetch,
        max_shards=max_shards,
        read_ahead=read_ahead,
    )
    if decode:
        dataset = dataset.decode() if decode is True else dataset.decode(decode)
    if to_tuple is not None:
        dataset = dataset.to_tuple(*to_tuple)
    return dataset if shuffle is None else dataset.shuffle(shuffle)


for _name, _make in FORMATS.items():
    DATASETS.add(_name, _make)


@DATASETS.kind("tree")
def of_parts(parts: Parts) -> Layout | TreeDataset:
    """Several datasets that know their names, or of which only layouts are told; trees may stand in trees.

    Args:
        parts: by name, in the order of their ids: each a section as this one, of any kind.
    """
    told = [name for name, part in parts.items() if isinstance(part, Layout)]
    if len(told) == len(parts):
        return Layout.tree(parts)
    if told:
        problem, mend = "is only a layout, and others are read", "name one of kind files, tar or tree"
        raise ArgumentValueError(below("parts", told[0]), problem, parts[told[0]], mend=mend)
    return TreeDataset(parts)
