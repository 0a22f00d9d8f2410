"""What a dataset tells of itself besides its layout: a value for each sample."""

from __future__ import annotations

from typing import Any


def told_column(dataset: Any, *names: str) -> tuple[str, Any] | None:
    """Finds what a dataset has for each sample: a column, as datasets of Hugging Face do, or an attribute.

    Args:
        dataset: any dataset.
        names: what it may be called, the first choice first.

    Returns:
        (name, values) of the first one that is there; None where none is.

    Example:
        >>> class Pictures:
        ...     targets = [3, 1]
        >>> told_column(Pictures(), "label", "targets")
        ('targets', [3, 1])
    """
    for name in names:
        is_column = name in getattr(dataset, "column_names", ())
        found = dataset[name] if is_column else getattr(dataset, name, None)
        if found is not None and not callable(found):
            return name, found
    return None
