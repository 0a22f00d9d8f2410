"""Checks the arguments of `TokenDataset`: files and corpora, windows, and Megatron's splits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import has_magic
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, get_args

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.layout import named_parts
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import add_suffix, is_remote, shown

SplitPart = Literal["train", "valid", "test"]
PARTS: Final[tuple[SplitPart, ...]] = get_args(SplitPart)

Dtype = np.dtype[Any]

KINDS: Final = ("u1", "i1", "u2", "i2", "i4", "u4", "i8")
"""The types that tokens may have."""

KINDS_HINT: Final = "tokens are u1, i1, u2, i2, i4, u4 or i8, little-endian"

Extent = tuple[float, float]
"""The begin and the end of a part, as shares of the whole."""


def share_of(split: Any, part: str) -> Extent:
    """Returns the extent of a part of a split; it is empty if the split has no such part.

    Args:
        split: a string of up to three numbers, which are divided by their sum; None for the whole.
        part: the name of the part.

    Raises:
        ArgumentTypeError: `split` is not a string.
        ArgumentValueError: it has no numbers, more than three, or only zeros.

    Example:
        >>> [share_of("3,1", part) for part in PARTS]
        [(0, 0.75), (0.75, 1.0), (1.0, 1.0)]

    Source: Megatron-LM's `--split`.
    """
    if split is None:
        return 0.0, 1.0
    if not isinstance(split, str):
        raise ArgumentTypeError("split", "must be a string such as '969,30,1'", split)
    try:
        numbers = [float(number) for number in re.findall(r"[.0-9]+", split)]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= len(PARTS) or not sum(numbers) > 0 or not np.isfinite(sum(numbers)):
        raise ArgumentValueError("split", "must be up to three numbers", split, hint="as in '969,30,1'")
    numbers += [0.0] * (len(PARTS) - len(numbers))
    weights = (np.array(numbers) / np.sum(numbers)).tolist()
    # The first border is the integer 0, as in Megatron's sum.
    return [*pairwise([0, *accumulate(weights)])][PARTS.index(part)]


def range_of(share: Extent, count: int) -> tuple[int, int]:
    """Returns the range [first, end) of `count` sequences or tokens that a share holds.

    Example:
        >>> range_of((0.969, 0.999), 400), range_of((0.999, 1.0), 400)
        ((388, 400), (400, 400))
    """
    # Halves round to the even number, as in Megatron.
    return round(share[0] * count), min(count, round(share[1] * count))


Documents = Literal["idx"] | int | None
"""How the borders of documents are found: by the index, by the token that ends documents, or not at all."""


class WindowSpec:
    """The arguments of `TokenDataset` of the same names, checked.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a word is not known, or the lengths do not fit together.
        ArgumentRangeError: a length is not positive.
    """

    def __init__(
        self,
        seq_len: Any,
        block_len: Any = None,
        dtype: Any = None,
        phase: Any = True,  # as in `TokenDataset`, where it is given by name
        seed: Any = 0,
        split: str | None = None,
        part: Any = "train",
        documents: Any = None,
    ) -> None:
        length = arguments.positive("seq_len", seq_len)
        block = length if block_len is None else arguments.positive("block_len", block_len)
        self.seq_len: Final = length
        self.block_len: Final = block
        self.dtype: Final = None if dtype is None else token_dtype("dtype", dtype)
        self.phase: Final = arguments.boolean("phase", phase)
        self.seed: Final = arguments.seed("seed", seed)
        self.split: Final = split
        self.part: Final = arguments.choice("part", part, PARTS)
        share_of(split, self.part)
        if isinstance(documents, str) and documents != "idx":
            raise ArgumentValueError("documents", "must be a token, or idx", documents)
        if documents is not None and not isinstance(documents, str):
            documents = arguments.integer("documents", documents)
        self.documents: Final[Documents] = documents
        if block % length:
            hint = f"use a multiple, such as {-(-block // length) * length}"
            raise ArgumentValueError("block_len", f"must be a multiple of seq_len={length}", block, hint=hint)
        if not self.phase and block != length:
            problem = "requires a phase: without one there are no blocks"
            raise ArgumentValueError("block_len", problem, block, hint="leave it out")


@dataclass(frozen=True)
class TokenPaths:
    """The paths of a token file and of its index.

    Args:
        data: the path or URL of the tokens.
        index: the path or URL of the `.idx`; None if there is none.
    """

    data: str
    index: str | None = None

    @classmethod
    def of(cls, path: str) -> TokenPaths:
        """Finds the paths for a name: `.npy`, raw `.bin`, an `.idx`, or the prefix of a `.bin` and an `.idx`.

        Example:
            >>> TokenPaths.of("web.bin"), TokenPaths.of("web.npy").index
            (TokenPaths(data='web.bin', index=None), None)
            >>> TokenPaths.of("web") == TokenPaths.of("web.idx")
            True
        """
        if shown(path).endswith((".npy", ".bin")):
            return cls(path)
        if shown(path).endswith(".idx"):
            query = r"([?#].*)?" if is_remote(path) else ""
            path = re.sub(rf"\.idx(?={query}$)", "", path, count=1)
        return cls(add_suffix(path, ".bin"), add_suffix(path, ".idx"))


def token_dtype(place: str, value: Any) -> Dtype:
    """Checks the dtype of tokens.

    Raises:
        ArgumentTypeError: `value` is not a numpy dtype.
        ArgumentValueError: tokens cannot have this dtype.
    """
    try:
        dtype: Dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(place, "must be a type of numpy's", value, hint=KINDS_HINT) from None
    if dtype.newbyteorder("<") != dtype or dtype.str[1:] not in KINDS:
        raise ArgumentValueError(place, "is not a type of tokens", dtype.str, hint=KINDS_HINT)
    return dtype


@dataclass(frozen=True)
class Corpus:
    """Token files that belong together.

    Args:
        path: the names that lead to the corpus in a tree; empty if there is only one corpus.
        names: the names of the files.
        files: the paths of the files.
    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[TokenPaths, ...]


def corpora_of(files: Any, options: RemoteOptions, path: tuple[str, ...] = ()) -> Iterator[Corpus]:
    """Finds the corpora of a path, a prefix, a pattern or a list of these; or of a mapping of these by name.

    Raises:
        ArgumentTypeError: `files` is neither paths nor a mapping.
        ArgumentValueError: no file, a file given twice, or an empty name.
        DatasetError: no file matches a pattern.
    """
    if not isinstance(files, Mapping):
        is_list = isinstance(files, list | tuple)
        paths = file_paths([*map(_literal, files)] if is_list else _literal(files), options)
        token_paths = tuple(map(TokenPaths.of, paths))
        # A prefix and its `.idx` are two names of one file.
        distinct_names(tuple(file.data for file in token_paths))
        yield Corpus(path, distinct_names(paths), token_paths)
        return
    for name in named_parts(dict.fromkeys(files)):
        yield from corpora_of(files[name], options, (*path, name))


def _literal(path: Any) -> Any:
    """Returns the `.idx` of a prefix that looks like a pattern, as `web[1]`, if that file exists."""
    is_path = isinstance(path, str | os.PathLike)
    return f"{path}.idx" if is_path and has_magic(f"{path}") and os.path.lexists(f"{path}.idx") else path
