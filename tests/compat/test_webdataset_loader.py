"""The loader with methods, and the draw of some samples."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from tests.compat.webdataset_shards import as_list, numbers, once_each, write


def loaded(folder, workers=0, samples=20, **options):
    path = folder / f"shards-{samples}"
    urls = f"{path}/many-{{000..001}}.tar" if path.exists() else write(path, 2, samples)
    return wds.WebLoader(
        numbers(urls, folder, **options),
        batch_size=4,
        num_workers=workers,
        collate_fn=as_list,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_mixes_what_workers_give_and_reads_another_epoch_each_time(tmp_path, workers):
    loader = loaded(tmp_path, workers).unlisted().shuffle(8).listed(5)
    epochs = [list(loader) for _ in range(2)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [5] * 4
        assert Counter(sum(epoch, [])) == once_each(20)
    assert sum(epochs[0], []) not in (list(loaded(tmp_path, workers).unlisted()), sum(epochs[1], []))


def test_the_place_of_a_loaders_shuffle_matters(tmp_path):
    batches = list(loaded(tmp_path).shuffle(100))
    assert all(batch == list(range(batch[0], batch[0] + 4)) for batch in batches), "batches stay whole"
    assert [batch[0] for batch in batches] != [0, 4, 8, 12, 16]
    again = list(loaded(tmp_path).shuffle(100))
    assert again == batches, "by seed and epoch"
    assert list(loaded(tmp_path).shuffle(100, seed=1)) != batches


def test_a_loader_repeats_and_ends_as_webdatasets_does(tmp_path):
    loader = loaded(tmp_path, samples=10)
    assert [len(batch) for batch in loader.repeat(nepochs=2)] == [4, 4, 2, 4, 4, 2]
    assert len(list(loader.with_epoch(7))) == 7
    with pytest.raises(TypeError, match="with_length"):
        len(loader.unlisted())
    assert len(loader.unlisted().with_length(3)) == 3
    assert len(wds.WebLoader(range(10), batch_size=4)) == 3
    assert repr(loader.unlisted()) == "WebLoader().unlisted()"
    with pytest.raises(sk.ArgumentValueError, match="no index"):
        loader.select(bool, by="key")


def test_a_loaders_function_that_fails_raises_its_own_class(tmp_path):
    with pytest.raises(ZeroDivisionError):
        list(loaded(tmp_path).map(lambda batch: 1 // batch[0]))
    with pytest.raises(ZeroDivisionError, match="sample '00000'"):
        dataset = wds.WebDataset(write(tmp_path, 1, 2))
        list(wds.WebLoader(dataset.map(lambda _: 1 // 0), num_workers=1))


def test_a_draw_of_samples_is_another_one_in_each_epoch_and_the_same_for_a_seed(tmp_path):
    urls = write(tmp_path, 2, 200)
    dataset = numbers(urls, tmp_path).rsample(0.5)
    epochs = [list(dataset) for _ in range(20)]
    assert 0.4 < np.mean([len(epoch) for epoch in epochs]) / 200 < 0.6
    assert epochs[0] != epochs[1]
    assert all(epoch == sorted(set(epoch)) for epoch in epochs)
    assert list(numbers(urls, tmp_path).rsample(0.5)) == epochs[0]
    assert list(numbers(urls, tmp_path, seed=1).rsample(0.5)) != epochs[0]
    assert list(dataset.rsample(0)) == []
    assert len(list(numbers(urls, tmp_path).rsample(1))) == 200
    by_workers = list(DataLoader(numbers(urls, tmp_path).rsample(), batch_size=None, num_workers=2))
    assert len(set(by_workers)) == len(by_workers)
    for wrong in (True, "half", None):
        with pytest.raises(sk.ArgumentTypeError, match="probability"):
            dataset.rsample(wrong)
    with pytest.raises(sk.ArgumentValueError, match="between 0 and 1"):
        dataset.rsample(1.5)
    with pytest.raises(sk.CompositionError, match="rsample"):
        numbers(urls, tmp_path, equal_steps="pad").rsample()
