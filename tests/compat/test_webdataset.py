"""The drop-in for webdataset: its interface, and what it refuses."""

from __future__ import annotations

import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from webdataset import filters

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from tests.compat.webdataset_shards import (
    is_even,
    number_of,
    numbers,
    once_each,
    preproc,
    write,
    write_images,
)


def test_the_imagenet_example_reads_images(tmp_path):
    dataset = (
        wds.Dataset(write_images(tmp_path, 3, 20))
        .shuffle(1000)
        .decode("pil")
        .rename(image="jpg;png", data="json")
        .map_dict(image=preproc)
        .to_tuple("image", "data")
    )
    images, data = next(iter(DataLoader(dataset, batch_size=20)))
    assert images.shape == (20, 3, 24, 24)
    assert Counter(data["id"].tolist()) == once_each(20)
    assert Counter(data["label"].tolist()) == {0: 10, 1: 10}


def test_plain_samples_are_dicts_of_bytes_and_the_steps_do_what_webdatasets_do(tmp_path):
    urls = write(tmp_path, 1, 4)
    dataset = wds.WebDataset(urls, cache=tmp_path / "cache")
    first = next(iter(dataset))
    path = f"{tmp_path}/many-000.tar"
    assert first == {"__key__": "00000", "__url__": path, "__local_path__": path, "txt": b"0", "cls": b"0"}
    decoded = dataset.decode()
    assert list(decoded.to_tuple("txt cls")) == [(str(n), n) for n in range(4)]
    assert list(decoded.to_tuple("png;txt", "cls").map_tuple(int, None)) == [(n, n) for n in range(4)]
    assert list(decoded.to_tuple("png", "cls", missing_is_error=False)) == [(None, n) for n in range(4)]
    assert list(decoded.rename(label="cls", keep=False)) == [{"label": n} for n in range(4)]
    assert [sorted(sample) for sample in decoded.rename(label="cls")] == [
        ["__key__", "__local_path__", "__url__", "label", "txt"]
    ] * 4
    assert list(decoded.map(number_of).select(is_even)) == [0, 2]
    assert list(decoded.map(lambda sample: None if sample["cls"] == 1 else sample["cls"])) == [0, 2, 3]
    assert list(decoded.map(number_of).slice(1, 3)) == [1, 2]
    assert list(decoded.map(number_of).listed(3)) == [[0, 1, 2], [3]]
    assert list(decoded.map(number_of).listed(3).unlisted()) == [0, 1, 2, 3]
    assert list(decoded.to_tuple("txt", "cls").batched(3).unbatched()) == [(str(n), n) for n in range(4)]
    assert list(decoded.compose(filters.select(lambda sample: sample["cls"] > 2)).map(number_of)) == [3]
    assert list(decoded.pipe(lambda samples: (s["cls"] for s in samples))) == [0, 1, 2, 3]


def test_batches_are_made_as_webdataset_makes_them(tmp_path):
    dataset = (
        wds.WebDataset(write_images(tmp_path, 1, 6))
        .decode("rgb8", only="jpg json")
        .to_tuple("jpg", "json", "__key__")
        .map_tuple(torch.from_numpy, lambda about: about["id"])
        .batched(4)
    )
    images, ids, keys = next(iter(dataset))
    assert images.shape == (4, 32, 40, 3)
    assert isinstance(ids, np.ndarray)
    assert (ids.tolist(), keys) == ([0, 1, 2, 3], ["00000", "00001", "00002", "00003"])
    theirs = filters.default_collation_fn([(torch.ones(2), 1, "a"), (torch.ones(2), 2, "b")])
    ours = wds.default_collation_fn([(torch.ones(2), 1, "a"), (torch.ones(2), 2, "b")])
    assert ours[0].equal(theirs[0])
    assert (ours[1].tolist(), ours[2]) == (theirs[1].tolist(), theirs[2])
    with pytest.raises(sk.DatasetError, match="different shapes"):
        wds.default_collation_fn([(torch.ones(2),), (torch.ones(3),)])


def test_a_handler_leaves_samples_out_and_says_how_many(tmp_path, caplog):
    def strict(sample):
        if sample["cls"] == 2:
            raise KeyError("no")
        return sample["cls"]

    dataset = wds.WebDataset(write(tmp_path, 1, 4)).decode()
    assert list(dataset.map(strict, handler=wds.ignore_and_continue)) == [0, 1, 3]
    assert "1 samples were left out" in caplog.text
    with pytest.warns(UserWarning, match="KeyError"):
        assert list(dataset.map(strict, handler=wds.warn_and_continue)) == [0, 1, 3]
    assert list(dataset.map(strict, handler=wds.ignore_and_stop)) == [0, 1]
    assert "ends the epoch early" in caplog.text
    with pytest.raises(KeyError, match="sample '00002'"):
        list(dataset.map(strict, handler=wds.reraise_exception))
    asked = []
    list(dataset.map(strict, handler=lambda error: asked.append(type(error)) or True))
    assert asked == [KeyError]


