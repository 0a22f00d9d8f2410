"""Index files that a run of Megatron left: whether they hold what is computed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.compat.megatron.dataset import MegatronDataset
from samplerkit.errors import DatasetError
from samplerkit.storage.tokens.arguments import PARTS, Extent, shares_of

_OTHER = (
    "its run read what it says, of other data or by an option that its key leaves out, such as the extra "
    "token: keep it, and compare the corpora and options with those of that run"
)


def compare_cache(dataset: MegatronDataset, folder: str | Path) -> list[str]:
    """Compares the index files that a run of Megatron left with what is computed here, number by number.

    Files are found by their descriptions: the last part of the paths of the corpora, the part and its share
    of the split, the seed, the sequence length and the number of samples. Those of other runs may lie beside
    them. They are read as plain arrays, without pickle.

    Args:
        dataset: what is replayed.
        folder: `--data-cache-path`, or where Megatron puts its indexes without one: the folder
            `cache/GPTDataset_indices` in one with the name of the prefix.

    Returns:
        The names of the files that were compared, and are equal.

    Raises:
        DatasetError: there is no such file, one cannot be read, or one differs: it names file and place.
    """
    compared = []
    for path, expected in _indexes(dataset, Path(folder)):
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DatasetError(str(path), f"is no index that can be read ({error})") from error
        if found.shape != expected.shape:
            problem = f"is of shape {found.shape}, and should be of {expected.shape}"
            raise DatasetError(str(path), problem, hint=_OTHER)
        if not np.array_equal(found, expected):
            row = int(np.argmax((found != expected).reshape(found.shape[0], -1).any(axis=1)))
            problem = f"has {found[row].tolist()} at {row}, and should have {expected[row].tolist()}"
            raise DatasetError(str(path), problem, hint=_OTHER)
        compared.append(path.name)
    if not compared:
        wanted = f"{dataset.part}, of {', '.join(map(_last, dataset.prefixes))}"
        wanted += "" if dataset.split is None else f", split {dataset.split}"
        raise DatasetError(
            str(folder), f"holds no index of {wanted}", hint="name the folder of the run's cache"
        )
    return compared


def _indexes(dataset: MegatronDataset, folder: Path) -> Iterator[tuple[Path, npt.NDArray[Any]]]:
    """Yields the index files of a dataset, each with what it should hold."""
    samples = dataset.samples
    for place in sorted(folder.glob(f"*-{dataset.part}-description.txt")):
        try:
            told = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DatasetError(str(place), f"is no description that can be read ({error})") from error
        stem = str(place).removesuffix("description.txt")
        if "datasets" in told:
            names = [_last(one["dataset_path"]) for one in told["datasets"]]
            is_ours = all(_is_cut(one, dataset) for one in told["datasets"])
            is_ours = is_ours and told["size"] in {None, len(samples)}
            is_ours = is_ours and names == [_last(prefix) for prefix in dataset.prefixes]
            sources, turns = samples.dataset_index, samples.dataset_sample_index
            if is_ours and sources is not None and turns is not None:
                yield Path(f"{stem}dataset_index.npy"), sources
                yield Path(f"{stem}dataset_sample_index.npy"), turns
            continue
        for prefix, corpus in zip(dataset.prefixes, samples.corpora, strict=True):
            # Of a corpus without samples nothing is read, whatever its index says.
            is_ours = len(corpus) > 0 and told.get("num_samples") == corpus.num_samples
            if is_ours and _last(prefix) == _last(told["dataset_path"]) and _is_cut(told, dataset):
                yield Path(f"{stem}document_index.npy"), corpus.document_index
                yield Path(f"{stem}sample_index.npy"), corpus.sample_index
                yield Path(f"{stem}shuffle_index.npy"), corpus.shuffle_index


def _is_cut(told: dict[str, Any], dataset: MegatronDataset) -> bool:
    wanted = dataset.cut.seq_length, dataset.cut.seed
    if (told.get("sequence_length"), told.get("random_seed")) != wanted:
        return False
    # Without a split the corpora are of one part, and read whole.
    return "split" not in told or _share(told["split"], dataset) == _share(dataset.split, dataset)


def _share(split: str | None, dataset: MegatronDataset) -> Extent | None:
    return (0.0, 1.0) if split is None else shares_of(split)[PARTS.index(dataset.part)]


def _last(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
