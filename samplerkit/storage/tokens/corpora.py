"""The corpora that a user names: files of tokens, or a tree of them by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.layout import Layout, named_parts
from samplerkit.order.typing import Ids
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tokens.formats import TokenPaths


@final
@dataclass(frozen=True)
class Corpus:
    """Files of tokens that belong together.

    Args:
        path: the names that lead there in a tree; none where there is one corpus only.
        names: of the files.
        files: where they lie.
    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[TokenPaths, ...]


def corpora_of(files: Any, options: RemoteOptions, path: tuple[str, ...] = ()) -> Iterator[Corpus]:
    """Takes what a user names: a path, a prefix, a pattern or a list of these; or a mapping of them by name.

    Raises:
        ArgumentTypeError: neither paths nor a mapping.
        ArgumentValueError: no file, one that is named twice, or an empty name.
        DatasetError: nothing matches a pattern.
    """
    if not isinstance(files, Mapping):
        paths = file_paths(files, options)
        read = tuple(map(TokenPaths.of, paths))
        # A prefix and its `.idx` are one file by two names.
        distinct_names(tuple(each.data for each in read))
        yield Corpus(path, distinct_names(paths), read)
        return
    for name, part in files.items():
        named_parts({name: None})
        yield from corpora_of(part, options, (*path, name))
    if not files:
        named_parts(files)


def layout_of(corpora: Sequence[Corpus], sizes: Ids) -> Layout:
    """Gives the layout, a tree where corpora have names."""
    ends = np.cumsum([len(corpus.files) for corpus in corpora])[:-1]
    shares = np.split(sizes, ends)
    return _tree(
        [(corpus.path, Layout(share, corpus.names)) for corpus, share in zip(corpora, shares, strict=True)]
    )


def _tree(leaves: Sequence[tuple[tuple[str, ...], Layout]]) -> Layout:
    if not leaves[0][0]:
        return leaves[0][1]
    parts: dict[str, list[tuple[tuple[str, ...], Layout]]] = {}
    for path, leaf in leaves:
        parts.setdefault(path[0], []).append((path[1:], leaf))
    return Layout.tree({name: _tree(inner) for name, inner in parts.items()})
