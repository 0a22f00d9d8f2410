"""Writes documents of tokens into a `.bin` and an `.idx` that Megatron can read."""

import os
from array import array
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.intervals import edges_of
from samplerkit.storage.atomic import AtomicFile, Writing, atomic
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.tokens.arguments import token_dtype
from samplerkit.storage.tokens.token_files import HEADER, MAGIC, MEGATRON

_LONGEST = (1 << 31) - 1


@final
class TokenWriter(Writing):
    """Writes documents into one pair of a `.bin` and an `.idx`, one sequence per document.

    Both files are written under temporary names and renamed when they are complete, the `.idx` last: if it
    exists, its `.bin` is complete. If the `with` block is left by an error, no file remains. The same
    documents give the same bytes.

    Args:
        prefix: the common path of both files, without `.bin`.
        dtype: the type of the tokens, one that Megatron knows: any but `u4`.
        overwrite: whether existing files are replaced.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: Megatron does not know the type, the files exist, or the prefix is a URL.
        DatasetError: the files cannot be written.

    Example:
        >>> import tempfile, samplerkit as sk
        >>> prefix = tempfile.mkdtemp() + "/corpus"
        >>> with TokenWriter(prefix, "uint16") as writer:
        ...     for document in ([5, 6, 7, 0], [8, 9, 0]):
        ...         writer.write(document)
        >>> sk.TokenDataset(prefix, 6, phase=False).spans(0)
        [(0, 0, 0, 4), (0, 1, 0, 3)]
    """

    def __init__(
        self, prefix: str | os.PathLike[str], dtype: Any = "uint16", *, overwrite: bool = False
    ) -> None:
        path = one_path("prefix", prefix, "write to a local folder, and upload its files")
        self._dtype: Final = token_dtype("dtype", dtype)
        codes = {name: code for code, name in MEGATRON.items()}
        if self._dtype.str[1:] not in codes:
            raise ArgumentValueError("dtype", "has no code in an .idx", self._dtype.name, hint="take int32")
        self._code: Final = codes[self._dtype.str[1:]]
        self.paths: Final = tuple(Path(f"{path}{suffix}") for suffix in (".bin", ".idx"))
        self._is_overwritten: Final = arguments.boolean("overwrite", overwrite)
        if (existing := self._existing()) is not None:
            hint = "give another prefix, or replace it by overwrite=True"
            raise ArgumentValueError("prefix", "exists already", str(existing), hint=hint)
        self._lengths = array("i")
        self._file: AtomicFile | None = None

    def write(self, tokens: Any) -> None:
        """Writes a document.

        Args:
            tokens: integers, in a list or an array of shape (tokens,).

        Raises:
            ArgumentTypeError: `tokens` is not a flat list of integers.
            ArgumentRangeError: the type cannot hold a token, or there are 2^31 tokens or more.
            DatasetError: the file cannot be written, or was closed.
        """
        values = arguments.integers("tokens", tokens)
        if values.ndim != 1:
            raise ArgumentTypeError("tokens", "must be a flat list of integers", tokens)
        limits = np.iinfo(self._dtype)
        wrong = values[(values < limits.min) | (values > limits.max)]
        if wrong.size:
            problem = f"holds a token that {self._dtype} cannot hold, document {len(self._lengths)}"
            raise ArgumentRangeError("tokens", problem, int(wrong[0]), hint="take a larger dtype")
        if values.size > _LONGEST:
            raise ArgumentRangeError("tokens", "must be fewer than 2^31", values.size)
        with self._writing(self.paths[0]):
            self._open_file().file.write(values.astype(self._dtype, copy=False).tobytes())
        self._lengths.append(values.size)

    def close(self) -> None:
        """Completes both files and gives them their final names.

        Raises:
            DatasetError: they cannot be written; or another writer wrote them, and `overwrite` is False.
        """
        if self._is_closed:
            return
        if (existing := self._existing()) is not None:
            self.abort()
            hint = "give each writer a prefix of its own"
            raise DatasetError(str(existing), "was written by another one meanwhile", hint=hint)
        with self._writing(self.paths[0]):
            data = self._open_file()
            # An index of other tokens must never be next to these.
            self.paths[1].unlink(missing_ok=True)
            data.finish()
            with atomic(self.paths[1]) as file:
                file.write(self._index())
        self._is_closed = True

    def abort(self) -> None:
        """Discards the documents that were written."""
        self._is_closed = True
        if self._file is not None:
            self._file.drop()

    def _existing(self) -> Path | None:
        """Returns a file that exists already and must not be replaced."""
        # Path's own method raises if a name is too long.
        paths = () if self._is_overwritten else self.paths
        return next((path for path in paths if os.path.lexists(path)), None)

    def _open_file(self) -> AtomicFile:
        self._require_open(str(self.paths[0]))
        if self._file is None:
            self.paths[0].parent.mkdir(parents=True, exist_ok=True)
            self._file = AtomicFile(self.paths[0])
        return self._file

    def _index(self) -> bytes:
        lengths = np.array(self._lengths, dtype="<i4")
        pointers = edges_of(lengths)[:-1] * self._dtype.itemsize
        documents = np.arange(lengths.size + 1, dtype="<i8")
        header = HEADER.pack(MAGIC, 1, self._code, lengths.size, documents.size)
        return b"".join((header, lengths.tobytes(), pointers.tobytes(), documents.tobytes()))
