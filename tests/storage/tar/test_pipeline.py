"""The fluent pipeline: lazy, picklable, with errors that name the sample at which a function failed."""

import pickle
import warnings

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.read import reader
from tests.storage.checks import assert_refused
from tests.storage.tar.shards import jpeg_tiles, write


@pytest.fixture
def tiles(tmp_path):
    """60 samples in two shards: 30 tiles of each photograph."""
    files = jpeg_tiles()
    for number in range(2):
        write(tmp_path / f"tiles-{number}.tar", files[number * 90 : number * 90 + 90])
    return TarDataset(f"{tmp_path}/tiles-{{0..1}}.tar")


def double(value):
    return value * 2


def is_one(sample):
    return sample["cls"] == 1


def test_each_method_gives_a_new_dataset_and_leaves_the_old_one_alone(tiles):
    before = tiles[3]
    assert set(before) == {"__key__", "__url__", "jpg", "cls", "meta.json"}
    decoded = tiles.decode("pil")
    renamed = decoded.rename(image="png;jpg", label="cls")
    mapped = renamed.map_dict(label=double)
    pairs = mapped.to_tuple("image", "label")
    assert tiles[3] == before
    assert decoded[3]["jpg"].size == (64, 64)
    assert list(renamed[33]) == ["__key__", "__url__", "meta.json", "image", "label"]
    assert (renamed[33]["label"], mapped[33]["label"], pairs[33][1]) == (1, 2, 2)
    assert pairs.map(len)[0] == 2
    assert renamed[33]["meta.json"] == {"top": 0, "left": 3}
    for dataset in (decoded, renamed, mapped, pairs):
        assert (len(dataset), dataset.layout, dataset.fingerprint) == (60, tiles.layout, tiles.fingerprint)


def test_to_tuple_takes_alternatives_and_one_text_of_several(tiles):
    assert tiles.to_tuple("png;jpg", "cls")[0] == tiles.to_tuple("jpg cls")[0]
    assert tiles.to_tuple(["png", "jpg"])[0] == (tiles[0]["jpg"],)
    assert tiles.to_tuple("__key__", "cls")[31] == ("photo1/tile_001", b"1")


def test_select_keeps_ids_in_their_files(tiles):
    ones = tiles.decode().select(is_one)
    assert (len(ones), ones.layout.sizes.tolist(), ones.layout.names) == (30, [0, 30], tiles.layout.names)
    assert ones[0]["__key__"] == "photo1/tile_000"
    some = tiles.select(lambda key: key.endswith(("1", "2")), by="key")
    assert some.layout.sizes.tolist() == [6, 6]
    assert [key[-3:] for key in some.keys([0, 1, 6])] == ["001", "002", "001"]
    both = some.decode().select(is_one).to_tuple("cls")
    assert (len(both), both[5]) == (6, (1,))
    assert len({dataset.fingerprint for dataset in (tiles, ones, some, both)}) == 4
    assert some.fingerprint == tiles.select(lambda key: key[-1] in "12", by="key").fingerprint
    assert len(tiles.select(lambda sample: False)) == 0
    with pytest.raises(sk.ArgumentValueError, match="by: must be one of sample, key, got 'url'"):
        tiles.select(is_one, by="url")


def test_a_selection_calls_its_function_once_a_sample_and_reports_progress(tiles, tmp_path):
    calls, events = [], []
    dataset = TarDataset(
        f"{tmp_path}/tiles-{{0..1}}.tar", progress=lambda *args: events.append(args), cache=tmp_path / "other"
    ).select(lambda key: calls.append(key) or True, by="key")
    for _ in range(3):
        assert len(dataset) == 60
        assert dataset[59]["cls"] == b"1"
    assert len(calls) == 60
    assert events[0] == ("indexing archive", 0, 2)
    assert events[2] == ("indexing archive", 2, 2)
    assert [events[3], events[-1]] == [("selecting sample", 0, 60), ("selecting sample", 60, 60)]
    copied = pickle.loads(pickle.dumps(tiles.decode().select(is_one)))  # noqa: S301  # our own
    assert len(copied) == 30


