"""Windows of tokens whose length is to change: by an order that does not survive it, or that steps miss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.tokens import token_figures

MOST_LOST = 0.01
"""So many of the tokens may lie in files of which nothing is read."""


def seq_len_is_fixed(patient: Patient) -> Iterator[Finding]:
    """Blocks of several windows, in an order of windows; or pools at whose ends no step ends."""
    view = patient.view
    if view is None or view.recipe is not None or view.run.tokens is None:
        return
    tokens = view.run.tokens
    if tokens.pool is None and tokens.pieces > 1 and not patient.is_evaluation:
        yield Finding(
            "seq-len-fixed",
            "warning",
            f"blocks of {tokens.block_len} tokens let seq_len change, and the order is one of windows, which "
            "does not survive that",
            "read by sk.BlockSampler, or leave block_len out",
        )
        return
    found = token_figures(view, view.epoch, len(view.run.undealt(view.epoch)))
    if found is not None and tokens.pool is not None and found.steps_to_a_change is None:
        yield Finding(
            "pools-missed",
            "warning",
            f"steps of {found.tokens_a_step} tokens never end with a pool of {tokens.pool} blocks of "
            f"{found.block_len} tokens within an epoch: seq_len may change at the end of one alone",
            "make pool * block_len a multiple of the tokens a step",
        )


def evaluation_with_phase(patient: Patient) -> Iterator[Finding]:
    """Windows in the order of their files, which begin at another token in each epoch."""
    # Known by its looks: this room does not know that of tokens.
    has_phase = getattr(patient.dataset, "wants_epochs", False) is True
    if not (patient.is_evaluation and has_phase and hasattr(patient.dataset, "windows_per_block")):
        return
    yield Finding(
        "evaluation-with-phase",
        "warning",
        "windows of tokens are read in order, as for an evaluation, and each epoch begins at another token: "
        "no two evaluations read the same windows",
        "say TokenDataset(..., phase=False) for evaluation, or shuffle",
    )


def vocabulary_beyond_dtype(patient: Patient) -> Iterator[Finding]:
    """A tokenizer with more tokens than the type of the files has numbers."""
    dataset = patient.dataset
    vocab_size, dtype = getattr(dataset, "vocab_size", None), getattr(dataset, "dtype", None)
    if not isinstance(vocab_size, int) or not isinstance(dtype, np.dtype) or dtype.kind not in "iu":
        return
    largest = int(np.iinfo(dtype).max)
    if vocab_size - 1 > largest:
        yield Finding(
            "vocabulary-beyond-dtype",
            "error",
            f"the tokenizer has {vocab_size} tokens, and files of {dtype} hold none above {largest}: those "
            "above were written as others, or it is another tokenizer",
            "write the files anew with a type that holds all tokens, such as int32",
        )


def short_files(patient: Patient) -> Iterator[Finding]:
    """Files that hold less than a block, of which nothing is read."""
    dataset = patient.dataset
    blocks = getattr(dataset, "block_layout", None)
    counts = getattr(dataset, "token_counts", None)
    if blocks is None or counts is None:
        return
    is_short = blocks.sizes == 0
    lost, total = int(counts[is_short].sum()), int(counts.sum())
    if lost > MOST_LOST * total:
        yield Finding(
            "short-files",
            "warning",
            f"{100 * lost / total:.1f} % of the tokens are in {int(is_short.sum())} files shorter than a "
            f"block of {dataset.block_len}, of which nothing is read",
            "join files when tokenising, or say a shorter block_len",
        )