def test_a_handler_of_the_dataset_is_asked_about_flaws_of_archives(tmp_path):
    urls = write(tmp_path, 2, 8)
    path = tmp_path / "many-001.tar"
    path.write_bytes(path.read_bytes()[:3000])
    (tmp_path / "many-001.tar.skidx").unlink()
    with pytest.raises(sk.DatasetError, match=r"many-001\.tar: truncated"):
        list(numbers(urls, tmp_path))
    with pytest.raises(sk.DatasetError, match=r"many-001\.tar"):
        list(numbers(urls, tmp_path, handler=wds.ignore_and_stop))
    asked = []
    kept = list(numbers(urls, tmp_path, handler=lambda error: asked.append(str(error)) or True))
    assert kept[:4] == [0, 1, 2, 3]
    assert len(kept) < 8
    assert any("truncated" in text for text in asked)


REFUSED = {
    "a splitter of one's own": ({"nodesplitter": lambda source: source}, sk.NotSupportedError, "world="),
    "no splitter for workers": ({"workersplitter": None}, sk.NotSupportedError, "leave it out"),
    "select_files": ({"select_files": bool}, sk.NotSupportedError, "select"),
    "rename_files": ({"rename_files": str}, sk.NotSupportedError, "rename"),
    "another mode": ({"mode": "infinite"}, sk.NotSupportedError, "resampled"),
    "a seed that is a bool": ({"seed": True}, sk.ArgumentTypeError, "integer"),
    "a handler that is none": ({"handler": 3}, sk.ArgumentTypeError, "function"),
    "an unknown argument": ({"shardshufle": 3}, sk.ArgumentTypeError, "shardshufle"),
    "an unknown kind of equal steps": ({"equal_steps": "yes"}, sk.ArgumentValueError, "pad, drop"),
    "a world that is none": ({"world": (2, 0)}, sk.ArgumentTypeError, "World"),
}


@pytest.mark.parametrize(("options", "kind", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_change_samples_is_refused_with_a_hint(tmp_path, options, kind, text):
    urls = write(tmp_path, 1, 4)
    with pytest.raises(kind, match=text):
        wds.WebDataset(urls, **options)


def test_what_changes_nothing_is_accepted(tmp_path):
    urls = write(tmp_path, 1, 4)
    dataset = numbers(
        urls,
        tmp_path,
        handler=wds.reraise_exception,
        shardshuffle=0,
        detshuffle=True,
        verbose=True,
        url_to_name=str,
        nodesplitter=wds.split_by_node,
        workersplitter=wds.split_by_worker,
        cache_size=0,
    )
    assert list(dataset.shuffle(0)) == [0, 1, 2, 3]
    assert sorted(dataset.shuffle(4, initial=2)) == [0, 1, 2, 3]


def test_methods_and_specifications_that_are_not_here_say_what_to_do(tmp_path):
    dataset = wds.WebDataset(write(tmp_path, 1, 4))
    assert not hasattr(dataset, "associate")
    with pytest.raises(NotImplementedError, match="use map"):
        dataset.associate({})
    with pytest.raises(AttributeError, match="no attribute 'shufle'"):
        dataset.shufle(5)
    for urls in ({"datasets": []}, "mixed.yaml"):
        with pytest.raises(sk.NotSupportedError, match="MixtureSampler"):
            wds.WebDataset(urls)
    with pytest.raises(sk.ArgumentTypeError, match="seed="):
        dataset.shuffle(5, rng=np.random)
    with pytest.raises(sk.ArgumentTypeError, match="first that gives"):
        dataset.decode(post=[])


def test_several_patterns_and_a_tar_dataset_are_taken(tmp_path):
    write(tmp_path, 4, 8)
    both = f"{tmp_path}/many-000.tar::{tmp_path}/many-{{002..003}}.tar"
    assert list(numbers(both, tmp_path)) == [0, 1, 4, 5, 6, 7]
    tar = sk.TarDataset(f"{tmp_path}/many-*.tar").decode().to_tuple("cls")
    assert sorted(wds.WebDataset(tar).shuffle(4)) == [(n,) for n in range(8)]
    with pytest.raises(sk.ArgumentTypeError, match="options already"):
        wds.WebDataset(tar, checksums=True)


def test_images_are_pil_images_and_pickles_are_refused(tmp_path):
    with sk.TarWriter(f"{tmp_path}/p-%d.tar") as writer:
        writer.write({"__key__": "a", "pkl": pickle.dumps(1)})
    with pytest.raises(sk.DatasetError, match="pickle"):
        list(wds.WebDataset(f"{tmp_path}/p-0.tar").decode())
    image = next(iter(wds.WebDataset(write_images(tmp_path, 1, 1)).decode("pil")))["jpg"]
    assert isinstance(image, Image.Image)


def test_nothing_warns_where_webdataset_does(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(numbers(write(tmp_path, 1, 4), tmp_path, shardshuffle=True).shuffle(2))
