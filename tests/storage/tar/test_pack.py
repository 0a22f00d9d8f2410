"""Packing a folder: which of its files become samples, and which are left out."""

from __future__ import annotations

import pytest

from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.pack import pack_folder


def test_what_readers_would_leave_out_is_left_out_and_nothing_else(tmp_path):
    kept = ["__/a.txt", "___/b.txt", "__notes__.txt", "x/__notes__/c.txt", "y/d.txt"]
    left_out = ["README", "__notes__/e.txt", "y/.hidden.txt"]
    for name in (*kept, *left_out):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text("x")
    packed = pack_folder(tmp_path / "source", f"{tmp_path}/out-%d.tar")
    assert packed.left_out == tuple(left_out)
    assert TarDataset(packed.paths).keys() == [name.removesuffix(".txt") for name in kept]


@pytest.mark.parametrize(("samples", "sizes"), [(3, [1, 1, 1]), (10, [3, 3, 4]), (12, [4, 4, 4])])
def test_shards_whose_number_is_said_are_as_large_as_one_another(tmp_path, samples, sizes):
    (tmp_path / "source").mkdir()
    for number in range(samples):
        (tmp_path / "source" / f"{number:02}.txt").write_text("x")
    packed = pack_folder(tmp_path / "source", f"{tmp_path}/out-{{0..2}}.tar")
    assert TarDataset(packed.paths).layout.sizes.tolist() == sizes
