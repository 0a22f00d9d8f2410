"""Bugs in blocks, lengths that change, and epochs of sources."""

from tests.campaigns.planting import Bug

LAWS = "tests/samplers/test_blocks.py"
OTHER_LENGTHS = "tests/loading/test_other_window_lengths.py"
SOURCES = "tests/loading/test_epochs_of_sources.py"

BUGS = [
    Bug("pools count windows, not blocks", "BlockSampler.draw", "self.pool * pieces", "self.pool", LAWS),
    Bug(
        "a pass is lost where blocks are cut",
        "CutBlocks.read",
        "positions // self.pieces",
        "positions % self.pieces",
        LAWS,
    ),
    Bug(
        "another length is taken within a pool",
        "TokenWindowUnit.converted",
        "state.position % pool_size",
        "False",
        OTHER_LENGTHS,
    ),
    Bug(
        "the position stays as it was, in windows of another length",
        "TokenWindowUnit.converted",
        "state.position * self.windows_per_block // before",
        "state.position",
        OTHER_LENGTHS,
    ),
    Bug(
        "the phase is that of the epoch of the run, not of the source",
        "Part.epochs_at",
        "not self.runs_on",
        "True",
        SOURCES,
    ),
]
