"""Parts of bytes: views of what all threads read."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.formats.byte_parts import ByteParts
from tests.storage.crowd import all_done
from tests.storage.formats.tf_records import example, write


def test_parts_are_cut_out_of_what_stands_around_them():
    parts = ByteParts(b"<one><two><>", [0, 5, 10, 12], head=1, tail=1)
    assert [bytes(part) for part in parts] == [b"one", b"two", b""]
    assert bytes(parts[-2]) == b"two"
    assert [bytes(part) for part in parts[1:]] == [b"two", b""]
    with pytest.raises(IndexError):
        parts[3]


def test_threads_read_records_of_the_same_run_at_the_same_time(tmp_path):
    write(tmp_path / "a.tfrecord", [example({"id": [number]}) for number in range(1000)])
    with sk.TfRecordDataset(f"{tmp_path}/a.tfrecord", scalars=["id"]) as dataset:

        def read(seed):
            for _ in range(20):
                ids = np.random.default_rng(seed).permutation(1000)
                assert [sample["id"] for sample in dataset.__getitems__(ids)] == ids.tolist()

        all_done(lambda: read(0), lambda: read(1))
