"""Weights that are shares of tokens: how many tokens the samples of a source have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest
from samplerkit.order.dataset_protocol import find_column
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.streams import Passes
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.shuffled import RandomSampler
from samplerkit.samplers.subset import SequentialSampler

_CHUNK = 1 << 20
_MAX_SOURCES = 1024


@final
class PartLengths:
    """The lengths of the samples of the parts of a dataset, in tokens.

    Args:
        dataset: with `lengths` or `length`, an attribute or a column, where its parts have none; it is kept,
            so that no other object gets its id().
        parts: datasets or layouts by name, in the order of ids.

    Attributes:
        totals: the tokens of each part, -1 where there are no lengths.

    Raises:
        DatasetError: they are not one whole number for each sample, or negative.
    """

    def __init__(self, dataset: Any, parts: Mapping[str, Any]) -> None:
        self.dataset: Final = dataset
        self._lengths: Final = dict[str, Ids | None]()
        self._means: Final = Latest[float](_MAX_SOURCES)
        begin, column = 0, None
        for name, part in parts.items():
            end, own = begin + len(Layout.of(part)), find_column(part, "lengths", "length")
            if own is None and column is None and not isinstance(getattr(dataset, "parts", None), Mapping):
                column = find_column(dataset, "lengths", "length")
            given = own[1] if own is not None else None if column is None else column[1][begin:end]
            self._lengths[name] = None if given is None else _checked(name, given, end - begin)
            begin = end
        self.totals: Final = {
            name: -1 if arr is None else int(arr.sum(dtype=np.int64)) for name, arr in self._lengths.items()
        }

    def mean(self, name: str, passes: Passes) -> float | None:
        """Returns the mean number of tokens of the samples of a source; None of a part without lengths.

        Args:
            name: of the source.
            passes: over it, without edits; the first one counts.
        """
        lengths = self._lengths[name]
        if lengths is None:
            return None
        if _is_complete(getattr(passes.orders, "sampler", None)):
            return self.totals[name] / max(1, lengths.size)
        return self._means.get((name, passes.orders), partial(_mean, lengths, passes))

    def mean_of_draws(self, name: str, passes: Passes) -> float:
        """Returns the mean number of tokens of the samples of a source that has a share of them.

        Raises:
            DatasetError: the part has no lengths, or no tokens.
        """
        mean = self.mean(name, passes)
        if mean is None:
            hint = (
                "give the dataset an attribute lengths, or divide each weight by the mean tokens of a sample"
            )
            problem = "are shares of tokens, and a source has no lengths"
            raise DatasetError("weights", problem, name, hint=hint)
        if not mean:
            raise DatasetError("weights", "give a share of the tokens to a source without any", name)
        return mean


def _mean(lengths: Ids, passes: Passes) -> float:
    total = sum(int(lengths[ids].sum(dtype=np.int64)) for ids in passes.order(0).chunks(_CHUNK))
    return total / max(1, passes.length)


def _is_complete(sampler: Sampler | None) -> bool:
    """Returns whether a source is read whole in each pass, each sample once."""
    if sampler is None:
        return True
    reads_all = isinstance(sampler, RandomSampler | SequentialSampler) and sampler.get_child() is None
    cuts = ("num_samples", "start_index", "replacement")
    return reads_all and not any(getattr(sampler, name, None) for name in cuts)


def _checked(name: str, given: Any, size: int) -> Ids:
    lengths = np.asarray(given)
    if lengths.shape != (size,) or lengths.dtype.kind not in "iu":
        problem = f"must be {size} whole numbers, one for each sample"
        raise DatasetError(f"lengths of {name}", problem, (lengths.shape, str(lengths.dtype)))
    if size and not 0 <= int(lengths.min()) <= int(lengths.max()) < LARGEST // size:
        problem = f"must be in [0, {LARGEST // size})"
        raise DatasetError(f"lengths of {name}", problem, (int(lengths.min()), int(lengths.max())))
    return lengths
