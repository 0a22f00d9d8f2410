"""The samples of a part: those of one corpus, or of several in a blend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from samplerkit.compat.megatron.blend import MOST_SOURCES, blended, turns
from samplerkit.compat.megatron.corpus import Cut, ShuffledCorpus, Spans
from samplerkit.errors import ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order.intervals import groups
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.arguments import PARTS, range_of, shares_of


@final
class BlendedSamples:
    """Which tokens each sample of a part reads.

    Args:
        lengths: of each corpus the tokens of its sequences.
        weights: of each corpus; None for one epoch of each.
        num_samples: how many samples are asked for; None for one epoch.
        cut: how tokens become samples.
        split: the shares of the parts, as a text; None where all is of the part.
        part: its name.
        surplus: by which share a source is built longer than it is likely to be read.

    Attributes:
        corpora: each shuffled for itself.
        dataset_index: the corpus of each sample, int16; None where there is no blend.
        dataset_sample_index: which of the corpus's samples it is, int64; None likewise.
    """

    def __init__(
        self,
        lengths: Sequence[npt.NDArray[Any]],
        weights: Sequence[float] | None,
        num_samples: int | None,
        cut: Cut,
        *,
        split: str | None,
        part: str,
        surplus: float,
    ) -> None:
        shares = None if weights is None else _normalised(_checked(weights, len(lengths)))
        if shares is not None and num_samples is None:
            raise ArgumentValueError(
                "num_samples", "must be said where weights are", hint="or leave both out"
            )
        asked: list[int | None] = [num_samples if len(lengths) == 1 else None] * len(lengths)
        wanted: list[int] = []
        if shares is not None and num_samples is not None:
            wanted = [math.ceil(num_samples * share) for share in shares]
            asked = [math.ceil(math.ceil(num_samples * share) * (1 + surplus)) for share in shares]
        self.corpora: Final = [
            ShuffledCorpus(of_one, _bounds(split, part, of_one.size), count, cut)
            for of_one, count in zip(lengths, asked, strict=True)
        ]
        self.dataset_index: npt.NDArray[np.int16] | None = None
        self.dataset_sample_index: Ids | None = None
        if len(lengths) == 1 and shares is None:
            return
        sizes = np.array([len(corpus) for corpus in self.corpora], dtype=np.int64)
        if shares is None and not sizes.all():
            where = int(np.flatnonzero(sizes == 0)[0])
            raise DatasetError("blend", "has a source that is shorter than one sample", f"source {where}")
        if shares is not None:
            self.dataset_index = blended(_normalised(shares), sum(wanted))
        elif num_samples is None:
            self.dataset_index = blended(_normalised(sizes), int(sizes.sum()), sizes)
        else:
            self.dataset_index = blended(_normalised(sizes), min(num_samples, int(sizes.sum())))
        self._require_enough(sizes, np.bincount(self.dataset_index, minlength=sizes.size), surplus)
        self.dataset_sample_index = turns(self.dataset_index)

    def __len__(self) -> int:
        return len(self.corpora[0]) if self.dataset_index is None else self.dataset_index.size

    def spans(self, samples: Ids) -> tuple[Ids, Spans]:
        """Returns the tokens of some samples.

        Args:
            samples: int64 array of shape (m,), each in [0, len).

        Returns:
            The corpus of each span, and the spans, in the order in which they are read.
        """
        if self.dataset_index is None or self.dataset_sample_index is None:
            spans = self.corpora[0].spans(samples)
            return np.zeros_like(spans.which), spans
        corpora: list[Ids] = []
        found: list[Spans] = []
        for corpus, at in groups(self.dataset_index[samples].astype(np.int64)):
            spans = self.corpora[corpus].spans(self.dataset_sample_index[samples[at]])
            corpora.append(np.full(spans.which.size, corpus))
            found.append(spans._replace(which=at[spans.which]))
        joined = [np.concatenate(fields) for fields in zip(*found, strict=True)] if found else [samples] * 4
        in_turn = np.argsort(joined[0], kind="stable")
        corpus_of = np.concatenate(corpora)[in_turn] if corpora else samples
        return corpus_of, Spans(*(field[in_turn] for field in joined))

    def _require_enough(self, sizes: Ids, read: Ids, surplus: float) -> None:
        if (read > sizes).any():
            where = int(np.flatnonzero(read > sizes)[0])
            raise OutOfDatasetError(
                "blend",
                f"reads source {where} {read[where]} times, which has {sizes[where]} samples",
                hint=f"raise mid_level_dataset_surplus, which is {surplus}",
            )


def _bounds(split: str | None, part: str, num_sequences: int) -> tuple[int, int]:
    share = (0.0, 1.0) if split is None else shares_of(split)[PARTS.index(part)]
    if share is None:
        raise ArgumentValueError("split", f"gives nothing to the part {part}", split)
    return range_of(share, num_sequences)


def _checked(weights: Sequence[float], sources: int) -> npt.NDArray[np.float64]:
    given = np.array(weights, dtype=np.float64)
    if given.shape != (sources,) or not (np.isfinite(given) & (given > 0)).all():
        raise ArgumentValueError("weights", f"must be {sources} positive numbers, one a corpus", weights)
    if sources > MOST_SOURCES:
        raise ArgumentValueError("weights", f"must be at most {MOST_SOURCES}", sources)
    return given


def _normalised(weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = weights / np.sum(weights)
    return shares
