"""Datasets: parts of trees, and windows of tokens whose length is to change, or whose files do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

from samplerkit.inspect.doctor.findings import Fault, Faults, any_loader, order, rule, run
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection
from samplerkit.order.layout import Layout

MOST_LOST = 0.01
"""So many of the tokens may be in files of which nothing is read."""

_NOT_PASSED_ON = ("__getitems__", "expect", "set_epoch")
"""What a `ConcatDataset` does not pass on to its parts."""


@rule("warning", run)
def empty_part(seen: InspectedRun) -> Faults:
    """A part of a tree holds no sample."""
    empty = ["/".join(path) for path, leaf in seen.view.layout.leaves if path and not len(leaf)]
    if empty:
        yield Fault(
            f"{_named(empty)} of the tree {'holds' if len(empty) == 1 else 'hold'} no sample",
            "see whether its files are where it looks for them, or leave it out",
        )


@rule("warning", any_loader)
def same_part(seen: Inspection) -> Faults:
    """Parts of a tree are one dataset, whose samples come more often than is meant."""
    places: dict[Any, list[str]] = {}
    for name, dataset in _leaves("", seen.dataset):
        files = getattr(dataset, "files", None)
        what = tuple(files) if isinstance(files, list | tuple) and files else id(dataset)
        places.setdefault(getattr(dataset, "fingerprint", None) or what, []).append(name)
    for names in places.values():
        if len(names) > 1:
            yield Fault(
                f"{_named(names)} of the tree are one dataset: its samples have an id in each",
                "leave one out and give the other its weight; read more often, it has a pass more",
            )


@rule("warning", any_loader)
def parts_not_told(seen: Inspection) -> Faults:
    """A ConcatDataset reads its parts one by one, and passes on neither `expect` nor `set_epoch`."""
    dataset = seen.dataset
    if type(dataset) is not ConcatDataset:
        return
    lost = {
        name for part in dataset.datasets for name in _NOT_PASSED_ON if callable(getattr(part, name, None))
    }
    if lost:
        yield Fault(
            f"a ConcatDataset of {len(dataset.datasets)} parts hands {', '.join(sorted(lost))} on to none: "
            "they are read one by one, and not ahead",
            "say sk.TreeDataset({'name': part, ...}), over which the same orders work",
        )


@rule("warning", order)
def seq_len_fixed(seen: InspectedRun) -> Faults:
    """`block_len` lets `seq_len` change, and the order is one of windows, not of blocks."""
    tokens = seen.figures.windows
    if tokens is None or tokens.pool is not None or seen.is_evaluation:
        return
    if tokens.windows_per_block > 1:
        yield Fault(
            f"blocks of {tokens.block_len} tokens let seq_len change, and the order is one of windows, which "
            "does not survive that",
            "read by sk.BlockSampler, or leave block_len out",
        )


@rule("warning", order)
def pools_missed(seen: InspectedRun) -> Faults:
    """No step ends with a pool of a `BlockSampler`, where alone `seq_len` may change."""
    pool = None if seen.figures.windows is None else seen.figures.windows.pool
    figures = None if pool is None else seen.figures.tokens
    if figures is not None and figures.steps_to_a_change is None:
        yield Fault(
            f"steps of {figures.tokens_a_step} tokens never end with a pool of {pool} blocks of "
            f"{figures.block_len} tokens within an epoch: seq_len may change at the end of one alone",
            "make pool * block_len a multiple of the tokens a step",
        )


@rule("warning", any_loader)
def evaluation_with_phase(seen: Inspection) -> Faults:
    """Windows of tokens are read in order, and begin at another token in each epoch."""
    # Known by its attributes: this room does not know that of tokens.
    has_phase = getattr(seen.dataset, "wants_epochs", False) is True
    if seen.is_evaluation and has_phase and hasattr(seen.dataset, "windows_per_block"):
        yield Fault(
            "windows of tokens are read in order, as for an evaluation, and each epoch begins at another "
            "token: no two evaluations read the same windows",
            "say TokenDataset(..., phase=False) for evaluation, or shuffle",
        )


@rule("error", any_loader)
def vocabulary_beyond_dtype(seen: Inspection) -> Faults:
    """`vocab_size` of the tokenizer is more than the type of the files can hold."""
    vocab_size, dtype = getattr(seen.dataset, "vocab_size", None), getattr(seen.dataset, "dtype", None)
    if not isinstance(vocab_size, int) or not isinstance(dtype, np.dtype) or dtype.kind not in "iu":
        return
    largest = int(np.iinfo(dtype).max)
    if vocab_size - 1 > largest:
        yield Fault(
            f"the tokenizer has {vocab_size} tokens, and files of {dtype} hold none above {largest}: those "
            "above were written as others, or it is another tokenizer",
            "write the files again with a type that holds all tokens, such as int32",
        )


@rule("warning", any_loader)
def short_files(seen: Inspection) -> Faults:
    """More than one token in a hundred is in files shorter than a block."""
    blocks, counts = (getattr(seen.dataset, name, None) for name in ("block_layout", "token_counts"))
    if blocks is None or counts is None:
        return
    is_short = blocks.sizes == 0
    lost, total = int(counts[is_short].sum()), int(counts.sum())
    if lost > MOST_LOST * total:
        yield Fault(
            f"{100 * lost / total:.1f} % of the tokens are in {int(is_short.sum())} files shorter than a "
            f"block of {seen.dataset.block_len}, of which nothing is read",
            "join files when tokenising, or say a shorter block_len",
        )


def _leaves(name: str, dataset: Any) -> Iterator[tuple[str, Any]]:
    parts = getattr(dataset, "parts", None)
    if isinstance(getattr(dataset, "layout", None), Layout) and isinstance(parts, Mapping):
        for key, part in parts.items():
            yield from _leaves(f"{name}/{key}".removeprefix("/"), part)
    else:
        yield name, dataset


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
    return f"part{'' if len(names) == 1 else 's'} {shown}"
