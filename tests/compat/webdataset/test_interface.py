"""The drop-in for webdataset: its interface, refused arguments, the content of samples, and its loader."""

import gzip
import io
import pickle
import tarfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from webdataset import autodecode, filters, tenbin

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from samplerkit.compat.webdataset.stages import tensors
from tests.compat.webdataset.shards import as_list, is_even, number_of, numbers, once_each, write
from tests.storage.remote.server import served


def test_plain_samples_are_dicts_of_bytes_and_steps_do_the_same_as_webdatasets(tmp_path):
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


def test_batches_are_made_as_by_webdataset(tmp_path):
    stream = io.BytesIO()
    Image.new("RGB", (40, 32)).save(stream, "JPEG")
    with wds.TarWriter(f"{tmp_path}/images.tar") as writer:
        for number in range(6):
            writer.write({"__key__": f"{number:05}", "jpg": stream.getvalue(), "json": {"id": number}})
    dataset = (
        wds.WebDataset(f"{tmp_path}/images.tar")
        .decode("rgb8", only="jpg json")
        .to_tuple("jpg", "json", "__key__")
        .map_tuple(torch.from_numpy, lambda about: about["id"])
        .batched(4)
    )
    images, ids, keys = next(iter(dataset))
    assert images.shape == (4, 32, 40, 3)
    assert isinstance(ids, np.ndarray)
    assert (ids.tolist(), keys) == ([0, 1, 2, 3], ["00000", "00001", "00002", "00003"])
    expected = filters.default_collation_fn([(torch.ones(2), 1, "a"), (torch.ones(2), 2, "b")])
    ours = wds.default_collation_fn([(torch.ones(2), 1, "a"), (torch.ones(2), 2, "b")])
    assert ours[0].equal(expected[0])
    assert (ours[1].tolist(), ours[2]) == (expected[1].tolist(), expected[2])
    with pytest.raises(RuntimeError, match="equal size"):
        wds.default_collation_fn([(torch.ones(2),), (torch.ones(3),)])


def test_a_handler_drops_samples_and_their_number_is_logged(tmp_path, caplog):
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
    handled = []
    list(dataset.map(strict, handler=lambda error: handled.append(type(error)) or True))
    assert handled == [KeyError]


def test_a_handler_of_the_dataset_receives_flaws_of_archives(tmp_path, caplog):
    urls = write(tmp_path, 2, 8)
    path = tmp_path / "many-001.tar"
    path.write_bytes(path.read_bytes()[:3000])
    (tmp_path / "many-001.tar.skidx").unlink()
    with pytest.raises(sk.DatasetError, match=r"many-001\.tar: truncated"):
        list(numbers(urls, tmp_path))
    with pytest.raises(tarfile.ReadError, match=r"many-001\.tar"):
        list(numbers(urls, tmp_path, handler=wds.ignore_and_stop))
    assert "ends the epoch early" not in caplog.text
    handled = []
    read = list(numbers(urls, tmp_path, handler=lambda error: handled.append(error) or True))
    assert read[:4] == [0, 1, 2, 3]
    assert len(read) < 8
    assert {type(error) for error in handled} == {wds.DamagedShardError}
    assert any("truncated" in str(error) for error in handled)


REFUSED = {
    "a splitter of the user's": ({"nodesplitter": lambda source: source}, sk.NotSupportedError, "world="),
    "no splitter for workers": ({"workersplitter": None}, sk.NotSupportedError, "leave it out"),
    "select_files": ({"select_files": bool}, sk.NotSupportedError, "select"),
    "another mode": ({"mode": "infinite"}, sk.NotSupportedError, "resampled"),
    "an unknown argument": ({"shardshufle": 3}, TypeError, "TarDataset.*argument 'shardshufle'"),
    "an unknown kind of equal steps": ({"equal_steps": "yes"}, sk.ArgumentValueError, "pad, drop"),
}


