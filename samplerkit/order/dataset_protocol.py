"""What samplerkit reads from a dataset besides its layout: columns, a fingerprint, parts of samples.

And the number of a file that a user names.
"""

import hashlib
import json
from typing import Any

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.arguments import integer
from samplerkit.order.layout import Layout


def find_column(dataset: Any, *names: str) -> tuple[str, Any] | None:
    """Finds a value for each sample: a column of the dataset, as in Hugging Face datasets, or an attribute.

    Args:
        dataset: any dataset.
        names: its possible names, the preferred one first.

    Returns:
        (name, values) of the first one that exists; None if there is none.

    Example:
        >>> class Pictures:
        ...     targets = [3, 1]
        >>> find_column(Pictures(), "label", "targets")
        ('targets', [3, 1])
    """
    columns = getattr(dataset, "column_names", None)
    for name in names:
        is_column = columns is not None and name in columns
        values = dataset[name] if is_column else getattr(dataset, name, None)
        if values is not None and not callable(values):
            return name, values
    return None


def require_one_each(place: str, count: int, dataset: Any, hint: str = "") -> None:
    """Checks that there are as many lengths, labels or other values as samples.

    Raises:
        DatasetError: there are more, or fewer.
    """
    size = len(Layout.of(dataset))
    if count != size:
        problem = f"must be one for each of the {size} samples"
        raise DatasetError(place, problem, count, hint=hint)


def find_fingerprint(dataset: Any) -> str | None:
    """Finds the fingerprint of a dataset: its `fingerprint`, or Hugging Face's `_fingerprint`.

    Args:
        dataset: any dataset.

    Returns:
        The first of them that is a string; None if neither is.

    Example:
        >>> class Pictures:
        ...     fingerprint = "of 3 May"
        >>> find_fingerprint(Pictures())
        'of 3 May'
    """
    candidates = (getattr(dataset, name, None) for name in ("fingerprint", "_fingerprint"))
    return next((value for value in candidates if isinstance(value, str)), None)


def fingerprint_of(*content: Any) -> str:
    """Makes the fingerprint of a dataset from values that identify its content.

    Args:
        content: plain values, as JSON has them.

    Example:
        >>> fingerprint_of("a", [1, 2]) == fingerprint_of("a", (1, 2)) != fingerprint_of("a", [2, 1])
        True
    """
    data = json.dumps(content).encode()
    return hashlib.blake2b(data, digest_size=16, person=b"samplerkit").hexdigest()


def has_segments(dataset: Any) -> bool:
    """Returns whether a dataset can return parts of samples, without reading whole ones."""
    # Looked up in the class: a wrapper that forwards unknown attributes would otherwise be bypassed. A tree
    # of datasets has the method, and it is None if a part has none.
    return hasattr(type(dataset), "__getsegments__") and dataset.__getsegments__ is not None


def file_number(layout: Layout, file: Any) -> int:
    """Returns the number of a file in a layout.

    Args:
        layout: with files.
        file: the number itself, or the name of the file.

    Raises:
        ArgumentTypeError: neither.
        ArgumentValueError: the layout has no file of that name.

    Example:
        >>> file_number(Layout([3, 4], ["code/a", "code/b"]), "code/b")
        1
    """
    if not isinstance(file, str):
        return integer("file", file)
    names = layout.names or ()
    if file not in names:
        listing = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = f"known: {listing}" if names else "give its number: the files have no names"
        raise ArgumentValueError("file", "is not a file of the layout", file, hint=hint)
    return names.index(file)
