"""Batches of samples, by webdataset's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from samplerkit.errors import DatasetError


def default_collation_fn(
    samples: list[Any], combine_tensors: bool = True, combine_scalars: bool = True
) -> Any:
    """Makes a batch of samples, field by field.

    Args:
        samples: tuples of one length, or dicts of the same fields.
        combine_tensors: whether tensors and arrays of one shape are stacked, to shape (samples, ...).
        combine_scalars: whether numbers become an array of shape (samples,).

    Returns:
        A tuple or a dict of batches. What is neither number, array nor tensor comes as a list.

    Raises:
        DatasetError: the samples have other fields or shapes than one another.

    Source: webdataset's `batched`.

    Example:
        >>> default_collation_fn([("a", 1), ("b", 2)])
        (['a', 'b'], array([1, 2]))
    """
    first = samples[0]
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            raise DatasetError("batched", "the samples of a batch have other fields than one another")
        return {
            name: _combined([sample[name] for sample in samples], combine_tensors, combine_scalars)
            for name in first
        }
    if not isinstance(first, list | tuple):
        return _combined(samples, combine_tensors, combine_scalars)
    if any(len(sample) != len(first) for sample in samples):
        raise DatasetError("batched", "the samples of a batch have more fields than one another")
    return tuple(
        _combined(list(column), combine_tensors, combine_scalars) for column in zip(*samples, strict=True)
    )


def _combined(values: list[Any], combine_tensors: bool, combine_scalars: bool) -> Any:
    first = values[0]
    if isinstance(first, int | float):
        return np.array(values) if combine_scalars else values
    if not combine_tensors or not isinstance(first, torch.Tensor | np.ndarray):
        return values
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) > 1:
        shown = ", ".join(map(str, sorted(shapes)))
        raise DatasetError(
            "batched",
            f"arrays of a batch have different shapes ({shown})",
            hint="resize or crop them in a map",
        )
    return torch.stack(values) if isinstance(first, torch.Tensor) else np.stack(values)
