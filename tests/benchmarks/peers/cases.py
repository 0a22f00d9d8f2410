"""The cases for every peer: sizes, limits, changes of the number of ranks. Standard library only."""

from dataclasses import dataclass

SHARDS, SHARD, BATCH, SEED = 8, 3, 256, 7
"""The measured ids: batches of 256 of shard 3 of 8, shuffled with seed 7."""

SIZES = tuple(10**power for power in range(4, 10))
QUICK_SIZES = (10**4, 10**5, 10**6)

CURVE_CELLS = ("epoch", "seek", "resume")
"""What is measured at each size: an epoch from nothing, a seek, and a resume."""

ROWS, WIDTH, QUICK_ROWS = 50_000, 64, 5_000
"""The dataset in memory of the end-to-end cells: rows of 64 float32."""

CELL_SECONDS = 60.0
CELL_GIB = 8.0


@dataclass(frozen=True)
class Resize:
    """An epoch that is left after some steps and taken up on another number of ranks.

    Args:
        name: for the table.
        size: the number of samples.
        ranks: before.
        batch: samples a rank and step, before.
        steps: how many steps each rank takes before.
        new_ranks: after.
        new_batch: samples a rank and step, after.
    """

    name: str
    size: int
    ranks: int
    batch: int
    steps: int
    new_ranks: int
    new_batch: int

    @property
    def num_read(self) -> int:
        """How many samples were handed out before."""
        return self.ranks * self.batch * self.steps


RESIZES = (
    # 1,296 samples and what is left of them fill all these global batches, so no tail pads or drops.
    Resize("4 to 4 (control)", 1296, 4, 12, 12, 4, 12),
    Resize("4 to 2, same global batch", 1296, 4, 12, 12, 2, 24),
    Resize("4 to 3, same global batch", 1296, 4, 12, 12, 3, 16),
    Resize("4 to 2, same batch per rank", 1296, 4, 12, 12, 2, 12),
    Resize("4 to 3, same batch per rank", 1296, 4, 12, 12, 3, 12),
    Resize("4 to 3, uneven tail", 1000, 4, 12, 12, 3, 16),
)
