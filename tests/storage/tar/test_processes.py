"""Few open files, in threads, in forked and spawned workers, and over many epochs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from tests.storage.tar.shards import jpeg_tiles, write


def as_list(batch):
    return batch


def many(folder, shards, each=3):
    """Writes shards of small samples; gives their pattern."""
    with TarWriter(f"{folder}/many-%03d.tar", samples_per_shard=each) as writer:
        for number in range(shards * each):
            writer.write({"__key__": f"{number:05}", "txt": str(number), "cls": number % 10})
    return f"{folder}/many-{{000..{shards - 1:03}}}.tar"


FEW_HANDLES = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from torch.utils.data import DataLoader
import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset

dataset = TarDataset(sys.argv[1], cache=sys.argv[2], progress=False).to_tuple("txt")
ids, open_files = [], []
for epoch in range(3):
    for batch in sk.Loader(dataset, sk.RandomSampler(seed=epoch), batch_size=100, tail="ragged"):
        ids += [int(text) for text in batch[0]]
    open_files.append(len(os.listdir("/proc/self/fd")))
workers = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=100, tail="ragged", num_workers=2)
in_workers = [int(text) for batch in workers for text in batch[0]]
print(json.dumps([ids, open_files, in_workers]))
"""


@pytest.mark.parametrize("indexed", [True, False])
def test_500_shards_are_read_with_64_file_descriptors(tmp_path, indexed):
    pattern = many(tmp_path, 500)
    if not indexed:
        for path in tmp_path.glob("*.skidx"):
            path.unlink()
    command = [sys.executable, "-c", FEW_HANDLES, pattern, str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    ids, open_files, in_workers = json.loads(done.stdout)
    assert Counter(ids) == Counter(dict.fromkeys(range(1500), 3))
    assert Counter(in_workers) == Counter(range(1500))
    assert max(open_files) < 40
    assert len(set(open_files)) == 1, "the number of open files grows"


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_workers_read_what_one_process_reads(tmp_path, context, suffix):
    path = write(tmp_path / f"tiles{suffix}", jpeg_tiles())
    dataset = TarDataset(path).decode("rgb8").to_tuple("jpg", "cls", "__key__")
    expected = {key: (image.tobytes(), label) for image, label, key in dataset}
    loader = sk.Loader(
        dataset,
        sk.RandomSampler(seed=7),
        batch_size=8,
        tail="ragged",
        num_workers=2,
        multiprocessing_context=context,
        collate_fn=as_list,
    )
    received = [sample for batch in loader for sample in batch]
    assert len(received) == 60
    assert {key: (image.tobytes(), label) for image, label, key in received} == expected


def test_spawned_workers_say_that_the_cache_was_emptied(tmp_path):
    cache = tmp_path / "cache"
    dataset = TarDataset(many(tmp_path, 4), cache=cache).decode().to_tuple("cls")
    assert dataset[0] == (0,)
    shutil.rmtree(cache)
    loader = sk.Loader(dataset, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    problem = r"cache: has lost an index that is in use, got .*; leave the cache alone while it is in use"
    with pytest.raises(sk.DatasetError, match=problem):
        list(loader)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_pickled_dataset_is_small_and_reads_the_same(tmp_path, is_open):
    dataset = TarDataset(many(tmp_path, 40), progress=lambda *what: None).decode().to_tuple("cls")
    if is_open:
        assert dataset[5] == (5,)
    text = pickle.dumps(dataset)
    assert len(text) < 20_000
    assert list(pickle.loads(text)) == list(dataset)  # noqa: S301  # our own


def test_a_fork_while_another_thread_reads_does_not_hang(tmp_path):
    dataset = TarDataset(many(tmp_path, 20), max_handles=2)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            dataset.__getitems__(np.arange(60))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = (
                    0 if [int(s["txt"]) for s in dataset.__getitems__(np.arange(60))] == [*range(60)] else 3
                )
                os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join(30)
