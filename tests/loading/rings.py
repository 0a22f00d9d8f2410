"""Windows of tokens by counting: a stand-in for a dataset of tokens, whose tokens are their own places."""

import hashlib

import numpy as np

import samplerkit as sk


class Rings:
    """Files of so many tokens each, read round as rings from a phase on; a token is (file, place).

    Nothing here is by the arithmetic of `samplerkit`: the phase is a digest, and a window is a list.
    """

    wants_epochs = True

    def __init__(self, tokens, seq_len, block_len, seed=0):
        self.tokens = tokens
        self.seq_len = seq_len
        self.block_len = block_len
        self.seed = seed
        self.windows_per_block = block_len // seq_len
        self.block_layout = layout_of(tokens, lambda count: count // block_len)
        self.layout = layout_of(tokens, lambda count: count // block_len * self.windows_per_block)
        self.fingerprint = f"{tokens} {block_len} {seed}"
        parts = tokens.values() if isinstance(tokens, dict) else [tokens]
        self.files = [count for part in parts for count in part]

    def __len__(self):
        return len(self.layout)

    def phase(self, epoch, file):
        key = f"{self.seed} {epoch} {file}".encode()
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "little") % self.block_len

    def inputs(self, id, epoch):
        """The tokens that are inputs of a window, as (file, place)."""
        file = int(self.layout.file_of(np.array([id]))[0])
        first = self.phase(epoch, file) + (id - int(self.layout.starts[file])) * self.seq_len
        return [(file, (first + number) % self.files[file]) for number in range(self.seq_len)]

    def __getitems__(self, ids, epochs):
        pairs = zip(ids.tolist(), epochs.tolist(), strict=True)
        return [(epoch, self.inputs(id, epoch)) for id, epoch in pairs]

    def __getitem__(self, index):
        raise AssertionError("a single window has no epoch of its source")


def layout_of(tokens, windows):
    if isinstance(tokens, dict):
        return sk.Layout.tree({name: sk.Layout([windows(t) for t in part]) for name, part in tokens.items()})
    return sk.Layout([windows(count) for count in tokens])
