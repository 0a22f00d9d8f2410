"""A dataset of windows of tokens in files; positions of windows are computed, without an index of windows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import file_number
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.batches import BatchesAhead
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.per_process import OpenPerProcess, storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import weak_method
from samplerkit.storage.tokens.arguments import Documents, SplitPart, WindowSpec, corpora_of
from samplerkit.storage.tokens.outputs import OutputSpec, TokenDocuments
from samplerkit.storage.tokens.source import DocumentSpan, Rows, TokenSource
from samplerkit.storage.urls import is_remote

Fetch = Literal["ranges", "shards"]
"""How remote tokens are read: by range requests for windows, or from whole files that are fetched."""


@final
class TokenDataset(OpenPerProcess[Any]):
    """A map-style dataset of windows of `seq_len` tokens and the next token, from token files.

    Each file is read as a ring that begins at another token in each epoch, its phase: each token is an input
    exactly once per epoch, except those that do not fill a block. Windows never cross files. There is no
    index of windows: the position of window `i` is computed, and the window is read by `pread`.

    Args:
        files: the prefix of Megatron's `.bin` and `.idx`, an `.idx`, a raw `.bin` or an `.npy` array; a
            pattern of these, or a list; paths or URLs. A mapping of these by name makes a tree of corpora.
        seq_len: the number of tokens of a window, S; rows have one more, for the labels.
        block_len: the number of tokens of a block, K: a multiple of `seq_len`, and of each later `seq_len`;
            None for `seq_len`. A `BlockSampler` orders blocks, so that `seq_len` may change between them.
        dtype: the type of the stored tokens, `u1`, `i1`, `u2`, `i2`, `i4`, `u4` or `i8`; required for raw
            files.
        phase: whether each epoch begins at another token. For evaluation use False: full windows, from the
            first token on.
        seed: the seed of the phases.
        split: Megatron's split, such as "969,30,1": each file is cut into parts, by sequences if it has an
            index, otherwise by tokens. Each part is a separate ring.
        part: the part of the split to read, `train`, `valid` or `test`.
        documents: how the borders of documents are found: `idx`, or the token that ends documents; None if
            they are not needed.
        outputs: any of `tokens`, `labels`, `loss_mask`, `position_ids`, `cu_seqlens` and `documents`; None
            for the tokens. A single one is returned as an array, several as a dict of arrays by name.
        as_dtype: the type of the returned tokens.
        vocab_size: the size of the tokenizer's vocabulary: a token outside [0, vocab_size) is an error. None
            for no check.
        remote: how URLs are read: `RemoteOptions`, or a mapping of their fields.
        fetch: `ranges` requests the windows of a batch in parallel; `shards` fetches whole files into the
            cache of this machine.

    Attributes:
        seq_len: S.
        block_len: K.
        windows_per_block: K / S.
        vocab_size: the argument.
        files: the paths and URLs of the data.
        is_remote: whether some are remote.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `block_len` is not a multiple of `seq_len`, a name is not known, or a file is
            given twice.
        ArgumentRangeError: a length is not positive.
        DatasetError: later, at first use: a file is missing, was cut or changed, or contradicts its index; or
            there is no window.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "corpus.npy")
        >>> np.save(path, np.arange(10, dtype=np.uint16))
        >>> data = TokenDataset(path, 4, phase=False)
        >>> len(data), data[1], data.spans(1)
        (2, array([4, 5, 6, 7, 8]), [(0, None, 4, 5)])
        >>> TokenDataset(path, 4, seed=6).__getitems__([0, 1])
        array([[2, 3, 4, 5, 6],
               [6, 7, 8, 9, 0]])
    """

    enters_draws = True
    """A Loader that seeds draws need not read samples one at a time: reading them draws nothing."""

    def __init__(
        self,
        files: Any,
        seq_len: int,
        *,
        block_len: int | None = None,
        dtype: Any = None,
        phase: bool = True,
        seed: int = 0,
        split: str | None = None,
        part: SplitPart = "train",
        documents: Documents = None,
        outputs: Sequence[str] | None = None,
        as_dtype: Any = "int64",
        vocab_size: int | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
        fetch: Fetch = "ranges",
    ) -> None:
        self._spec: Final = WindowSpec(seq_len, block_len, dtype, phase, seed, split, part, documents)
        self.seq_len: Final = self._spec.seq_len
        self.block_len: Final = self._spec.block_len
        self.windows_per_block: Final = self.block_len // self.seq_len
        self._output_spec: Final = OutputSpec(outputs, as_dtype, vocab_size)
        self.outputs: Final = self._output_spec.names
        self.vocab_size: Final = self._output_spec.vocab_size
        options = RemoteOptions.of(remote)
        self._fetch: Final = arguments.choice("fetch", fetch, get_args(Fetch))
        self._corpora: Final = tuple(corpora_of(files, options))
        self.files: Final = tuple(path.data for corpus in self._corpora for path in corpus.files)
        self.is_remote: Final = any(map(is_remote, self.files))
        super().__init__(storage_for(self.is_remote, None, options))
        self.epoch = 0

    @property
    def wants_epochs(self) -> bool:
        """Whether a `Loader` passes the epoch of its source with each id: each epoch has another phase.

        So a source that a mixture reads repeatedly has another phase in each pass, and keeps it if a pass
        continues in the next epoch.
        """
        return self._spec.phase

    @property
    def layout(self) -> Layout:
        """The number of windows of each file; a tree if corpora have names. The first access opens files."""
        return self._source.layout

    @cached_property
    def block_layout(self) -> Layout:
        """The number of blocks of each file: what a `BlockSampler` orders."""
        return self._source.rings.layout(self._source.rings.blocks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tokens in the files. The first access opens the files."""
        return self._source.dtype

    @property
    def token_counts(self) -> Ids:
        """The number of tokens of each file, which the layout divides into windows; shape (files,)."""
        return self._source.rings.tokens

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be returned without requests for remote files."""
        return not self.is_remote or "_source" in self.__dict__

    @property
    def fingerprint(self) -> str:
        """A string that changes with the order of tokens; it does not depend on `seq_len`."""
        return self._source.fingerprint

    def of_first_parts(self, count: int) -> TokenSource:
        """Returns the source of the first corpora: the tree before the others were appended."""
        first = list(self.layout.parts)[:count]
        return self._source.of_first(sum(corpus.path[0] in first for corpus in self._corpora))

    @property
    def stats(self) -> FileStats | None:
        """Counts of remote storage in this process; None if all files are local.

        Those of worker processes are in `stats.dataset` of the `Loader`.
        """
        return None if self._storage is None else self._stats

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """Receives the ids of each upcoming batch of this process, to request the next batch in advance.

        A `Loader` calls this. None if files are local, or are fetched whole.
        """
        return self._expect if self.is_remote and self._fetch == "ranges" else None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the phases depend; a `Loader` calls this."""
        self.epoch = arguments.epoch(epoch)

    def spans(self, id: int, *, epoch: int | None = None) -> list[DocumentSpan]:
        """Returns the parts of documents that make up a window, including its last label.

        Args:
            id: the id of the window.
            epoch: the epoch of its source, as for `__getitems__`; None for the epoch that was set.

        Returns:
            For each part: the number of the file in the layout, the number of the document in its index (of
            the sequence, as Megatron calls it), the first token in that document, and the number of tokens.
            Without an index the document is None, and tokens are counted from the beginning of the file.
        """
        (window,) = checked_ids([arguments.integer("id", id)], len(self)).tolist()
        return self._source.spans(window, self.epoch if epoch is None else arguments.epoch(epoch))

    def windows_of(self, document: int, *, file: int | str = 0) -> Ids:
        """Returns the windows that may hold a document: the inverse of `spans`.

        Args:
            document: the number of the document in its index, as `spans` returns it.
            file: the number or the name of the file in the layout.

        Returns:
            The ids of the windows that hold a token of the document at any phase: the windows that it fills,
            and about one block more. Without phases, the windows that hold a token of it.

        Raises:
            ArgumentValueError: no file has that name.
            DatasetError: the file has no index.
            OutOfDatasetError: the file or document does not exist, or is in another part of the split.

        Example:
            >>> import os, tempfile, samplerkit as sk
            >>> prefix = os.path.join(tempfile.mkdtemp(), "corpus")
            >>> with sk.TokenWriter(prefix, "uint16") as writer:
            ...     for length in (6, 3, 8):
            ...         writer.write(np.arange(length))
            >>> data = TokenDataset(prefix, 4, phase=False)
            >>> data.windows_of(1), data.spans(1)
            (array([1, 2]), [(0, 0, 4, 2), (0, 1, 0, 3)])
        """
        number = arguments.integer("document", document)
        return self._source.windows_of(file_number(self.layout, file), [number])[0]

    def windows_of_documents(
        self, documents: Mapping[int | str, Iterable[int]]
    ) -> tuple[Ids, dict[int | str, Ids]]:
        """Returns the windows of documents, for `Edit(without=)`, and the other documents in them.

        Args:
            documents: for each file, the numbers of documents, as for `windows_of`.

        Returns:
            The ids of the windows; and, by file, the other documents of which these windows hold tokens at
            any phase. A run without these windows also lacks those tokens.

        Raises:
            ArgumentTypeError: `documents` is not a mapping, or a number is not an integer.
            ArgumentValueError: no file has that name.
            DatasetError: the file has no index.
            OutOfDatasetError: the file or document does not exist, or is in another part of the split.

        Example:
            >>> import os, tempfile, samplerkit as sk
            >>> prefix = os.path.join(tempfile.mkdtemp(), "corpus")
            >>> with sk.TokenWriter(prefix, "uint16") as writer:
            ...     for length in (6, 3, 8):
            ...         writer.write(np.arange(length))
            >>> TokenDataset(prefix, 4, phase=False).windows_of_documents({0: [1]})
            (array([1, 2]), {0: array([0, 2])})
        """
        if not isinstance(documents, Mapping) or not all(map(arguments.is_iterable, documents.values())):
            raise ArgumentTypeError("documents", "must be a mapping of files to numbers", documents)
        ids, others = [np.zeros(0, np.int64)], {}
        for file, group in documents.items():
            numbers = [arguments.integer("document", document) for document in group]
            windows, others[file] = self._source.windows_of(file_number(self.layout, file), numbers)
            ids.append(windows)
        return np.unique(np.concatenate(ids)), others

    def as_documents(self) -> TokenDocuments:
        """Returns a dataset of whole documents, with `lengths`, for packs.

        Raises:
            DatasetError: a file has no index, and `documents` is not the token that ends documents.
        """
        return TokenDocuments(self._source, self._output_spec.dtype)

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Any:
        """Returns a window: an array of shape (S + 1,), or a dict of arrays."""
        return self._read(np.array([checked_index(index, self, "windows")]), None, is_alone=True)

    def __getitems__(self, ids: Iterable[int], epochs: Ids | None = None) -> Any:
        """Returns a batch; it is read file by file, in the order of windows.

        Args:
            ids: the ids of windows, in [0, len), as a list or an array.
            epochs: for each id, the epoch of its source, which sets the phase: the epoch, plus 2^40 for each
                further pass within it. None for the epoch that was set.

        Returns:
            An array of shape (batch, S + 1), or a dict of arrays if there are several outputs.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a file cannot be read, or was cut or changed; or it holds a token outside
                [0, vocab_size).
        """
        windows = checked_ids(ids, len(self))
        checked = None if epochs is None else arguments.integers("epochs", epochs)
        if checked is not None and (checked.shape != windows.shape or (checked < 0).any()):
            raise ArgumentValueError("epochs", "must be one for each id, and not negative", epochs)
        return self._read(windows, checked)

    def close(self) -> None:
        """Closes files and connections. The dataset can be used again."""
        super().close()
        if "_source" in self.__dict__:
            self._source.opened.data.close()

    def __repr__(self) -> str:
        blocks = "" if self.block_len == self.seq_len else f", block_len={self.block_len}"
        return f"TokenDataset({len(self.files)} files, seq_len={self.seq_len}{blocks})"

    @cached_property
    def _source(self) -> TokenSource:
        """The source; the first access opens the files."""
        source = TokenSource.of(self._corpora, self._spec, self._storage, whole=self._fetch == "shards")
        self._output_spec.require_castable(source.dtype, source.files[0].name)
        return source

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        ahead = self._processes.current().open(self, partial(WindowsAhead, self._source))
        ahead.expect(upcoming, self.epoch)

    def _read(self, ids: Ids, epochs: Ids | None, *, is_alone: bool = False) -> Any:
        ahead = self._processes.current().open_files if self.is_remote else None
        rows = (ahead or self._source).rows(ids, self.epoch if epochs is None else epochs)
        if self.vocab_size is not None:
            self._source.require_below(self.vocab_size, *rows)
        borders = self._source.borders(*rows) if self._output_spec.need_borders else None
        return self._output_spec.build(rows[0], borders, is_alone=is_alone)


