"""Which shuffle mode to take: the cheapest that mixes as well as is wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from samplerkit.errors import ArgumentRangeError
from samplerkit.inspect.quality.candidates import Candidate, held, modes_on_the_grid
from samplerkit.inspect.quality.figure import shown
from samplerkit.inspect.quality.look import Look
from samplerkit.inspect.quality.subject import Plain, Subject
from samplerkit.order import arguments
from samplerkit.order.layout import Layout

EPOCHS = 16
"""Epochs that are looked at for each candidate where there is no closed form; a quarter of many files."""

MANY_FILES = 10_000


@final
@dataclass(frozen=True)
class Recommendation:
    """The cheapest shuffle mode that mixes as well as is wanted, or why there is none.

    Args:
        wanted: the mixing that is wanted.
        batch_size: samples in a batch of all ranks together.
        chosen: the candidate, or None.
        reason: why, in a sentence.
        candidates: everything on the grid, the cheapest first.
    """

    wanted: float
    batch_size: int
    chosen: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Gives plain data, for JSON."""
        return {
            "wanted": self.wanted,
            "batch_size": self.batch_size,
            "chosen": None if self.chosen is None else self.chosen.to_dict(),
            "reason": self.reason,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
        }

    def __str__(self) -> str:
        return self.reason


def recommend(
    dataset: Any,
    batch_size: int,
    *,
    mixing: float = 0.5,
    cache_files: int | None = None,
    cache_samples: int | None = None,
    lanes: int = 1,
    seed: int = 0,
    block_files: int = 0,
) -> Recommendation:
    """Finds the cheapest shuffle mode, and block size of PARTIAL, that mixes as well as is wanted.

    Cheap is what holds few samples at a time. Modes and block sizes are scored on a grid, since mixing may
    fall where a block grows: a `partial_size` equal to the size of equal files mixes no files at all.

    Args:
        dataset: a dataset, a `Layout`, or a number of samples.
        batch_size: samples in a batch of all ranks together.
        mixing: the mixing that is wanted, in (0, 1].
        cache_files: how many files a rank can hold at a time; None for any number.
        cache_samples: how many samples a rank can hold at a time; None for any number.
        lanes: into how many lanes the file-aware modes are woven: the number of ranks.
        seed: of the sequences of files.
        block_files: above 0, only PARTIAL is chosen, with blocks of so many files of mean size or more, as
            for files that are fetched whole; a budget that none fits leaves all modes.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of its range.

    Example:
        >>> import samplerkit as sk
        >>> print(recommend(sk.Layout([1437] * 64), 32, mixing=0.4))
        partial of 1796: mixing .462, holds 3 files and 1796 samples
    """
    layout = Layout.of(dataset)
    batch_size = arguments.positive("batch_size", batch_size)
    wanted = bar("mixing", mixing)
    budget = [
        math.inf if value is None else arguments.positive(name, value)
        for name, value in (("cache_files", cache_files), ("cache_samples", cache_samples))
    ]
    lanes = arguments.positive("lanes", lanes, arguments.MOST_LANES)
    epochs = EPOCHS if layout.num_files <= MANY_FILES else EPOCHS // 4
    scored = []
    for plain in modes_on_the_grid(layout, batch_size, lanes, arguments.seed(seed)):
        subject = Subject(layout, len(layout), plain.order, plain)
        figure = Look.on(subject, batch_size, epochs).mixing()
        scored.append(_candidate(plain, figure.value, figure.standard_error, wanted, budget))
    scored.sort(key=lambda candidate: (candidate.samples, candidate.files, -candidate.mixing))
    least = arguments.integer("block_files", block_files) * len(layout) // max(1, layout.num_files)
    good = [candidate for candidate in scored if candidate.meets and candidate.fits]
    in_blocks = [candidate for candidate in good if least and (candidate.partial_size or 0) >= least]
    chosen = next(iter(in_blocks or good), None)
    reason = str(chosen) if chosen is not None else _why_none(scored, wanted, cache_files, cache_samples)
    return Recommendation(wanted, batch_size, chosen, reason, tuple(scored))


def bar(place: str, value: Any) -> float:
    """Takes a figure that is wanted: a number in (0, 1].

    Raises:
        ArgumentTypeError: it is no number.
        ArgumentRangeError: it is outside of (0, 1].
    """
    if not 0 < arguments.number(place, value) <= 1:
        raise ArgumentRangeError(place, "must be above 0 and at most 1", value)
    return float(value)


def _candidate(plain: Plain, mixing: float, error: float, wanted: float, budget: list[float]) -> Candidate:
    files, samples = held(plain)
    return Candidate(
        plain.shuffle,
        plain.mode.partial_size if plain.shuffle.value == "partial" else None,
        mixing,
        error,
        files,
        samples,
        meets=mixing >= wanted,
        fits=files <= budget[0] and samples <= budget[1],
    )


def _why_none(
    scored: list[Candidate], wanted: float, cache_files: int | None, cache_samples: int | None
) -> str:
    limits = [
        f"{limit} {what}"
        for limit, what in ((cache_files, "files"), (cache_samples, "samples"))
        if limit is not None
    ]
    meeting = next(candidate for candidate in scored if candidate.meets)
    fitting = [candidate for candidate in scored if candidate.fits]
    # FALSE holds one file and one sample: it fits any budget.
    best = max(fitting, key=lambda candidate: candidate.mixing)
    return (
        f"nothing mixes {shown(wanted)} within {' and '.join(limits)}; "
        f"the best that fits is {best}; the cheapest that meets it is {meeting}"
    )
