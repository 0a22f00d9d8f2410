"""What a mixture mixes: the parts of a tree by name, or files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout


def part_of(dataset: Any, name: str) -> Any:
    """Gives a part of a tree: the dataset itself where that is known, else its layout."""
    return _parts_of(dataset, Layout.of(dataset))[name]


def _parts_of(dataset: Any, layout: Layout) -> Mapping[str, Any]:
    """Gives all parts, each as `part_of`."""
    parts = getattr(dataset, "parts", None)
    known = layout.parts
    return (
        {name: parts.get(name, part) for name, part in known.items()} if isinstance(parts, Mapping) else known
    )


def mixed_parts(sources: Mapping[str, Any] | None, layout: Layout, dataset: Any) -> dict[str, Any]:
    """Gives what is mixed, by name in the order of ids: the parts of a tree, or files.

    Raises:
        DatasetError: there are no parts, or no such ones.
    """
    if sources is None:
        if not layout.has_files:
            raise DatasetError("dataset", "has no parts to mix", layout, mend="give a ConcatDataset")
        return {str(number): Layout(size) for number, size in enumerate(layout.sizes.tolist())}
    parts = layout.parts
    if not parts:
        mend = "give a TreeDataset, or Layout.tree({name: ...})"
        raise DatasetError("dataset", "has no parts with names", layout, mend=mend)
    for name in sources:
        if name not in parts:
            known = ", ".join(parts)
            raise DatasetError("sources", "name no part of the dataset", name, mend=f"parts: {known}")
    return dict(_parts_of(dataset, layout))
