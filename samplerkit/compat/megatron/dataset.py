"""Megatron's dataset of one part: computing and reading the tokens of samples, and comparing index files."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from samplerkit.compat.megatron.blend import MAX_SOURCES
from samplerkit.compat.megatron.samples import BlendedSamples, Cut, Spans
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import groups
from samplerkit.order.typing import Ids
from samplerkit.storage.files.stored import BytesRequest
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.per_process import storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tokens.arguments import PARTS, TokenPaths, share_of
from samplerkit.storage.tokens.token_files import OpenedFiles
from samplerkit.storage.urls import is_remote

Array = npt.NDArray[Any]

_VERSION = "megatron-core-0.16.1"
_MAX_SURPLUS = 1000


@final
class MegatronDataset:
    """The samples of Megatron-LM's GPT dataset, token for token, for one part of one corpus or a blend.

    The content of Megatron's index files is computed at first use, in about the same time as in Megatron, and
    not written to disk. Sample `k` here is sample `k` in Megatron.

    Args:
        prefixes: the prefix of a `.bin` and an `.idx`, or a list of these: the corpora of `--data-path`,
            paths or URLs.
        num_samples: how many samples the training requests, as in Megatron: its steps times its global batch
            size. None for one epoch.
        sequence_length: `--seq-length`.
        weights: the weights of the corpora in `--data-path`; None if it has none. Leave them out for a part
            that has one corpus of its own (`--train-data-path` and the like).
        random_seed: `--seed`.
        split: `--split`; None if the corpora belong to this part only.
        part: `train`, `valid` or `test`.
        add_extra_token_to_sequence: whether a sample has one more token, for the labels.
        drop_last_partial_validation_sequence: whether the last sample of `valid` is dropped if it is too
            short; if False, it is padded.
        mid_level_dataset_surplus: the share by which a corpus of a blend is built longer than expected to be
            needed.
        pad_token: the token that pads a short sample.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a weight is not positive, a choice is not known, or the split has no such part.
        ArgumentRangeError: a number is out of range.
        DatasetError: later, at first use: a file is missing, was cut or changed, or contradicts its index;
            the part has no tokens; or a corpus is shorter than a sample.
        OutOfDatasetError: later, at first use: the blend reads a corpus more often than it was built for.

    Source: `GPTDataset` and `BlendedDataset` of megatron-core 0.16.1.

    Example:
        >>> import tempfile, samplerkit as sk
        >>> prefix = tempfile.mkdtemp() + "/corpus"
        >>> with sk.TokenWriter(prefix, "uint16") as writer:
        ...     for document in ([5, 6, 7, 8, 0], [9, 9, 0], [1, 2, 3, 0]):
        ...         writer.write(document)
        >>> dataset = MegatronDataset(prefix, sequence_length=4, random_seed=7)
        >>> len(dataset), dataset[1].tolist(), dataset.spans(1)
        (2, [1, 2, 3, 0, 9], [(0, 2, 0, 4), (0, 1, 0, 1)])
    """

    enters_draws = True
    """A Loader that seeds draws need not read samples one at a time: reading them draws nothing."""

    def __init__(
        self,
        prefixes: str | Sequence[str],
        num_samples: int | None = None,
        *,
        sequence_length: int,
        weights: Sequence[float] | None = None,
        random_seed: int = 1234,
        split: str | None = None,
        part: str = "train",
        add_extra_token_to_sequence: bool = True,
        drop_last_partial_validation_sequence: bool = True,
        mid_level_dataset_surplus: float = 0.005,
        pad_token: int = -1,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        names = [prefixes] if isinstance(prefixes, str) else prefixes
        is_list = isinstance(names, Sequence) and all(isinstance(prefix, str) for prefix in names)
        if not is_list or not names:
            raise ArgumentTypeError("prefixes", "must be the prefix of a corpus, or a list of them", prefixes)
        if len(names) > MAX_SOURCES:
            raise ArgumentValueError("prefixes", f"must be at most {MAX_SOURCES}", len(names))
        self.prefixes: Final = tuple(names)
        self.num_samples: Final = (
            None if num_samples is None else arguments.at_least("num_samples", num_samples, 0)
        )
        self.part: Final = arguments.choice("part", part, PARTS)
        seed = arguments.below("random_seed", random_seed, 2**32, "must be in [0, 2^32), as Megatron's")
        extra = arguments.boolean("add_extra_token_to_sequence", add_extra_token_to_sequence)
        drops = arguments.boolean(
            "drop_last_partial_validation_sequence", drop_last_partial_validation_sequence
        )
        size = arguments.positive("sequence_length", sequence_length)
        self.cut: Final = Cut(size, seed, int(extra), self.part == "valid" and not drops)
        self.split: Final = None if split is None else arguments.text("split", split)
        self._weights: Final = None if weights is None else _checked_weights(weights, len(names))
        self._surplus: Final = arguments.number("mid_level_dataset_surplus", mid_level_dataset_surplus)
        if not 0 <= self._surplus <= _MAX_SURPLUS:
            problem = f"must be in [0, {_MAX_SURPLUS}]"
            raise ArgumentRangeError("mid_level_dataset_surplus", problem, mid_level_dataset_surplus)
        self._pad: Final = arguments.integer("pad_token", pad_token)
        storage = storage_for(any(map(is_remote, self.prefixes)), None, RemoteOptions.of(remote))
        self._storage: Final = storage

    @cached_property
    def samples(self) -> BlendedSamples:
        """The positions of the tokens of all samples, computed from document lengths at the first access."""
        return BlendedSamples(
            [self._lengths(corpus) for corpus in range(len(self.prefixes))],
            self._weights,
            self.num_samples,
            self.cut,
            split=self.split,
            part=self.part,
            surplus=self._surplus,
        )

    @cached_property
    def fingerprint(self) -> str:
        """A string that changes with everything that samples depend on: arguments and document lengths."""
        index = [_VERSION, self.cut, self._weights, self.num_samples, self.split, self.part, self._surplus]
        digest = hashlib.blake2b(
            json.dumps(index, default=vars).encode(), digest_size=16, person=b"samplerkit"
        )
        for corpus in range(len(self.prefixes)):
            digest.update(self._token_files.files[corpus].dtype.str.encode())
            digest.update(self._lengths(corpus).tobytes())
        return digest.hexdigest()

    def spans(self, id: int) -> list[tuple[int, int, int, int]]:
        """Returns the parts of documents that make up a sample, including its extra token.

        Returns:
            For each part: the number of the corpus, the number of the document in Megatron's index, the first
            token in that document, and the number of tokens.

        Raises:
            OutOfDatasetError: the id is out of range.
        """
        _, *columns = self.samples.spans(checked_ids([arguments.integer("id", id)], len(self)))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Array:
        """Returns a sample: int64 array of shape (sequence_length + 1,), of inputs and the last label."""
        sample: Array = self._read(np.array([checked_index(index, self)]))[0]
        return sample

    def __getitems__(self, ids: Iterable[int]) -> Array:
        """Returns a batch: int64 array of shape (batch, sequence_length + 1).

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a file cannot be read, or was cut or changed.
        """
        return self._read(checked_ids(ids if isinstance(ids, np.ndarray) else list(ids), len(self)))

    def close(self) -> None:
        """Closes files and connections. The dataset can be used again."""
        if "_token_files" in self.__dict__:
            self._token_files.data.close()
        if self._storage is not None:
            self._storage.close()

    def __repr__(self) -> str:
        size = self.cut.seq_length
        return f"MegatronDataset({len(self.prefixes)} corpora, sequence_length={size}, part={self.part})"

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the arrays that another process can compute again."""
        return {name: value for name, value in self.__dict__.items() if name not in {"samples", "_edges"}}

    @cached_property
    def _token_files(self) -> OpenedFiles:
        """The files; the first access opens them."""
        paths = [TokenPaths.of(prefix) for prefix in self.prefixes]
        for prefix, path in zip(self.prefixes, paths, strict=True):
            if path.index is None:
                raise ArgumentValueError("prefixes", "must be prefixes of a .bin and an .idx", prefix)
        return OpenedFiles(paths, None, self._storage, whole=False)

    def _lengths(self, corpus: int) -> Array:
        """Returns the length of each sequence of a corpus, as in its index."""
        return np.diff(self._edges[corpus]).astype(np.int32)

    @cached_property
    def _edges(self) -> tuple[Ids, ...]:
        """For each corpus the first token of each sequence and, last, the number of tokens."""
        return tuple(file.index.edges() for file in self._token_files.files)

    def _read(self, ids: Ids) -> Array:
        spans = self.samples.spans(ids)
        width = self.cut.seq_length + self.cut.extra
        rows = np.empty((ids.size, width), dtype=self._token_files.files[0].dtype)
        filled = np.bincount(spans.rows, spans.lengths, minlength=ids.size).astype(np.int64)
        self._token_files.data.fill(self._parts(rows, spans, filled))
        tokens = rows.astype(np.int64)
        if (filled < width).any():
            tokens[np.arange(width) >= filled[:, None]] = self._pad
        return tokens

    def _parts(self, rows: Array, spans: Spans, filled: Ids) -> Iterator[BytesRequest]:
        """Yields the bytes of each span, corpus by corpus, and the part of a row to read it into."""
        size, width = rows.itemsize, rows.shape[1]
        ends = (
            np.cumsum(spans.lengths)
            + (np.arange(filled.size) * width - np.cumsum(filled) + filled)[spans.rows]
        )
        flat = rows.reshape(-1).view(np.uint8)
        for corpus, at in groups(spans.corpora):
            begins = (self._edges[corpus][spans.documents[at]] + spans.offsets[at]) * size
            stops, counts = ends[at] * size, spans.lengths[at] * size
            for begin, stop, count in zip(begins.tolist(), stops.tolist(), counts.tolist(), strict=True):
                yield corpus, begin, flat[stop - count : stop]


