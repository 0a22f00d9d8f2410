"""Files that are gone when they are read: each is named, with what to do."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk


def shards(folder):
    with sk.TarWriter(folder / "a-%d.tar", samples_per_shard=2, index=False) as writer:
        for number in range(6):
            writer.write({"__key__": str(number), "cls": number})
    return sk.TarDataset(writer.paths, cache=folder / "cache").decode(), folder / "a-1.tar"


def files(folder):
    for number in range(3):
        np.savez(folder / f"{number}.npz", id=np.arange(2))
    return sk.FileDataset(str(folder / "*.npz"), "npz"), folder / "1.npz"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", [shards, files])
def test_a_file_that_is_gone_is_named_with_what_to_do(tmp_path, make, workers):
    dataset, path = make(tmp_path)
    assert len(dataset) == 6
    path.unlink()
    problem = rf"{path}: cannot be \w+ .*No such file or directory.*; put it there again, or leave it out"
    with pytest.raises(sk.DatasetError, match=problem):
        list(sk.Loader(dataset, batch_size=2, num_workers=workers, collate_fn=list))
