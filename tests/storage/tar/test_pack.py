"""Packing a folder: which of its files become samples, and which are left out."""

from __future__ import annotations

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
