"""Rules about datasets: parts of trees, windows of tokens, and files that do not fit ranks or caches."""

from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

from samplerkit.inspect.costs import COUNTED_SAMPLES, MAX_BATCHES, dataset_at
from samplerkit.inspect.doctor.findings import Fault, Faults, rule
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection, PlannedRun
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Shuffle
from samplerkit.order.sequences import LaneWeave
from samplerkit.samplers.mixing.mixture import MixtureSampler

MAX_LOST = 0.01
"""The share of tokens that may be in files of which nothing is read."""

MAX_PASSES = 4
"""The most passes over a source."""

MAX_DIFFERENCE = 1 / 3
"""The largest difference between the shares of tokens and of documents, relative to that of documents."""

_DROPPED_METHODS = ("__getitems__", "expect", "set_epoch")
"""Methods that a `ConcatDataset` does not call on its parts."""


@rule("warning", Inspection.run)
def empty_part(setup: InspectedRun) -> Faults:
    """The dataset, or a part of a tree, has no samples.

    Hint:
        see whether its files are where it looks for them, or leave it out
    """
    if not len(setup.view.layout):
        yield Fault("the dataset holds no sample: an epoch has no batch", severity="error")
        return
    empty = ["/".join(path) for path, leaf in setup.view.layout.leaves if path and not len(leaf)]
    if empty:
        yield Fault(f"{_list_parts(empty)} of the tree {'holds' if len(empty) == 1 else 'hold'} no sample")


@rule("warning", Inspection.any_loader)
def same_part(setup: Inspection) -> Faults:
    """Parts of a tree are the same dataset, whose samples are read more often than intended.

    Hint:
        leave one out and give the other its weight; read more often, it has a pass more
    """
    places: dict[Any, list[str]] = {}
    layout = getattr(setup.dataset, "layout", None)
    for path, _ in layout.leaves if isinstance(layout, Layout) else ():
        dataset = dataset_at(setup.dataset, path)
        files = getattr(dataset, "files", None)
        identity = tuple(files) if isinstance(files, list | tuple) and files else id(dataset)
        places.setdefault(getattr(dataset, "fingerprint", None) or identity, []).append("/".join(path))
    for names in places.values():
        if len(names) > 1:
            yield Fault(f"{_list_parts(names)} of the tree are one dataset: its samples have an id in each")


@rule("warning", Inspection.any_loader)
def parts_hidden(setup: Inspection) -> Faults:
    """A ConcatDataset reads samples one by one, and passes on neither `expect` nor `set_epoch`.

    Hint:
        use sk.TreeDataset({'name': part, ...}), over which the same orders work
    """
    dataset = setup.dataset
    if type(dataset) is not ConcatDataset:
        return
    lost = {
        name for part in dataset.datasets for name in _DROPPED_METHODS if callable(getattr(part, name, None))
    }
    if lost:
        yield Fault(
            f"a ConcatDataset of {len(dataset.datasets)} parts passes {', '.join(sorted(lost))} on to none: "
            "samples are read one by one, and not prefetched"
        )


@rule("warning", Inspection.run_with_order)
def read_too_often(setup: InspectedRun) -> Faults:
    """A source of a mixture is read more than four times by the end of this epoch."""
    for name, usage in setup.figures.sources.items():
        if usage.passes > MAX_PASSES:
            yield Fault(
                f"source {name!r} is read {usage.passes:.1f} times by the end of epoch {setup.view.epoch}: a "
                f"model learns little from more than {MAX_PASSES} passes",
                f"use max_passes={{{name!r}: {MAX_PASSES}}} in the MixtureSampler, or give it less weight",
            )


@rule("warning", Inspection.run_with_plan)
def weights_of_documents(setup: PlannedRun) -> Faults:
    """A mixture is weighted by documents, and its shares of tokens differ by more than a third.

    Hint:
        use MixtureSampler(..., by='tokens') if weights are meant to be shares of tokens
    """
    mixture = setup.run.chain[-1] if setup.run.chain else None
    if not isinstance(mixture, MixtureSampler) or mixture.by != "samples" or mixture.weights is None:
        return
    for name, source in setup.run.figures.sources.items():
        share = source.share_of_tokens
        if share is not None and abs(share - source.share) > MAX_DIFFERENCE * source.share:
            yield Fault(
                f"source {name!r} is {100 * source.share:.1f} % of the documents, by its weight, and "
                f"{100 * share:.1f} % of the tokens"
            )
            return