@pytest.mark.parametrize(
    ("build", "step"),
    [
        (lambda dataset, f: dataset.map(f), "map(broken)"),
        (lambda dataset, f: dataset.map_dict(cls=f), "map_dict"),
        (lambda dataset, f: dataset.decode(lambda extension, data: f(data)), "decode"),
        (lambda dataset, f: dataset.select(f), "select"),
    ],
)
def test_an_error_names_shard_key_and_id_and_keeps_its_cause(tiles, build, step):
    def broken(_):
        raise ZeroDivisionError("by zero")

    dataset = build(tiles.select(lambda key: key.startswith("photo1"), by="key"), broken)
    with pytest.raises(sk.DatasetError) as caught:
        len(dataset)
        dataset[7]
    id, key = (0, "photo1/tile_000") if step == "select" else (7, "photo1/tile_007")
    assert f"tiles-1.tar: sample {key!r} (id {id}): {step} failed:" in str(caught.value)
    assert "by zero" in str(caught.value)
    cause = caught.value.__cause__
    assert isinstance(cause if step != "decode" else cause.__cause__, ZeroDivisionError)


def test_an_error_of_a_step_keeps_its_value_and_its_hint(tiles):
    def broken(_):
        raise sk.ArgumentValueError("crop", "must be even", 7, hint="take 8")

    assert_refused(tiles.map(broken), r"map\(broken\) failed: crop: must be even, got 7; take 8$", 0)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("lengths", [None, [30, 30]])
@pytest.mark.parametrize(
    ("wrong", "kind"), [(60, sk.OutOfDatasetError), (-1, sk.OutOfDatasetError), ("a", sk.ArgumentTypeError)]
)
def test_wrong_ids_are_an_error_at_any_point_of_an_iteration(tmp_path, lengths, wrong, kind):
    dataset = TarDataset(f"{tmp_path}/tiles-{{0..1}}.tar", lengths=lengths)
    for good in (0, 300):  # before the first batch, and after it
        with pytest.raises(kind, match="ids: "):
            list(dataset.in_order([*[7] * good, wrong]))
    assert [sample["__key__"][-3:] for sample in dataset.in_order([59, 0])] == ["029", "000"]


def test_one_sample_is_counted_from_the_end_as_in_every_dataset(tiles):
    assert tiles[-1] == tiles[len(tiles) - 1]
    with pytest.raises(sk.OutOfDatasetError, match=f"index: .* got -{len(tiles) + 1}"):
        tiles[-len(tiles) - 1]


@pytest.mark.usefixtures("tiles")
def test_large_samples_read_one_by_one_equal_those_read_together(tmp_path, monkeypatch):
    dataset = TarDataset(f"{tmp_path}/tiles-{{0..1}}.tar")
    together = list(dataset)
    monkeypatch.setattr(reader, "BYTES_AT_ONCE", 0)
    assert list(dataset) == together
    assert len(together) == 60


def test_a_shard_is_found_on_disk_by_its_name_and_no_other(tiles, tmp_path):
    assert tiles.local_path(tiles[0]["__url__"]) == f"{tmp_path}/tiles-0.tar"
    with pytest.raises(sk.ArgumentValueError, match="url: is not one of the shards, got 'tiles-0'"):
        tiles.local_path("tiles-0")


def test_a_missing_field_is_named_with_the_existing_ones(tiles):
    for dataset in (tiles.to_tuple("png"), tiles.rename(image="png;gif"), tiles.map_dict(png=double)):
        assert_refused(dataset, r"has no field png.*; its fields are: jpg, cls, meta\.json", 0)


def test_a_shuffled_dataset_has_its_window_and_iterates_in_the_default_order(tiles):
    shuffled = tiles.shuffle(10)
    assert (tiles.default_partial_size, shuffled.default_partial_size) == (None, 10)
    assert shuffled.decode().default_partial_size == 10
    assert shuffled.shuffle(0).default_partial_size is None
    first, second = ([sample["__key__"] for sample in shuffled] for _ in range(2))
    sampler = sk.RandomSampler(shuffle=sk.Shuffle.PARTIAL, partial_size=10)
    assert (first, second) == tuple(tiles.keys(sampler.order(tiles, epoch)[:]) for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == sorted(tiles.keys())
    assert first != tiles.keys()
    assert [sample["__key__"] for sample in tiles] == tiles.keys()


def test_a_plain_dataloader_that_reads_a_shuffled_dataset_in_storage_order_is_warned_of(tiles):
    dataset = tiles.shuffle(1000)
    options = {"batch_size": 8, "collate_fn": list}
    with pytest.warns(
        UserWarning, match=r"use samplerkit\.Loader, or sampler=samplerkit\.TorchSampler"
    ) as caught:
        assert len([*DataLoader(dataset, **options)]) == 8
    assert len(caught) == 1
    ours = sk.Loader(dataset, sk.SequentialSampler(), **options)
    ordered = DataLoader(dataset, sampler=sk.TorchSampler(sk.RandomSampler(seed=7), dataset), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len([*loader]) for loader in (ours, ordered, DataLoader(tiles, **options))] == [8, 8, 8]
