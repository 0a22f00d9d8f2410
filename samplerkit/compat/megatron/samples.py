"""The samples of a part: one corpus of shuffled documents, cut into samples, or a blend of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from samplerkit.compat.megatron.blend import blended, read_counts
from samplerkit.errors import ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of, groups, interval_of, numbers_in
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.arguments import range_of, share_of

_MAX_IN_32_BITS = 2**32 - 2
"""The number of samples from which on Megatron shuffles their numbers in 64 bits."""


@dataclass(frozen=True)
class Cut:
    """How tokens are cut into samples.

    Args:
        seq_length: S, the number of tokens from one sample to the next.
        seed: the seed in [0, 2^32), the same for all corpora and parts.
        extra: 1 if a sample also has the token after its S tokens, else 0.
        keeps_partial: whether the remainder at the end is padded to a sample.
    """

    seq_length: int
    seed: int
    extra: int = 1
    keeps_partial: bool = False


class Spans(NamedTuple):
    """Contiguous tokens of documents: arrays of one length, in the order in which they are read.

    Args:
        rows: for each part, the number of its sample in the request.
        corpora: the number of the corpus.
        documents: the number of the document in the file.
        offsets: the first token, counted from the beginning of the document.
        lengths: the number of tokens, at least 1.
    """

    rows: Ids
    corpora: Ids
    documents: Ids
    offsets: Ids
    lengths: Ids


class ShuffledCorpus:
    """The order of one corpus and part: documents shuffled over all epochs at once, samples shuffled again.

    Args:
        lengths: the number of tokens of each sequence of the file; integers of shape (n,).
        bounds: the first sequence of the part, and the one after its last.
        num_samples: how many samples are requested; None for one epoch.
        cut: how tokens are cut into samples.

    Raises:
        DatasetError: samples are requested from a part without tokens.

    Example:
        >>> corpus = ShuffledCorpus(np.array([5, 3, 4]), (0, 3), None, Cut(seq_length=4, seed=7))
        >>> corpus.document_index.tolist(), corpus.shuffle_index.tolist()
        ([2, 1, 0], [1, 0])
        >>> spans = corpus.spans(np.array([0]))
        >>> spans.documents.tolist(), spans.offsets.tolist(), spans.lengths.tolist()
        ([1, 0], [0, 0], [3, 2])
    """

    def __init__(
        self, lengths: npt.NDArray[Any], bounds: tuple[int, int], num_samples: int | None, cut: Cut
    ) -> None:
        begin, end = bounds
        self.num_samples: Final = num_samples
        tokens = int(lengths[begin:end].sum(dtype=np.int64))
        size, extra = cut.seq_length, cut.extra
        if not tokens and num_samples is not None and num_samples * size + extra:
            raise DatasetError(
                "split",
                "gives this part no token, but samples are requested: Megatron would search forever",
                f"sequences {begin} to {end} of {lengths.size}",
                hint="leave the part out, or give it a larger share",
            )
        epochs = 1 if not num_samples else max(1, -(-(num_samples * size + extra) // tokens))
        # The samples of all epochs but the last one, if that one is shuffled separately.
        earlier = ((epochs - 1) * tokens - extra) // size
        is_separate = (
            epochs > 1
            and num_samples is not None
            and num_samples - earlier < int(0.80 * ((tokens - extra) // size))
        )
        total = epochs * tokens - extra
        count = total // size
        if cut.keeps_partial:
            # Counted in 32-bit floats, as in Megatron.
            count = int(np.ceil(np.float32(total) / np.float32(size)))
        count = max(count, 0)
        # numpy guarantees that the stream of this generator never changes, so it need not be reimplemented.
        generator = np.random.RandomState(cut.seed)
        rounds = (epochs - 1, 1) if is_separate else (epochs,)
        documents = np.arange(begin, end, dtype=np.int32)
        shuffled = [generator.permutation(np.tile(documents, times)) for times in rounds]
        self.document_index: Final = np.concatenate(shuffled) if is_separate else shuffled[0]
        kind: Any = np.uint32 if count < _MAX_IN_32_BITS else np.int64
        self.shuffle_index: Final = np.arange(count, dtype=kind)
        for part in np.split(self.shuffle_index, [earlier] if is_separate else []):
            generator.shuffle(part)
        self._starts = edges_of(lengths[self.document_index])  # of documents; last, the number of tokens
        self._cut = cut

    def __len__(self) -> int:
        return self.shuffle_index.size

    def spans(self, samples: Ids, corpus: int = 0) -> Spans:
        """Returns the tokens of some samples.

        Args:
            samples: int64 array of shape (m,), each in [0, len).
            corpus: the number of this corpus.
        """
        size = self._cut.seq_length
        begins = self.shuffle_index[samples].astype(np.int64) * size
        ends = np.minimum(begins + size + self._cut.extra, self._starts[-1])
        first = interval_of(self._starts, begins)
        counts = np.maximum(0, interval_of(self._starts, ends - 1) + 1 - first)
        places = numbers_in(first, counts)
        rows = np.repeat(np.arange(samples.size), counts)
        starts = self._starts[places]
        offsets = np.maximum(begins[rows] - starts, 0)
        lengths = np.minimum(ends[rows], self._starts[places + 1]) - starts - offsets
        has_tokens = lengths > 0  # some documents have no tokens
        documents = self.document_index[places].astype(np.int64)
        corpora = np.full(rows.size, corpus)
        return Spans(*(column[has_tokens] for column in (rows, corpora, documents, offsets, lengths)))

    @cached_property
    def sample_index(self) -> Ids:
        """The begin of each sample of the unshuffled stream, as in Megatron's caches: shape (len + 1, 2)."""
        extra = self._cut.extra
        tokens = np.arange(len(self) + 1, dtype=np.int64) * self._cut.seq_length - (1 - extra)
        tokens[0] = 0
        total = self._starts[-1]
        places = np.minimum(interval_of(self._starts, tokens), self._starts.size - 2)
        offsets = tokens - self._starts[places] + (1 - extra)
        if tokens[-1] >= total:
            offsets[-1] = total - self._starts[places[-1]] - extra
        places[0] = offsets[0] = 0
        return np.stack([places, offsets], axis=1)


