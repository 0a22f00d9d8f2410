"""Files, shards, indexes and folders that are damaged, changed or gone, and what reads them."""

import gzip
import os
import pickle
import shutil

import numpy as np
import pytest

import samplerkit as sk
from tests.corpora import write_tokens


def changed_file(folder):
    np.savez(folder / "a.npz", x=np.zeros(7))
    with sk.FileDataset([folder / "a.npz"], "npz", [8]) as dataset:
        dataset[0]


def cut_array(folder):
    np.save(folder / "a.npy", np.zeros(7))
    (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:-1])
    len(sk.FileDataset([folder / "a.npy"], "npy"))


def cut_shard(folder):
    with sk.TarWriter(str(folder / "%d.tar"), samples_per_shard=9) as writer:
        writer.write({"__key__": "a", "txt": "b" * 2000})
    whole = (folder / "0.tar").read_bytes()
    (folder / "cut.tar").write_bytes(whole[:1024])
    len(sk.TarDataset(str(folder / "cut.tar"), cache=folder / "cache"))


def zipped(folder, **remote):
    (folder / "a.tar.gz").write_bytes(gzip.compress(bytes(100_000)))
    len(sk.TarDataset(str(folder / "a.tar.gz"), cache=folder / "cache", remote=remote))


def shard(folder):
    with sk.TarWriter(str(folder / "%d.tar"), samples_per_shard=9) as writer:
        writer.write({"__key__": "a", "txt": "b"})
    dataset = sk.TarDataset(writer.paths, cache=folder / "cache")
    assert len(dataset) == 1
    return dataset


def gone_shard(folder):
    dataset = shard(folder)
    (folder / "0.tar").unlink()
    dataset[0]


def folder_like_a_file(folder):
    (folder / "0.npz").mkdir()
    sk.FileDataset(str(folder / "*.npz"), "npz")


def link_to_no_folder(folder):
    (folder / "0").symlink_to(folder / "nowhere")
    sk.FileDataset(str(folder / "*/*.npz"), "npz")


def time_of_no_year(folder):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Arrow here")
    late = pa.record_batch({"at": pa.array([{"us": 1 << 60}], pa.struct({"us": pa.timestamp("us")}))})
    with pa.ipc.new_stream(folder / "a.arrow", late.schema) as stream:
        stream.write_batch(late)
    with sk.ArrowDataset(folder / "a.arrow") as dataset:
        dataset[0]


def emptied_cache(folder):
    there = pickle.dumps(shard(folder))
    shutil.rmtree(folder / "cache")
    len(pickle.loads(there))  # noqa: S301  # our own


def shard_of_nine(folder):
    with sk.TarWriter(folder / "0.tar") as writer:
        for number in range(9):
            writer.write({"__key__": str(number), "cls": number})
    return folder / "0.tar"


def no_folder(folder):
    (folder / "file").write_text("no folder")
    sk.TarWriter(folder / "file" / "0.tar").write({"__key__": "a", "cls": 1})


def other_lengths(folder):
    """What one function left behind, and another one finds."""
    with pytest.raises(sk.ArgumentTypeError):
        sk.compute_lengths(["a"] * 300 + [7], letters, folder / "lengths.npy")
    sk.compute_lengths(["a"] * 300 + [7], len, folder / "lengths.npy")


def letters(text):
    return len(text) if isinstance(text, str) else None


def tokens(folder, **options):
    return sk.TokenDataset(write_tokens(folder / "a", [range(9)] * 3), 4, **options)


def read_tokens(folder, change):
    data = tokens(folder)
    if change is None:
        os.truncate(folder / "a.bin", 3)
    data[0]
    change(folder / "a.bin")
    data[0]


def lying_index(folder):
    data = tokens(folder)
    index = bytearray((folder / "a.idx").read_bytes())
    index[34 + 4 * 3 + 8] += 2
    (folder / "a.idx").write_bytes(index)
    return data