@rule("warning", Inspection.run_with_order)
def seq_len_fixed(setup: InspectedRun) -> Faults:
    """`block_len` lets `seq_len` change, but the order is one of windows, not of blocks.

    Hint:
        read by sk.BlockSampler, or leave block_len out
    """
    windows = setup.view.run.unit
    if not isinstance(windows, TokenWindowUnit) or windows.pool is not None or setup.is_evaluation:
        return
    if windows.windows_per_block > 1:
        yield Fault(
            f"blocks of {windows.block_len} tokens let seq_len change, but the order is one of windows, "
            "which such a change breaks"
        )


@rule("warning", Inspection.run_with_order)
def pools_missed(setup: InspectedRun) -> Faults:
    """No step ends with a pool of a `BlockSampler`, but `seq_len` may change only there.

    Hint:
        make pool * block_len a multiple of the tokens a step
    """
    windows = setup.view.run.unit
    if not isinstance(windows, TokenWindowUnit) or windows.pool is None:
        return
    figures = setup.figures.tokens
    if figures is not None and figures.steps_to_a_change is None:
        yield Fault(
            f"steps of {figures.tokens_a_step} tokens never end with a pool of {windows.pool} blocks of "
            f"{figures.block_len} tokens within an epoch: seq_len may change only at the end of one"
        )


@rule("warning", Inspection.any_loader)
def evaluation_with_phase(setup: Inspection) -> Faults:
    """Windows of tokens are read in order, and begin at another token in each epoch.

    Hint:
        use TokenDataset(..., phase=False) for evaluation, or shuffle
    """
    # Recognized by its attributes: this package does not import that of tokens.
    has_phase = getattr(setup.dataset, "wants_epochs", False) is True
    if setup.is_evaluation and has_phase and hasattr(setup.dataset, "windows_per_block"):
        yield Fault(
            "windows of tokens are read in order, as for an evaluation, and each epoch begins at another "
            "token: no two evaluations read the same windows"
        )


@rule("error", Inspection.any_loader)
def vocabulary_beyond_dtype(setup: Inspection) -> Faults:
    """`vocab_size` of the tokenizer is larger than the dtype of the files can hold.

    Hint:
        write the files again with a type that holds all tokens, such as int32
    """
    vocab_size, dtype = getattr(setup.dataset, "vocab_size", None), getattr(setup.dataset, "dtype", None)
    if not isinstance(vocab_size, int) or not isinstance(dtype, np.dtype) or dtype.kind not in "iu":
        return
    largest = int(np.iinfo(dtype).max)
    if vocab_size - 1 > largest:
        yield Fault(
            f"the tokenizer has {vocab_size} tokens, and files of {dtype} hold none above {largest}: those "
            "above were written as others, or it is another tokenizer"
        )


@rule("warning", Inspection.any_loader)
def short_files(setup: Inspection) -> Faults:
    """More than one token in a hundred is in files shorter than a block.

    Hint:
        join files when tokenising, or use a shorter block_len
    """
    blocks, counts = (getattr(setup.dataset, name, None) for name in ("block_layout", "token_counts"))
    if blocks is None or counts is None:
        return
    is_short = blocks.sizes == 0
    lost, total = int(counts[is_short].sum()), int(counts.sum())
    if lost > MAX_LOST * total:
        yield Fault(
            f"{100 * lost / total:.1f} % of the tokens are in {int(is_short.sum())} files shorter than a "
            f"block of {setup.dataset.block_len}, of which nothing is read"
        )


