"""A recommended shuffle mode as the section of a config, tried before it is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from samplerkit.config.config import Config, load_config
from samplerkit.errors import SamplerkitError
from samplerkit.inspect.quality.order_source import OrderSource, chooses
from samplerkit.order.layout import Layout

MOST_COMPARED = 1 << 20
"""Up to this many samples the orders of both are read, to see that they hold the same."""


def advised(config: Config, layout: Layout, mode: dict[str, Any]) -> dict[str, Any] | None:
    """Gives the sampler section that reads the same samples in a recommended mode.

    Returns:
        The section; None where no mode could take the place of the chain without reading other samples.
    """
    if chooses(config.sampler) is not None:
        return None
    written = config.to_dict()
    section = _section(written["sampler"], mode)
    try:
        tried = load_config({"sampler": section}, check_quality=False)
        tried.check_order(layout)
    except SamplerkitError:
        return None
    before, after = (one.sampler.undealt_order(layout) for one in (config, tried))
    is_same = len(before) == len(after)
    if is_same and len(before) <= MOST_COMPARED:
        is_same = bool((np.sort(before[:]) == np.sort(after[:])).all())
    return section if is_same else None


def why_none(config: Config, dataset: Any) -> str:
    """Says why no mode is recommended for a chain."""
    choosing = chooses(config.sampler)
    if choosing is None:
        return "none that reads the same samples as this chain"
    is_shuffled = OrderSource.of(config.sampler, dataset, None).is_shuffled
    return (
        f"none: {type(choosing).__name__} chooses the samples, and a shuffle mode in its place would read "
        "others; "
        + ("they are already fully shuffled" if is_shuffled else "to mix them, put a random sampler over it")
    )


def in_yaml(section: dict[str, Any]) -> str:
    """Writes a section on one line.

    Example:
        >>> in_yaml({"kind": "random", "seed": 7, "shuffle": "files"})
        '{kind: random, seed: 7, shuffle: files}'
    """
    written: str = yaml.safe_dump(section, default_flow_style=True, sort_keys=False, width=10_000)
    return written.strip()


def _section(sampler: dict[str, Any], mode: dict[str, Any]) -> dict[str, Any]:
    """Puts a mode into the link that deals, or else the one that shuffles; the others read what they get."""
    links = [sampler]
    while "child" in links[-1]:
        links.append(links[-1]["child"])
    kinds = {link["kind"]: link for link in reversed(links)}
    holder = kinds.get("distributed") or kinds.get("random") or {"kind": "random"}
    kept = {name: value for name, value in holder.items() if name not in ("child", "shuffle", "partial_size")}
    if mode["shuffle"] == "false" and kept["kind"] == "random":
        return {"kind": "sequential"}
    return {**kept, **mode}