def _checked_weights(weights: Sequence[float], sources: int) -> list[float]:
    numbers: list[float] = arguments.weights("weights", weights).tolist()
    if len(numbers) != sources or not all(numbers):
        raise ArgumentValueError("weights", f"must be {sources} positive numbers, one per corpus", weights)
    return numbers


_MISMATCH_HINT = (
    "its run read other data, or had another option that is not in the description, such as the extra token: "
    "keep it, and compare the corpora and options with those of that run"
)


def compare_cache(dataset: MegatronDataset, folder: str | Path) -> list[str]:
    """Compares the index files of a Megatron run with those computed here, number by number.

    Files are found by their descriptions: the last part of the paths of the corpora, the part and its share
    of the split, the seed, the sequence length and the number of samples. Files of other runs may be in the
    same folder. Arrays are read without pickle.

    Args:
        dataset: the dataset that reproduces the run.
        folder: `--data-cache-path`, or Megatron's default: the folder `cache/GPTDataset_indices` in a folder
            with the name of the prefix.

    Returns:
        The names of the files that were compared; all are equal.

    Raises:
        DatasetError: there is no such file, or a file cannot be read or differs; the error names the file and
            the position.
    """
    compared = []
    for path, expected in _indexes(dataset, Path(folder)):
        try:
            loaded = np.load(path, allow_pickle=False)
        except Exception as error:  # for a damaged header, also a TokenError
            raise DatasetError(str(path), f"cannot be read as an index ({error})") from error
        if loaded.shape != expected.shape:
            problem = f"has shape {loaded.shape}, but should have {expected.shape}"
            raise DatasetError(str(path), problem, hint=_MISMATCH_HINT)
        if not np.array_equal(loaded, expected):
            row = int(np.argmax((loaded != expected).reshape(loaded.shape[0], -1).any(axis=1)))
            problem = f"has {loaded[row].tolist()} at {row}, but should have {expected[row].tolist()}"
            raise DatasetError(str(path), problem, hint=_MISMATCH_HINT)
        compared.append(path.name)
    if not compared:
        description = f"{dataset.part}, of {', '.join(map(_name, dataset.prefixes))}"
        description += "" if dataset.split is None else f", split {dataset.split}"
        raise DatasetError(
            str(folder), f"holds no index of {description}", hint="name the folder of the run's cache"
        )
    return compared


