"""Descriptions and digests of a sampler and a dataset, which processes compare."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from samplerkit.errors import StateError
from samplerkit.loading.state.state import TEXT, Section, digest, require_fields
from samplerkit.order.dataset_protocol import find_fingerprint
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.streams import Passes, Stream
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import class_name

LONGEST_DESCRIPTION = 1200
MAX_SEEDS = 32

_NOT_DESCRIBED = frozenset({"seed", "algorithm", "windows_per_block"})
_JOB_ARGUMENTS = frozenset({"num_shards", "shard_id"})
_WRITER = json.JSONEncoder(sort_keys=True)


def describe_dataset(dataset: Any, blocks: Layout | None = None) -> str:
    """Describes a dataset: how many samples in how many files, and a digest of sizes and names.

    One that is read in blocks is described by these, so that it is the same whatever they are cut into.

    A dataset may have a string attribute `fingerprint`, as those of Hugging Face have `_fingerprint`, that
    changes when its content does; without one, a change of content that leaves all sizes cannot be seen.

    Example:
        >>> describe_dataset(Layout([3, 4]))
        '7 samples, 2 files, 97ebb718e8af2c8e'
    """
    layout = Layout.of(dataset) if blocks is None else blocks
    if layout.parts:
        leaves = [[path, leaf.has_files, leaf.num_files, leaf.names] for path, leaf in layout.leaves]
        parts: list[str | bytes] = ["tree", _portable(layout.sizes), json.dumps(leaves)]
    else:
        parts = [str(layout.has_files), _portable(layout.sizes), *(layout.names or ())]
    content = find_fingerprint(dataset)
    if content is not None:
        parts.append(content)
    files = f", {layout.num_files} files" if layout.has_files else ""
    files += f" in {len(layout.leaves)} parts" if layout.parts else ""
    return f"{len(layout)} {'samples' if blocks is None else 'blocks'}{files}, {digest(*parts)}"


def describe_used_values(sampler: Sampler, dataset: Any) -> str:
    """Describes the values of a dataset that a chain uses besides its layout; empty if it uses none.

    It follows the description of the dataset.

    Example:
        >>> import samplerkit as sk
        >>> class Data:
        ...     label = ["cat", "dog"]
        >>> describe_used_values(sk.PKSampler(1), Data())
        '; label <2 values, ef49507f3bbec7e2>'
    """
    values: dict[str, Any] = {}
    for link in sampler._links():
        values |= link.looks_at(dataset)
    return "".join(f"; {name} {_described(value)}" for name, value in values.items())


def describe_chain(sampler: Sampler) -> str:
    """Describes a tree of samplers, outermost first, without seeds, algorithms and the job's numbers.

    A ledger is not described: which of its edits must be the same follows from the position of a state.

    Args:
        sampler: the outermost one.

    Example:
        >>> import samplerkit as sk
        >>> describe_chain(sk.SubsetSampler([4, 2]))
        'SubsetSampler(indices=<2 values, 16e6e107c027f8e4>, num_samples=null)'
    """
    links: list[str] = []
    has_dealt = False
    for link in sampler._links():
        if link.reads_a_stream:
            continue
        is_root, is_dealer = not links, link.deal is not None and not has_dealt
        has_dealt = has_dealt or is_dealer
        arguments = link.arguments()
        if is_dealer:
            arguments["shard_id"] = None
        shown = ", ".join(
            f"{name}={_described(value)}"
            for name, value in arguments.items()
            if name not in _NOT_DESCRIBED and not (is_root and name in _JOB_ARGUMENTS)
        )
        links.append(f"{class_name(type(link))}({shown})")
    description = " <- ".join(links)
    if len(description) <= LONGEST_DESCRIPTION:
        return description
    return f"{description[: LONGEST_DESCRIPTION - 40]}... {digest(description)}"


def seeds_of(sampler: Sampler) -> list[int]:
    """Returns the seeds along a chain, outermost first, then those of its sources, by name.

    With many sources, the last number is a digest of the remaining seeds: a state stays small.

    Example:
        >>> import samplerkit as sk
        >>> seeds_of(sk.MixtureSampler({"web": sk.RandomSampler(seed=3), "code": None}, seed=7))
        [7, 3]
    """
    seeds = [link.seed for link in sampler._links() if hasattr(link, "seed")]
    branches = [branch for link in sampler._links() for branch in link.branches().values()]
    inner = [link.seed for branch in branches for link in branch._tree() if hasattr(link, "seed")]
    if len(inner) > MAX_SEEDS:
        rest = json.dumps(inner[MAX_SEEDS - 1 :])
        inner = [*inner[: MAX_SEEDS - 1], int(digest("seeds", rest), 16)]
    return seeds + inner


def section_of_ids(order: Order) -> Section:
    """Returns the section of a state for ids that come from the user's code, such as an iterable.

    Nothing else shows whether two processes read the same ids: neither the class of the iterable nor its
    seed. It is made of the tables of ids in an order: JSON values, under 100 bytes. Of a source that a
    mixture reads pass after pass, that is the table of the first pass.
    """
    return {"digest": digest(*_tables(order))}


def require_same_ids(saved: Section, current: Section | None) -> None:
    """Refuses a state saved after other ids than those of this process.

    Raises:
        StateError: the section is damaged, or the ids are others.
    """
    require_fields("ids", saved, {"digest": TEXT})
    if current is not None and saved["digest"] != current["digest"]:
        problem = "differ from those that the sampler yielded when the state was saved, so that "
        problem += "samples would be lost and repeated"
        hint = "let it depend on its seed and the epoch alone, or give it the ids as a list"
        raise StateError("ids", problem, saved["digest"], current["digest"], hint=hint)


def _tables(order: Order) -> Iterator[bytes]:
    """Returns the ids of each table in an order once, in the order in which recipes name them."""
    pending: list[Any] = [order]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Table):
            yield value.ids.astype("<i8").tobytes()
        elif isinstance(value, Passes):
            pending.append(value.order(0))
        elif isinstance(value, Order | Stream):
            pending.extend(reversed(value.recipe or ()))
        elif isinstance(value, tuple | list):
            pending.extend(reversed(value))


def _described(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(item, Sampler) for item in value.values()):
        trees = ((name, item and describe_chain(item)) for name, item in sorted(value.items()))
        return f"{{{', '.join(f'{json.dumps(name)}: {tree}' for name, tree in trees)}}}"
    if isinstance(value, list | tuple | range) and value and isinstance(value[0], int):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        content = json.dumps(value.tolist()) if value.dtype.kind in "OU" else _portable(value)
        return f"<{value.size} values, {digest(value.dtype.kind, content)}>"
    try:
        return _WRITER.encode(value)
    except TypeError:
        return f"<{class_name(type(value))}>"


def _portable(array: np.ndarray[Any, Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
