"""What a recipe and a dataset are, in words and digests that two processes can compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.told import told_fingerprint
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.links import class_name

DIGEST_BYTES = 8
FINGERPRINT_DIGITS = 12
LONGEST_DESCRIPTION = 1200
MOST_SEEDS = 32

BEHIND = "; "
"""Between the description of a dataset and what samplers look at in it."""

_LEFT_OUT = frozenset({"seed", "algorithm", "windows_per_block"})
_OF_THE_JOB = frozenset({"num_shards", "shard_id"})
_WRITER = json.JSONEncoder(sort_keys=True)


def digest(*parts: str | bytes) -> str:
    """Gives a short digest of some texts and bytes.

    Example:
        >>> digest("a", "b") == digest("ab")
        False
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"samplerkit")
    for part in parts:
        # Names of files may be bytes that are no UTF-8.
        encoded = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.hexdigest()


def fingerprint(
    *,
    algorithm: str,
    seed: Sequence[int],
    dataset: str,
    sampler: str,
    lanes: int,
    limit: int | None,
    edits: str | None = None,
) -> str:
    """Gives the short name of the orders of all epochs of a run: two runs with one name read by the same.

    It is no part of a state: it follows from the fields of one. Neither ranks nor batch sizes are in it.

    Args:
        algorithm: the id of the algorithm.
        seed: the seeds along the chain, outermost first.
        dataset: from `describe_dataset`.
        sampler: from `describe_chain`.
        lanes: the number of lanes that the first start fixed.
        limit: the limit of samples that the first start fixed; None for all.
        edits: the chained digest of all edits of a ledger; None where there are none.

    Returns:
        12 hexadecimal digits.

    Example:
        >>> same = {"algorithm": "a", "dataset": "7 samples", "sampler": "s", "lanes": 1, "limit": None}
        >>> fingerprint(seed=[3], **same), fingerprint(seed=[4], **same)
        ('4d32d3e97430', '657b2cb67ac2')
    """
    parts = [algorithm, list(seed), dataset, sampler, lanes, limit, *(() if edits is None else (edits,))]
    return digest("order", json.dumps(parts))[:FINGERPRINT_DIGITS]


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
    content = told_fingerprint(dataset)
    if content is not None:
        parts.append(content)
    files = f", {layout.num_files} files" if layout.has_files else ""
    files += f" in {len(layout.leaves)} parts" if layout.parts else ""
    return f"{len(layout)} {'samples' if blocks is None else 'blocks'}{files}, {digest(*parts)}"


def describe_looks(sampler: Sampler, dataset: Any) -> str:
    """Describes what a chain looks at in a dataset besides its layout; nothing where it does not.

    It stands behind the description of the dataset. States of versions that did not look have none.

    Example:
        >>> import samplerkit as sk
        >>> class Data:
        ...     label = ["cat", "dog"]
        >>> describe_looks(sk.PKSampler(1), Data())
        '; label <2 values, ef49507f3bbec7e2>'
    """
    found: dict[str, Any] = {}
    for link in sampler._links():
        found |= link.looks_at(dataset)
    return "".join(f"{BEHIND}{name} {_described(value)}" for name, value in found.items())


def describe_chain(sampler: Sampler, *, names_shard: bool = False) -> str:
    """Describes a tree of samplers, outermost first, without seeds, algorithms and the job's numbers.

    A ledger is not described: which of its edits must be the same follows from the position of a state.

    Args:
        sampler: the outermost one.
        names_shard: whether the shard that a distributed sampler below the root deals to this process is
            named: so states once did, one for each rank.

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
        if is_dealer and not names_shard:
            arguments["shard_id"] = None
        shown = ", ".join(
            f"{name}={_described(value)}"
            for name, value in arguments.items()
            if name not in _LEFT_OUT and not (is_root and name in _OF_THE_JOB)
        )
        links.append(f"{class_name(type(link))}({shown})")
    description = " <- ".join(links)
    if len(description) <= LONGEST_DESCRIPTION:
        return description
    return f"{description[: LONGEST_DESCRIPTION - 40]}... {digest(description)}"


def seeds_of(sampler: Sampler) -> list[int]:
    """Gives the seeds along a chain, outermost first, then those of its sources, by name.

    Of many sources, the last number is made of the seeds that have no room: a state stays small.

    Example:
        >>> import samplerkit as sk
        >>> seeds_of(sk.MixtureSampler({"web": sk.RandomSampler(seed=3), "code": None}, seed=7))
        [7, 3]
    """
    seeds = [link.seed for link in sampler._links() if hasattr(link, "seed")]
    branches = [branch for link in sampler._links() for branch in link.branches().values()]
    inner = [link.seed for branch in branches for link in branch._tree() if hasattr(link, "seed")]
    if len(inner) > MOST_SEEDS:
        rest = json.dumps(inner[MOST_SEEDS - 1 :])
        inner = [*inner[: MOST_SEEDS - 1], int(digest("seeds", rest), 16)]
    return seeds + inner


def _described(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(one, Sampler) for one in value.values()):
        trees = ((name, one and describe_chain(one)) for name, one in sorted(value.items()))
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
