"""The samples of a batch that are there, where a dataset leaves out what is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.missing_file import AbsentError

_LOGGER = logging.getLogger(__name__)

MOST_TRIED = 64
"""Shards in which a sample is looked for that stands in for a batch of which nothing is there."""


@final
class Present(list[Any]):
    """The samples of a batch that are there.

    Attributes:
        missing: of each other one its place in the batch, the shard, and what is wrong, in words.
        stand_in: the id of the only sample here, where all of the batch is missing: a step needs a batch, and
            ranks need equal numbers of steps; else None.
    """

    def __init__(self, samples: Iterable[Any]) -> None:
        super().__init__()
        self.missing: list[tuple[int, str, str]] = []
        self.stand_in: int | None = None
        for place, sample in enumerate(samples):
            if isinstance(sample, AbsentError):
                self.missing.append((place, sample.place, str(sample)))
            else:
                self.append(sample)

    def fill(self, ids: Ids, layout: Layout, sample_of: Callable[[int], Any]) -> None:
        """Takes a sample if there is none: the first one of the first id's shard, or of the next that has it.

        Raises:
            DatasetError: many shards one after another lack theirs: then something larger is broken.
        """
        if self or not self.missing:
            return
        shard = int(layout.file_of(ids[:1])[0])
        tried = 0
        for number in (*range(shard, layout.num_files), *range(shard)):
            if layout.sizes[number]:
                first = int(layout.starts[number])
                (sample,) = in_draws(sample_of, [first], [0], ids.size)
                if not isinstance(sample, AbsentError):
                    self.append(sample)
                    self.stand_in = first
                    return
                tried += 1
                if tried == MOST_TRIED:
                    break
        _, place, text = self.missing[0]
        problem = f"{text.removeprefix(f'{place}: ')}. None of {tried} shards has a sample to make a batch of"
        raise DatasetError(place, problem, hint="see whether the shards can be reached")


def log_missing(missing: Iterable[tuple[int, str, str]], told: set[str]) -> None:
    """Logs what is missing, once a shard.

    Args:
        missing: as in `Present`.
        told: the shards that were logged before; it grows.
    """
    for _, shard, text in missing:
        if shard not in told:
            told.add(shard)
            _LOGGER.warning("left out: %s", text)
