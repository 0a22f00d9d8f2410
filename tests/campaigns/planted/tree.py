"""Bugs in layouts, in shares of a batch, and in what parts of a tree receive."""

from tests.campaigns.planting import Bug

LAYOUTS = "tests/order/test_layout.py"
DATASETS = "tests/storage/tree/test_tree_dataset.py"

BUGS = [
    Bug(
        "a description does not look at the names of parts",
        "describe_dataset",
        "[path, leaf.has_files, leaf.num_files, leaf.names]",
        "[leaf.has_files, leaf.num_files, leaf.names]",
        LAYOUTS,
    ),
    Bug(
        "shares are joined in the order of the parts",
        "_joined_samples",
        "samples[place] = sample",
        "samples[len(samples) - samples.count(None)] = sample",
        DATASETS,
    ),
    Bug(
        "a part receives the ids of the tree",
        "share_of",
        "ids[(ids >= begin) & (ids < end)] - begin",
        "ids[(ids >= begin) & (ids < end)]",
        DATASETS,
    ),
]
