"""What MindSpore would call a dataset."""

from __future__ import annotations

from enum import Enum
from typing import Any

from samplerkit.order.layout import Layout


class DatasetKind(Enum):
    """The kinds of datasets that MindSpore orders by different rules.

    Attributes:
        PLAIN: samples without files; MindSpore's mappable datasets.
        FILES: samples in files; MindSpore's MindDataset.
        CONCAT: datasets one after another; MindSpore's and torch's ConcatDataset.
    """

    PLAIN = "plain"
    FILES = "files"
    CONCAT = "concat"


def kind_of(dataset: Any) -> DatasetKind:
    """Tells the kind of a dataset.

    Args:
        dataset: anything that `Sampler.order` takes.

    Example:
        >>> kind_of(5).name, kind_of(Layout([2, 3])).name
        ('PLAIN', 'FILES')
    """
    if not Layout.of(dataset).has_files:
        return DatasetKind.PLAIN
    has_layout = isinstance(dataset, Layout) or isinstance(getattr(dataset, "layout", None), Layout)
    return DatasetKind.FILES if has_layout else DatasetKind.CONCAT