@pytest.mark.parametrize(("options", "kind", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_arguments_that_would_change_samples_are_refused_with_a_hint(tmp_path, options, kind, text):
    urls = write(tmp_path, 1, 4)
    with pytest.raises(kind, match=text):
        wds.WebDataset(urls, **options)


def test_unsupported_arguments_and_specifications_are_errors_with_an_alternative(tmp_path):
    dataset = wds.WebDataset(write(tmp_path, 1, 4))
    with pytest.raises(sk.ArgumentTypeError, match="must be a path"):
        wds.WebDataset({"datasets": []})
    with pytest.raises(sk.NotSupportedError, match="seed="):
        dataset.shuffle(5, rng=np.random)
    with pytest.raises(sk.NotSupportedError, match="first result other than None"):
        dataset.decode(post=[])
    with pytest.raises(sk.ArgumentTypeError, match="map_tuple: must be a function"):
        dataset.map_tuple(None, 5)
    with pytest.raises(sk.ArgumentTypeError, match="collation_fn: must be a function"):
        dataset.batched(4, False)  # meant for partial, which is the third argument
    with pytest.raises(ValueError, match="islice"):
        dataset.slice("a")
    with pytest.raises(sk.ArgumentRangeError, match="with_length: must not be negative"):
        dataset.with_length(-1)
    with pytest.raises(sk.ArgumentTypeError, match="cache"):
        wds.WebDataset("https://host/a.tar", cache_dir=3)


def test_several_patterns_and_a_tar_dataset_are_accepted(tmp_path):
    write(tmp_path, 4, 8)
    both = f"{tmp_path}/many-000.tar::{tmp_path}/many-{{002..003}}.tar"
    assert list(numbers(both, tmp_path)) == [0, 1, 4, 5, 6, 7]
    tar = sk.TarDataset(f"{tmp_path}/many-*.tar").decode().to_tuple("cls")
    assert sorted(wds.WebDataset(tar).shuffle(4)) == [(n,) for n in range(8)]
    with pytest.raises(sk.ArgumentTypeError, match="options already"):
        wds.WebDataset(tar, checksums=True)


def make_loader(folder, workers=0, samples=20, **options):
    path = folder / f"shards-{samples}"
    urls = f"{path}/many-{{000..001}}.tar" if path.exists() else write(path, 2, samples)
    return wds.WebLoader(
        numbers(urls, folder, **options),
        batch_size=4,
        num_workers=workers,
        collate_fn=as_list,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_mixes_batches_of_workers_and_reads_another_epoch_each_time(tmp_path, workers):
    loader = make_loader(tmp_path, workers).unlisted().shuffle(8).listed(5)
    epochs = [list(loader) for _ in range(2)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [5] * 4
        assert Counter(sum(epoch, [])) == once_each(20)
    assert sum(epochs[0], []) not in (list(make_loader(tmp_path, workers).unlisted()), sum(epochs[1], []))


def test_the_position_of_a_loaders_shuffle_matters(tmp_path):
    batches = list(make_loader(tmp_path).shuffle(100))
    assert all(batch == list(range(batch[0], batch[0] + 4)) for batch in batches), "batches are not split"
    assert [batch[0] for batch in batches] != [0, 4, 8, 12, 16]
    assert list(make_loader(tmp_path).shuffle(100)) == batches, "the same seed and epoch"
    assert list(make_loader(tmp_path).shuffle(100, seed=1)) != batches


def test_a_loader_repeats_and_ends_as_webdatasets_does(tmp_path):
    loader = make_loader(tmp_path, samples=10)
    assert [len(batch) for batch in loader.repeat(nepochs=2)] == [4, 4, 2, 4, 4, 2]
    assert len(list(loader.with_epoch(7))) == 7
    known = wds.WebLoader(range(10), batch_size=4)
    assert len(list(known)) == len(known) == 3
    for limited, length in (
        (known.with_epoch(7), 7),
        (known.repeat(3, 2), 2),
        (known.repeat(2), 6),
        (known.with_epoch(2).repeat(2), 6),  # as in webdataset: the last of the two counts
        (known.repeat(2).with_epoch(2), 2),
    ):
        assert len(list(limited)) == length
    for unknown in (known.repeat(2), loader.unlisted()):
        with pytest.raises(TypeError, match="with_length"):
            len(unknown)
    assert len(loader.unlisted().with_length(3)) == 3
    assert repr(loader.unlisted()) == "WebLoader().unlisted()"


def test_rsample_differs_by_epoch_and_is_the_same_for_a_seed(tmp_path):
    urls = write(tmp_path, 2, 200)
    dataset = numbers(urls, tmp_path).rsample(0.3)
    epochs = [list(dataset) for _ in range(20)]
    assert 0.2 < np.mean([len(epoch) for epoch in epochs]) / 200 < 0.4
    assert epochs[0] != epochs[1]
    assert all(epoch == sorted(set(epoch)) for epoch in epochs)
    assert list(numbers(urls, tmp_path).rsample(0.3)) == epochs[0]
    assert list(numbers(urls, tmp_path, seed=1).rsample(0.3)) != epochs[0]
    assert list(dataset.rsample(0)) == []
    assert len(list(numbers(urls, tmp_path).rsample(1))) == 200
    for wrong in (True, "half", None):
        with pytest.raises(sk.ArgumentTypeError, match="p: must be a number"):
            dataset.rsample(wrong)
    with pytest.raises(sk.ArgumentValueError, match="between 0 and 1"):
        dataset.rsample(1.5)
    with pytest.raises(sk.CompositionError, match="rsample"):
        numbers(urls, tmp_path, equal_steps="pad").rsample()


ARRAYS = [
    np.arange(12, dtype=kind).reshape(3, 4)
    for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u8")
]


@pytest.mark.parametrize("extension", ["ten", "tb", "left.ten", "ten.gz"])
def test_tensors_are_decoded_as_by_webdataset(tmp_path, extension):
    data = bytes(tenbin.encode_buffer([*ARRAYS, np.zeros((0, 3))]))
    with wds.TarWriter(f"{tmp_path}/one.tar") as writer:
        writer.write({"__key__": "a", extension: gzip.compress(data) if extension.endswith("gz") else data})
    sample = next(iter(wds.WebDataset(f"{tmp_path}/one.tar").decode()))[extension]
    for ours, expected in zip(sample, tenbin.decode_buffer(data), strict=True):
        assert (ours.dtype, ours.shape, ours.tolist()) == (expected.dtype, expected.shape, expected.tolist())
        assert ours.flags.writeable


def test_damaged_tensors_are_errors_and_never_larger_than_their_bytes():
    whole = bytes(tenbin.encode_buffer([np.arange(5.0), np.arange(3)]))
    cut = [whole[:stop] for stop in range(1, len(whole))] + [(b"~TenBin~" + bytes(8)) * 2]
    changed = [
        whole[:place] + bytes([value]) + whole[place + 1 :]
        for place in range(len(whole))
        for value in (0, 255, ord("O"))
    ]
    for data in cut + changed:
        try:
            arrays = tensors(".ten", data)
        except sk.DatasetError:  # and no other
            continue
        assert sum(array.nbytes for array in arrays) <= len(data)
    with pytest.raises(sk.DatasetError, match="type 'O8' and shape"):
        tensors(".ten", whole.replace(b"f8", b"O8"))


def test_functions_by_extension_are_called_as_webdatasets_are():
    ours, webdatasets = (module.handle_extension("JPG seg.png", len) for module in (wds, autodecode))
    names = (".jpg", ".left.JPG", ".seg.png", ".png", ".a.seg.png", ".jpg.x", ".", ".xseg.png")
    assert [ours(name, b"123") for name in names] == [webdatasets(name, b"123") for name in names]
    assert pickle.loads(pickle.dumps(ours))(".jpg", b"123") == 3  # noqa: S301  # our own
    for extensions, text in (("", "must not be empty"), (3, "must be a string")):
        with pytest.raises(sk.SamplerkitError, match=text):
            wds.handle_extension(extensions, len)
    with pytest.raises(sk.ArgumentTypeError, match="must be a function"):
        wds.handle_extension("jpg", 3)


def test_a_sample_has_the_local_path_of_its_whole_shard(tmp_path):
    urls = write(tmp_path, 2, 8)
    paths = {sample["__local_path__"] for sample in wds.WebDataset(urls)}
    assert paths == {f"{tmp_path}/many-000.tar", f"{tmp_path}/many-001.tar"}
    cache = tmp_path / "cache"
    with served(tmp_path) as web:
        remote = f"{web.url}/many-{{000..001}}.tar"
        samples = list(wds.WebDataset(remote, cache_dir=cache))
        in_parts = list(wds.WebDataset(remote, remote={"cache": tmp_path / "other"}, fetch="ranges"))
    assert len({sample["__local_path__"] for sample in samples}) == 2
    for sample in samples:
        with sk.TarDataset(sample["__local_path__"], cache=tmp_path / "third") as copy:
            assert sample["__key__"] in list(copy.keys())
    assert all(sample["__local_path__"].startswith(str(cache)) for sample in samples)
    assert all("__local_path__" not in sample for sample in in_parts)
