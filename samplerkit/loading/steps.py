"""What a trainer, a progress bar and a log ask of a loader: its epoch, its steps, and what is in them."""

from __future__ import annotations

from abc import ABC
from typing import Any

import numpy as np

from samplerkit.loading.cursor import Cursor
from samplerkit.loading.reading import Reading
from samplerkit.loading.readings import Readings
from samplerkit.loading.received import Received
from samplerkit.loading.run import Run
from samplerkit.loading.torch_names import ForTrainers
from samplerkit.order import arguments
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.order.world import World


class CountsSteps(ABC):
    """The epoch and the steps of a loader, by its cursor: none of it needs to read anything."""

    _cursor: Cursor
    _readings: Readings
    _received: Received
    _run: Run

    @property
    def epoch(self) -> int:
        """The current epoch: the one being read, or the one that the next iteration reads."""
        return self._cursor.epoch

    @property
    def world(self) -> World:
        """Which rank of how many this process is; the running job is asked once."""
        return self._run.world

    @property
    def order(self) -> Order:
        """The undealt order of the current epoch."""
        return self._run.undealt(self._cursor.epoch)

    @property
    def batch_sampler(self) -> ForTrainers:
        """Where trainers look for `set_epoch`: here, or on the `sampler` of it."""
        return ForTrainers(self)

    def __len__(self) -> int:
        """The number of batches in a whole epoch of this rank."""
        return self._reading.epoch_steps

    @property
    def remaining(self) -> int:
        """The number of batches of this rank that are not handed out yet."""
        return self._reading.steps - self.step

    @property
    def epoch_step(self) -> int:
        """The batches of the whole epoch without those that remain, for a progress bar of `len(loader)`.

        A resume leaves it as it was. On another number of ranks it counts in the steps of these.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.SequentialSampler(), batch_size=2)
            >>> loader.load_state_dict(loader.state_dict(step=3))
            >>> [(loader.epoch_step, loader.remaining, len(loader), loader.step) for batch in loader]
            [(4, 1, 5, 1), (5, 0, 5, 2)]
        """
        return len(self) - self.remaining

    @property
    def steps_left(self) -> int:
        """The number of batches of this rank from where this loader began the epoch, read or not."""
        return self._reading.steps

    @property
    def step(self) -> int:
        """How many batches have been handed out since this loader began the epoch."""
        return self._cursor.at.taken

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads.

        The current epoch keeps its position, so that a trainer may call this after a restore. While an
        iteration is under way, the epoch is set at its end: after its last batch, where it is left early, or
        when another one begins.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        self._cursor.set_epoch(arguments.epoch(epoch))

    def ids(self, step: int) -> Ids:
        """Gives the ids of the samples that this rank reads in a step, pads included.

        Of a step that was handed out, the samples that were skipped are left out, here and in `pads`.

        Args:
            step: in [0, steps of this delivery), counted from where this loader began the epoch.

        Raises:
            OutOfDatasetError: there is no such step.
        """
        return self._received.ids(self._cursor.at, self._reading, step)

    def pads(self, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tells which samples of a step repeat another one to fill the batch, so that metrics leave them out.

        Args:
            step: as for `ids`; the batch handed out last is `loader.step - 1`.

        Returns:
            bool array of shape (samples,).
        """
        return self._received.pads(self._cursor.at, self._reading, step)

    def tokens(self, step: int) -> int:
        """Gives the number of tokens that all ranks read in a step, without communication: for the loss.

        Ranks hold different numbers of samples and tokens. The mean of their means would weigh each token
        by the batch that it came in, so a loss is the sum over all ranks' tokens by this number: of DDP,
        which takes the mean over ranks, `loss.sum() * ranks / loader.tokens(step)`. Pads count, and samples
        that were skipped. Where no lengths are known, it is the number of samples.

        Args:
            step: as for `ids`.

        Raises:
            OutOfDatasetError: there is no such step.

        Example:
            >>> import samplerkit as sk
            >>> recipe = sk.TokenBatches(8, lengths=[4, 1, 2, 8, 3, 1, 4, 2])
            >>> ranks = [
            ...     sk.Loader(range(8), sk.RandomSampler(seed=1), batches=recipe, world=sk.World(2, rank))
            ...     for rank in range(2)
            ... ]
            >>> [[sum(recipe.lengths[id] for id in rank.ids(0)) for rank in ranks], ranks[0].tokens(0)]
            [[3, 1], 4]
        """
        return self._reading.tokens(step)

    @property
    def _reading(self) -> Reading:
        """What this rank reads from where it began the epoch."""
        return self._readings(self._cursor.at.epoch, self._cursor.at.start)
