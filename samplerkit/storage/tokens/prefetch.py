"""Remote windows: while a batch is worked on, those of the next one are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.batches import BatchesAhead, SampleBatch
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.threads import weakly
from samplerkit.storage.tokens.source import Rows, TokenSource


@final
class WindowsAhead:
    """The windows that a process reads next.

    What comes is given as ids alone, and where a window lies hangs on the epoch of its source, too. That is
    the one in which windows of its corpus were read last; where a pass ends it is another one, and those
    windows are read again.
    """

    def __init__(self, source: TokenSource, stats: FileStats) -> None:
        self.stats: Final = stats
        self._source: Final = source
        self._epochs = np.zeros(len(source.rings.corpora), dtype=np.int64)
        self._batches: BatchesAhead | None = None

    def expect(self, upcoming: Iterable[Any], epoch: int) -> None:
        """Receives what is read next, batch by batch, from an epoch on."""
        self.stop()
        self._epochs = np.full_like(self._epochs, epoch)
        self._batches = BatchesAhead(weakly(self._read), upcoming)

    def rows(self, ids: Ids, epochs: Ids | int) -> Rows:
        """Reads windows, as `TokenSource.rows` does."""
        batches, epochs = self._batches, np.broadcast_to(epochs, ids.shape)
        if batches is None or not ids.size:
            return self._source.rows(ids, epochs)
        if not batches.is_right:
            self.stop()
            return self._source.rows(ids, epochs)
        # Before the next batch is begun, which may happen while this one is waited for.
        corpora = self._corpora(ids)
        known = self._epochs.copy()
        known[corpora] = epochs
        self._epochs = known
        ((guessed, (rows, files, begins)),) = batches.read(ids)
        wrong = np.flatnonzero(guessed != epochs) if self._source.rings.phase else np.zeros(0, dtype=np.int64)
        if wrong.size:
            rows[wrong], files[wrong], begins[wrong] = self._source.rows(ids[wrong], epochs[wrong])
        return rows, files, begins

    def stop(self) -> None:
        """Ends the thread when it has read what it reads now."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.stop()

    def close(self) -> None:
        """Ends the thread, and waits for it for a second at most."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def _corpora(self, ids: Ids) -> Ids:
        rings = self._source.rings
        return rings.corpus_of[rings.files_of(ids)]

    def _read(self, ids: Ids) -> SampleBatch:
        epochs = self._epochs[self._corpora(ids)]
        rows = self._source.rows(ids, epochs)
        return SampleBatch([(epochs, rows)], rows[0].nbytes)
