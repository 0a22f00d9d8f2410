"""Samples that commands write: shards that are read once, from front to back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

from samplerkit.compat.webdataset.commands import Command, output
from samplerkit.compat.webdataset.handlers import Handler, goes_on, of_shard
from samplerkit.compat.webdataset.split import Seat, Shuffling
from samplerkit.compat.webdataset.stages import in_buffer
from samplerkit.compat.webdataset.stream import samples_of
from samplerkit.errors import DatasetError

ROLE = "stream"
"""The role in the keys of the window."""


@final
@dataclass(frozen=True)
class Piped:
    """Shards that commands write.

    Where there are as many shards as workers of all ranks, or more, each worker runs its own commands. Where
    there are fewer, several workers run one command, and each takes every so many samples of it.

    Args:
        commands: one a shard.
        timeout: how long to wait for the next byte of one, in seconds.
        handler: what is asked when a command or its archive fails; the rest of its shard is then left out.
    """

    commands: tuple[Command, ...]
    timeout: float
    handler: Handler | None

    def samples(self, seat: Seat, epoch: int, shuffling: Shuffling) -> Generator[dict[str, Any], None, None]:
        """Returns the samples that one worker reads in an epoch."""
        samples = self._in_order(seat, epoch, shuffling)
        if not shuffling.window:
            return samples
        return in_buffer(shuffling.window, samples, shuffling.draws(seat.number, epoch, ROLE)(0))

    def _in_order(
        self, seat: Seat, epoch: int, shuffling: Shuffling
    ) -> Generator[dict[str, Any], None, None]:
        shards = list(shuffling.of_shards(len(self.commands), epoch))
        if len(shards) >= seat.count:
            mine, first, stride = shards[seat.number :: seat.count], 0, 1
        else:
            # Those that share a shard: seats number, number + shards, ...
            number = seat.number % len(shards)
            mine = shards[number : number + 1]
            first, stride = seat.number // len(shards), len(range(number, seat.count, len(shards)))
        for shard in mine:
            try:
                with closing(output(self.commands[shard], self.timeout)) as pieces:
                    samples = samples_of(pieces, f"pipe:{self.commands[shard].shown}")
                    yield from islice(samples, first, None, stride)
            except DatasetError as error:
                if not goes_on(self.handler, of_shard(error)):
                    return
