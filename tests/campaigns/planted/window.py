"""Bugs in where windows of tokens lie, and in what is told of them."""

from __future__ import annotations

from tests.campaigns.planting import Bug

WINDOWS = "tests/storage/tokens/test_windows_of_tokens.py"
READING = "tests/storage/tokens/test_reading.py"
DAMAGED = "tests/storage/tokens/test_damaged_tokens.py"
DOCUMENTS = "tests/storage/tokens/test_documents_of_tokens.py"
REMOTE = "tests/storage/tokens/test_remote_tokens.py"
TOLD = "tests/inspect/test_tokens.py"
PARTS = "tests/loading/test_parts_of_documents.py"

BUGS = [
    Bug(
        "without a phase a window has a label behind the end",
        "Rings.blocks",
        "np.maximum(self.tokens - (not self.phase), 0)",
        "self.tokens",
        WINDOWS,
    ),
    Bug(
        "all files of a corpus have one phase",
        "Rings._computed",
        "keyed_hash(words, places)",
        "keyed_hash(words, places * 0)",
        WINDOWS,
    ),
    Bug(
        "all passes of an epoch have one phase",
        "Rings._computed",
        "divmod(epoch, PASS)",
        "(0, epoch % PASS)",
        WINDOWS,
    ),
    Bug(
        "what is kept of one corpus is taken for another one",
        "Rings.phases",
        "known[files]",
        "known[files[:1]]",
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
        "the part behind the seam is that of the file, not of the split",
        "TokenSource._parts",
        "(number, start, flat[seam : at + width])",
        "(number, self.opened.files[number].begin, flat[seam : at + width])",
        READING,
    ),
    Bug(
        "documents behind the seam begin too early",
        "TokenSource._starts_in",
        "row * width + at - first",
        "row * width - first",
        READING,
    ),
    Bug(
        "the mask leaves out the first token of a document, not its label",
        "made_outputs",
        "~borders[:, 1:]",
        "~borders[:, :-1]",
        READING,
    ),
    Bug(
        "a split with an index is one of tokens",
        "_part",
        "pointers is None",
        "True",
        READING,
    ),
    Bug(
        "the fingerprint does not know the seed of the phases",
        "TokenSource.fingerprint",
        "rings.seed if rings.phase else None",
        "None",
        READING,
    ),
    Bug(
        "a file that is written to is read on",
        "ByteFiles._check",
        "file.is_same(status)",
        "True",
        DAMAGED,
    ),
    Bug(
        "a read that ends before is taken for whole",
        "ByteFiles.fill",
        "got != buffer.nbytes",
        "False",
        DAMAGED,
    ),
    Bug(
        "an index of another size is believed",
        "Opened._of_megatron",
        "size not in {rows, rows + n}",
        "False",
        DAMAGED,
    ),
    Bug(
        "pointers are not held against lengths",
        "Pointers._read_page",
        "(lengths < 0) | (pointers + lengths * self.itemsize != ends)",
        "lengths < 0",
        DAMAGED,
    ),
    Bug(
        "a negative token is one of the vocabulary",
        "TokenSource.require_below",
        "int(rows.min()) >= 0",
        "True",
        DAMAGED,
    ),
    Bug(
        "a part of a document is its beginning",
        "TokenDocuments.__getsegments__",
        "first + start",
        "first",
        DOCUMENTS,
    ),
    Bug(
        "windows that were asked for ahead keep the epoch that was guessed",
        "WindowsAhead.rows",
        "np.flatnonzero(guessed != epochs)",
        "np.zeros(0, dtype=np.int64)",
        REMOTE,
    ),
    Bug(
        "the windows of a document do not go round the file",
        "Rings.windows_over",
        "(0, int(self.tokens[file])) if self.phase else (0,)",
        "(0,)",
        TOLD,
    ),
    Bug(
        "a document is looked for in the epoch of the run",
        "_in_epoch",
        "int(reading.units.epochs(draws)[read.place])",
        "reading.epoch",
        TOLD,
    ),
    Bug(
        "parts of a tree are asked for by the ids of the whole",
        "TreeDataset._segments",
        "np.array([start, 0, 0])",
        "0",
        PARTS,
    ),
]
