"""Bugs in the places of windows of tokens, and in what is reported of them."""

from tests.campaigns.planting import Bug

WINDOWS = "tests/storage/tokens/test_windows_of_tokens.py"
DAMAGED = "tests/storage/tokens/test_damaged_tokens.py"
REMOTE = "tests/storage/tokens/test_reading.py"

BUGS = [
    Bug(
        "without a phase a window has a label behind the end",
        "Rings.blocks",
        "np.maximum(self.tokens - (not self.spec.phase), 0)",
        "self.tokens",
        WINDOWS,
    ),
    Bug(
        "all passes of an epoch have one phase",
        "Rings._compute",
        "divmod(epoch, PASS)",
        "(0, epoch % PASS)",
        WINDOWS,
    ),
    Bug(
        "windows do not go round the file",
        "Rings.at",
        "begins % tokens",
        "np.minimum(begins, tokens - 1)",
        WINDOWS,
    ),
    Bug(
        "a file that is written to is read on",
        "Stored._require",
        "status.st_size != self.size or not is_same_time",
        "False",
        DAMAGED,
    ),
    Bug(
        "a read that ends before is taken for whole",
        "ByteFiles.fill",
        "count != buffer.nbytes",
        "False",
        DAMAGED,
    ),
    Bug(
        "windows that were asked for ahead keep the epoch that was guessed",
        "WindowsAhead.rows",
        "np.flatnonzero(guessed != epochs)",
        "np.zeros(0, dtype=np.int64)",
        REMOTE,
    ),
]