def _indexes(dataset: MegatronDataset, folder: Path) -> Iterator[tuple[Path, npt.NDArray[Any]]]:
    """Yields the index files of a dataset, each with its expected content."""
    samples = dataset.samples
    for path in sorted(folder.glob(f"*-{dataset.part}-description.txt")):
        try:
            index = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise DatasetError(str(path), f"cannot be read as a description ({error})") from error
        stem = str(path).removesuffix("description.txt")
        if "datasets" in index:
            names = [_name(entry["dataset_path"]) for entry in index["datasets"]]
            is_ours = all(_has_cut(entry, dataset) for entry in index["datasets"])
            is_ours = is_ours and index["size"] in {None, len(samples)}
            is_ours = is_ours and names == [_name(prefix) for prefix in dataset.prefixes]
            if is_ours and samples.dataset_index is not None:
                for name in ("dataset_index", "dataset_sample_index"):
                    yield Path(f"{stem}{name}.npy"), getattr(samples, name)
            continue
        for prefix, corpus in zip(dataset.prefixes, samples.corpora, strict=True):
            # A corpus without samples is not read, whatever its index contains.
            is_ours = len(corpus) > 0 and index.get("num_samples") == corpus.num_samples
            if is_ours and _name(prefix) == _name(index.get("dataset_path", "")) and _has_cut(index, dataset):
                for name in ("document_index", "sample_index", "shuffle_index"):
                    yield Path(f"{stem}{name}.npy"), getattr(corpus, name)


def _has_cut(index: dict[str, Any], dataset: MegatronDataset) -> bool:
    expected = dataset.cut.seq_length, dataset.cut.seed
    if (index.get("sequence_length"), index.get("random_seed")) != expected:
        return False
    # Without a split, the corpora belong to one part and are read as a whole.
    part = dataset.part
    return "split" not in index or share_of(index["split"], part) == share_of(dataset.split, part)


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
