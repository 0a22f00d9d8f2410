"""How well an order mixes: figures from file sizes, mode and batch size, and what they recommend.

    mixing(order, dataset, batch_size, *, world=None) -> Figure
    file_mixing(...), spread(...)                                  `mixing` is the smaller of these two
    label_mixing(order, dataset, batch_size, labels, ...) -> Figure
    storage_mixing(dataset, batch_size, labels, ...) -> Figure     the label mixing of the storage order
    effective_batch(order, dataset, batch_size, labels=None, ...) -> Figure
    recommend(dataset, batch_size, *, mixing=0.5, cache_files=None, cache_samples=None, lanes=1, ...)
        -> Recommendation

`order` is a sampler, whose order of all shards together is measured, or an `Order`; `batch_size` is the
global one. A `Figure` has `name`, `value`, `standard_error`, `exact`, `curve` (of `Point`: `window`, `value`,
`standard_error`), `parts` (for `mixing`: its two figures), `weakest` (the `Point` of the smallest value),
`to_dict()`, and a one-line `str`. A `Recommendation` has `wanted`, `batch_size`, `chosen` (a `Candidate` or
None), `reason` (a sentence, also its `str`), `candidates` and `to_dict()`. A `Candidate` has `shuffle`,
`partial_size` (None except for PARTIAL), `mixing`, `standard_error`, `files`, `samples`, `meets`, `fits`,
`to_dict()` and `arguments` (arguments of a sampler: `{"shuffle": "partial", "partial_size": 1500}`).

docs/quality.md explains what the figures mean and predict.
"""

from samplerkit.inspect.quality.figure import Figure, Point
from samplerkit.inspect.quality.mixing import (
    effective_batch,
    file_mixing,
    label_mixing,
    mixing,
    spread,
    storage_mixing,
)
from samplerkit.inspect.quality.recommend import Candidate, Recommendation, recommend

__all__ = [
    "Candidate",
    "Figure",
    "Point",
    "Recommendation",
    "effective_batch",
    "file_mixing",
    "label_mixing",
    "mixing",
    "recommend",
    "spread",
    "storage_mixing",
]