def _list_parts(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
    return f"part{'' if len(names) == 1 else 's'} {shown}"


_SAME_SIZE_SHARE = 0.9
"""If at least this share of samples is in files of one size, all files count as equally large."""


@rule("error", Inspection.run)
def partial_size_in_file(setup: InspectedRun) -> Faults:
    """Each block of PARTIAL lies inside one file, so that no files are mixed."""
    mode, layout = setup.view.mode, setup.view.layout
    is_partial = setup.view.shuffle is Shuffle.PARTIAL and np.count_nonzero(layout.sizes) > 1
    if mode is None or mode.pools != 1 or not is_partial:
        return
    sizes, counts = np.unique(layout.sizes, return_counts=True)
    most = int(np.argmax(sizes * counts))
    size = int(sizes[most])
    starts = LaneWeave(len(layout), mode.lane_count(layout, setup.view.run.constants.lanes)).starts[:-1]
    is_aligned = bool(((starts % size) % mode.partial_size == 0).mean() > 0.5)
    share = size * int(counts[most]) / len(layout)
    if share >= _SAME_SIZE_SHARE and size % mode.partial_size == 0 and is_aligned:
        yield Fault(
            f"files hold {size} samples and blocks of PARTIAL {mode.partial_size}: each block lies inside "
            "one file, and no files are mixed",
            f"use partial_size={-(-size * 3 // 2)}, 1.5 times the file size, or more",
        )


@rule("warning", Inspection.run)
def few_files(setup: InspectedRun) -> Faults:
    """There are fewer files than ranks x workers, so that several workers open the same one."""
    files, ranks = setup.view.layout.num_files, setup.view.num_ranks
    workers = max(1, setup.view.num_workers)
    if setup.view.shuffle in FILE_AWARE and 0 < files < ranks * workers:
        yield Fault(
            f"{files} files for {ranks} ranks x {workers} workers: several read the same file",
            f"write at least {ranks * workers} files, or use fewer workers",
        )


@rule("warning", Inspection.run)
def lanes_do_not_divide(setup: InspectedRun) -> Faults:
    """Neither the number of lanes nor that of ranks divides the other, so that a rank reads more files."""
    lanes, ranks = setup.view.lanes, setup.view.num_ranks
    if lanes > 1 and lanes % ranks and ranks % lanes:
        count = lanes // int(np.gcd(lanes, ranks))
        yield Fault(
            f"{lanes} lanes on {ranks} ranks: neither divides the other, so that a rank reads up to {count} "
            "lanes and their files",
            f"use lanes={ranks}, or a multiple of it, or run on a number of ranks that divides {lanes}",
        )


@rule("warning", Inspection.run_with_order)
def files_read_again(setup: InspectedRun) -> Faults:
    """`max_files`, `max_chunks` or `max_shards` is too small for the order, so that files are read again."""
    # Recognized by its attributes: this package does not import that of files.
    limits: Any = getattr(setup.dataset, "_limits", None)
    view = setup.view
    if not hasattr(limits, "max_files") or not view.layout.has_files:
        return
    is_remote_tar = hasattr(setup.dataset, "fetch") and setup.dataset.is_remote
    downloads = setup.figures.downloads.get("") if is_remote_tar else None
    if downloads is not None and downloads.way != "whole":
        return
    needed = files_needed_at_once(view, view.epoch, max(1, view.num_workers))
    if view.num_workers < setup.num_workers:  # with `file_affinity` each worker has its own files
        needed = -(-needed // setup.num_workers)
    if needed <= limits.max_files:
        return
    # One more for a file that only one batch needs, and the files that are prefetched.
    limit = min(needed + 1 + limits.read_ahead, view.layout.num_files)
    lanes = view.lanes // int(np.gcd(view.lanes, view.num_ranks))
    fewer = f", or lanes={view.num_ranks} in place of {view.lanes}" if lanes > 1 else ""
    yield Fault(
        f"the order goes back and forth between {needed} files, and {limits.argument}={limits.max_files} are "
        "kept: files are opened and read more than once an epoch",
        f"use {limits.argument}={limit} or more, or take shuffle: partial with smaller blocks{fewer}",
    )


def files_needed_at_once(view: RunView, epoch: int, workers: int = 1) -> int:
    """Counts the files that a process of rank 0 must keep between batches to read none of them twice.

    These are the files that were read before and will be read again. If fewer are kept in memory, some are
    read again, whichever files are evicted. Files that only pads need are not counted. Of a long epoch only
    the beginning is counted, and more files may be needed later.

    Args:
        view: a run over files.
        epoch: the epoch.
        workers: the number of processes that share the batches of the rank, each with its own files.
    """
    reading = view.reading(epoch)
    most = min(MAX_BATCHES, max(1, COUNTED_SAMPLES // (4 * view.samples_a_batch)))
    first = np.full(view.layout.num_files, -1)
    last = first.copy()
    for number, (step, ids) in enumerate(islice(reading.batches(0, workers), most)):
        read = ids[~reading.pads(step)] if step == reading.steps - 1 else ids
        files = view.layout.file_of(read)
        first[files] = np.where(first[files] < 0, number, first[files])
        last[files] = number
    repeated = first < last
    starts = np.bincount(first[repeated], minlength=most)
    ends = np.bincount(last[repeated], minlength=most)
    return int(np.cumsum(starts - ends).max(initial=0))


@rule("warning", Inspection.run_with_order)
def costly_remote(setup: InspectedRun) -> Faults:
    """The order takes far more from remote storage than fetching each file once would."""
    for path, part in setup.figures.downloads.items():
        if part.is_remote and part.advice:
            where = f" in {path}" if path else ""
            problem, _, advice = part.advice.partition(": ")
            requests = f"{part.actual.requests:,} {'downloads' if part.way == 'whole' else 'requests'}"
            usage = f"{requests} and {part.actual.bytes / 2**20:,.0f} MiB an epoch"
            yield Fault(f"{problem}{where}: {usage}", advice)