class BlendedSamples:
    """The positions of the tokens of each sample of a part.

    Args:
        lengths: for each corpus, the number of tokens of its sequences.
        weights: the weight of each corpus; None for one epoch of each.
        num_samples: how many samples are requested; None for one epoch.
        cut: how tokens are cut into samples.
        split: the shares of the parts, as a string; None if all tokens belong to the part.
        part: the name of the part.
        surplus: the share by which a source is built longer than it is expected to be read.

    Attributes:
        corpora: the corpora, each shuffled separately.
        dataset_index: the corpus of each sample, int16; None if there is no blend.
        dataset_sample_index: the number of each sample in its corpus, int64; None if there is no blend.
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
        requested: Sequence[int | None] = [num_samples if len(lengths) == 1 else None] * len(lengths)
        if weights is not None:
            if num_samples is None:
                raise ArgumentValueError(
                    "num_samples", "must be given with weights", hint="or leave both out"
                )
            shares = _normalised(np.array(weights, dtype=np.float64))
            needed = [math.ceil(num_samples * share) for share in shares]
            requested = [math.ceil(count * (1 + surplus)) for count in needed]
        self.corpora: Final = [
            ShuffledCorpus(corpus_lengths, _bounds(split, part, corpus_lengths.size), count, cut)
            for corpus_lengths, count in zip(lengths, requested, strict=True)
        ]
        self.dataset_index: npt.NDArray[np.int16] | None = None
        self.dataset_sample_index: Ids | None = None
        if len(lengths) == 1 and weights is None:
            return
        sizes = np.array([len(corpus) for corpus in self.corpora], dtype=np.int64)
        if weights is None and not sizes.all():
            source = int(np.flatnonzero(sizes == 0)[0])
            raise DatasetError("blend", "has a source that is shorter than one sample", f"source {source}")
        if weights is not None:
            self.dataset_index = blended(_normalised(shares), sum(needed))
        elif num_samples is None:
            self.dataset_index = blended(_normalised(sizes), int(sizes.sum()), sizes)
        else:
            self.dataset_index = blended(_normalised(sizes), min(num_samples, int(sizes.sum())))
        self._require_enough(sizes, np.bincount(self.dataset_index, minlength=sizes.size), surplus)
        self.dataset_sample_index = read_counts(self.dataset_index)

    def __len__(self) -> int:
        return len(self.corpora[0]) if self.dataset_index is None else self.dataset_index.size

    def spans(self, samples: Ids) -> Spans:
        """Returns the tokens of some samples.

        Args:
            samples: int64 array of shape (m,), each in [0, len).
        """
        if self.dataset_index is None or self.dataset_sample_index is None or not samples.size:
            return self.corpora[0].spans(samples)
        parts: list[Spans] = []
        for corpus, at in groups(self.dataset_index[samples].astype(np.int64)):
            spans = self.corpora[corpus].spans(self.dataset_sample_index[samples[at]], corpus)
            parts.append(spans._replace(rows=at[spans.rows]))
        joined = Spans(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(joined.rows, kind="stable")
        return Spans(*(field[order] for field in joined))

    def _require_enough(self, sizes: Ids, read: Ids, surplus: float) -> None:
        if (read > sizes).any():
            source = int(np.flatnonzero(read > sizes)[0])
            raise OutOfDatasetError(
                "blend",
                f"reads source {source} {read[source]} times, but it has {sizes[source]} samples",
                hint=f"raise mid_level_dataset_surplus, which is {surplus}",
            )


def _bounds(split: str | None, part: str, num_sequences: int) -> tuple[int, int]:
    share = share_of(split, part)
    if share[0] >= share[1]:
        raise ArgumentValueError("split", f"leaves the part {part} empty", split)
    return range_of(share, num_sequences)


def _normalised(weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = weights / np.sum(weights)
    return shares