class WindowsAhead:
    """Prefetches the windows that a process reads next.

    The upcoming batches are given as ids only, but the position of a window also depends on the epoch of its
    source. The epoch in which windows of the same corpus were last read is assumed; when a pass ends, the
    epoch is another one, and windows that were prefetched for the old one are read again.
    """

    def __init__(self, source: TokenSource, stats: FileStats) -> None:
        self.stats: Final = stats
        self._source: Final = source
        self._epochs = np.zeros(len(source.rings.corpora), dtype=np.int64)
        self._batches: BatchesAhead[tuple[Ids, Rows]] | None = None

    def expect(self, upcoming: Iterable[Any], epoch: int) -> None:
        """Receives the ids of each upcoming batch, and the epoch in which they begin."""
        self.close(waits=False)
        self._epochs = np.full_like(self._epochs, epoch)
        self._batches = BatchesAhead(weak_method(self._read), upcoming)

    def rows(self, ids: Ids, epochs: Ids | int) -> Rows:
        """Reads windows, as `TokenSource.rows` does."""
        batches, epochs = self._batches, np.broadcast_to(epochs, ids.shape)
        if batches is None or not ids.size:
            return self._source.rows(ids, epochs)
        # Before the next batch is begun, which may happen while this one is awaited.
        self._epochs[self._source.rings.corpora_of(ids)] = epochs
        guessed, (rows, files, begins) = batches.read(ids)
        wrong = np.flatnonzero(guessed != epochs)
        if self._source.rings.spec.phase and wrong.size:
            rows[wrong], files[wrong], begins[wrong] = self._source.rows(ids[wrong], epochs[wrong])
        return rows, files, begins

    def close(self, *, waits: bool = True) -> None:
        """Ends the thread after its current read; `waits` for it for at most a second."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close(waits=waits)

    def _read(self, ids: Ids) -> tuple[Ids, Rows]:
        epochs = self._epochs[self._source.rings.corpora_of(ids)]
        return epochs, self._source.rows(ids, epochs)
