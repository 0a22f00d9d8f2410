"""Samples of `lengths` that a shard lacks: left out of their batches, while the steps stay as they were."""

import errno
import os
import re
from collections import Counter
from itertools import chain
from pathlib import Path

import fsspec
import pytest
import torch.utils.data

import samplerkit as sk
from samplerkit.storage.open_files import AbsentError
from tests.numbers import Made
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import EACH, LENGTHS, NUMBERS, PATTERN, SHARDS
from tests.storage.tar.shards import write
from tests.waiting import wait_until

CUT, GONE, EMPTY = 2, 4, 7
"""A shard that ends early, one that is missing, and one that is no archive at all."""

KEPT = 6
"""How many samples are complete in the shard that ends early."""

MISSING = {*range(CUT * EACH + KEPT, CUT * EACH + EACH)}
MISSING |= {shard * EACH + row for shard in (GONE, EMPTY) for row in range(EACH)}
GOOD = [f"{number:05}" for number in NUMBERS if number not in MISSING]

LOGGED = [
    rf"left out: .*train-{CUT:02}\.tar: lacks {EACH - KEPT} of the {EACH} samples that were given \(trunc",
    rf"left out: .*train-{GONE:02}\.tar: lacks all {EACH} samples that were given \(unreadable: ",
    rf"left out: .*train-{EMPTY:02}\.tar: lacks all {EACH} samples that were given \(damaged header",
]
"""The lines of the log, in the order of the shards."""


def damage(folder):
    cut = folder / f"train-{CUT:02}.tar"
    cut.write_bytes(cut.read_bytes()[: KEPT * 2048 + 3 * 512 + 100])
    (folder / f"train-{GONE:02}.tar").unlink()
    (folder / f"train-{EMPTY:02}.tar").write_bytes(b"no archive" * 1000)


@pytest.fixture(name="place", params=["disk", "shards", "ranges"])
def fixture_place(request, folder):
    """Where the shards are, and how remote ones are fetched; those of the folder are damaged later."""
    if request.param == "disk":
        # All names are listed before a shard is removed.
        yield [f"{folder}/train-{number:02}.tar" for number in range(SHARDS)], {}
    else:
        with served(folder) as server:
            yield f"{server.url}/{PATTERN}", {"fetch": request.param}


def open_dataset(place, tmp_path, **options):
    urls, more = place
    arguments = {"lengths": LENGTHS, "on_error": "skip", "progress": False, "cache": tmp_path / "cache"}
    return sk.TarDataset(urls, **arguments, **more, **options)


def log_lines(caplog):
    return sorted(
        (record.getMessage() for record in caplog.records if record.getMessage().startswith("left out")),
        key=lambda line: re.search(r"train-(\d+)", line)[1],
    )


@pytest.mark.filterwarnings("ignore:.*requests")
def test_the_good_samples_are_read_once_and_the_steps_stay(place, folder, tmp_path):
    dataset, sampler = open_dataset(place, tmp_path), sk.RandomSampler(seed=3)
    damage(folder)
    for epoch in range(2):
        loaders = [
            sk.Loader(dataset, sampler, batch_size=5, world=sk.World(2, rank), collate_fn=list)
            for rank in range(2)
        ]
        received = Counter()
        for loader in loaders:
            loader.set_epoch(epoch)
            steps = 0
            for batch in loader:
                step, steps = loader.step - 1, steps + 1
                assert batch, "a step without a sample"
                is_pad = loader.pads(step)
                assert [int(sample["__key__"]) for sample in batch] == loader.ids(step).tolist()
                received.update(s["__key__"] for s, pad in zip(batch, is_pad, strict=True) if not pad)
            assert steps == len(loader) == 10
        assert received == Counter(GOOD)
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1]
    assert {skip.id for loader in loaders for skip in loader.skipped} == MISSING
    reasons = ("truncated", "unreadable", "damaged header")
    assert [dataset.skipped.counts[reason] for reason in reasons] == [1, 1, 1]
    dataset.close()


def test_a_batch_whose_samples_are_all_missing_has_one_pad(place, folder, tmp_path):
    dataset = open_dataset(place, tmp_path).map(lambda sample: sample | {"draw": sk.draw_rng().random()})
    damage(folder)
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=EACH // 2, collate_fn=list)
    draws = Made(len(NUMBERS), lambda _: sk.draw_rng().random())
    first_draws = [draw for draw, *_ in sk.Loader(draws, sk.SequentialSampler(), batch_size=EACH // 2)]
    with loader:
        batches = []
        for batch in loader:
            batches.append([sample["__key__"] for sample in batch])
            step = loader.step - 1
            assert batch[0]["draw"] == first_draws[step]  # whatever sample is there
            is_pad = len(batch) < EACH // 2
            assert loader.pads(step).tolist() == [is_pad] * len(batch)
            assert [f"{id:05}" for id in loader.ids(step).tolist()] == batches[-1]
    assert batches[2 * GONE] == batches[2 * GONE + 1] == [f"{(GONE + 1) * EACH:05}"]
    # Where a shard ends early its own first sample is the pad; after the last shard, the first of all.
    assert batches[2 * CUT + 1] == [f"{CUT * EACH:05}"]
    assert batches[2 * EMPTY] == ["00000"]
    dataset.close()


def test_without_a_loader_missing_samples_are_left_out_too(place, folder, tmp_path, caplog):
    dataset = open_dataset(place, tmp_path)
    damage(folder)
    assert [sample["__key__"] for sample in dataset] == GOOD
    keys = dataset.keys()
    assert [key for key in keys if key] == GOOD
    assert len(keys) == len(NUMBERS)
    with pytest.raises(AbsentError, match=rf"train-{CUT:02}\.tar: lacks {EACH - KEPT} of the {EACH} samples"):
        dataset[CUT * EACH + KEPT]
    assert dataset[CUT * EACH + KEPT - 1]["__key__"] == f"{CUT * EACH + KEPT - 1:05}"
    chosen = dataset.select(lambda key: int(key) % 2 == 0, by="key")
    assert [sample["__key__"] for sample in chosen] == [key for key in GOOD if int(key) % 2 == 0]
    assert [s["__key__"] for s in dataset.select(lambda s: True)] == GOOD
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, collate_fn=list)
    keys = [[sample["__key__"] for sample in batch] for batch in loader]
    assert len(keys) == len(NUMBERS) // 8
    assert set(chain.from_iterable(keys)) == set(GOOD)
    for line, text in zip(log_lines(caplog), LOGGED, strict=True):
        assert re.match(text, line), line
    dataset.close()


def test_a_shard_that_is_removed_while_in_use_is_left_out_from_then_on(place, folder, tmp_path, caplog):
    dataset = open_dataset(place, tmp_path, max_shards=1, read_ahead=0)
    assert dataset[GONE * EACH]["__key__"] == f"{GONE * EACH:05}"
    dataset[0]
    damage(folder)
    if place[1].get("fetch") == "shards":
        # It stays in the cache on disk.
        assert dataset[GONE * EACH + 3]["__key__"] == f"{GONE * EACH + 3:05}"
    else:
        with pytest.raises(AbsentError, match=rf"train-{GONE:02}\.tar: lacks all"):
            dataset[GONE * EACH + 3]
        assert [s["__key__"] for s in dataset.__getitems__([1, GONE * EACH, 3])] == ["00001", "00003"]
        assert len(log_lines(caplog)) == 1
    dataset.close()


def test_a_shard_that_is_missing_from_the_start_is_left_out(folder, tmp_path):
    damage(folder)
    paths = f"{folder}/{PATTERN}"
    options = {"lengths": LENGTHS, "cache": tmp_path / "cache", "progress": False}
    dataset = sk.TarDataset(paths, on_error="skip", **options)
    assert dataset.layout.sizes.tolist() == LENGTHS
    assert [sample["__key__"] for sample in dataset] == GOOD
    with pytest.raises(sk.DatasetError, match=rf"urls: there is no such file, got '.*/train-{GONE:02}\.tar'"):
        sk.TarDataset(paths, **options)
    with pytest.raises(sk.DatasetError, match=r"urls: there is no such file, got '.*/nowhere/train-00\.tar'"):
        sk.TarDataset(f"{folder}/nowhere/{PATTERN}", on_error="skip", **options)


def test_a_job_ends_when_most_shards_are_missing(folder, tmp_path):
    paths = [f"{folder}/train-00.tar"] * 70
    dataset = sk.TarDataset(paths, lengths=[EACH] * 70, on_error="skip", cache=tmp_path / "cache")
    (folder / "train-00.tar").unlink()
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=4, collate_fn=list)
    problem = r"train-00\.tar: lacks all 12 samples .*\. None of 64 shards has a sample to make a batch of"
    with pytest.raises(sk.DatasetError, match=problem):
        next(iter(loader))


@pytest.mark.parametrize(
    ("on_error", "length", "id", "kind", "text"),
    [
        ("skip", EACH - 1, 0, sk.DatasetError, f"has {EACH} samples, but {EACH - 1} were given; correct len"),
        ("skip", EACH + 1, EACH, AbsentError, rf"lacks 1 of the {EACH + 1} samples .* \(it has no others\)"),
        ("raise", EACH + 3, 0, sk.DatasetError, f"has {EACH} samples, but {EACH + 3} were given"),
    ],
)
def test_a_wrong_number_of_samples_without_damage_is_an_error_of_the_lengths(
    folder, tmp_path, on_error, length, id, kind, text
):
    options = {"on_error": on_error, "cache": tmp_path / "cache"}
    dataset = sk.TarDataset(f"{folder}/{PATTERN}", lengths=[length] * SHARDS, **options)
    with pytest.raises(kind, match=rf"train-00\.tar: {text}"):
        dataset[id]


@pytest.mark.parametrize("ids", [[0, 3], [3, 0]])
def test_a_sample_split_over_two_shards_is_left_out_when_both_were_read(tmp_path, ids):
    for number, names in enumerate((["a.txt", "a.cls", "m.txt"], ["m.cls", "z.txt", "z.cls"])):
        write(tmp_path / f"{number}.tar", [(name, name.encode()) for name in names], "webdataset")
    paths, options = f"{tmp_path}/{{0..1}}.tar", {"lengths": [2, 2], "cache": tmp_path / "cache"}
    dataset = sk.TarDataset(paths, on_error="skip", **options)
    assert [dataset.keys([id]) for id in ids] == [[{0: "a", 3: "z"}[id]] for id in ids]
    assert dataset.keys() == ["a", "", "", "z"]
    assert [sample["__key__"] for sample in dataset] == ["a", "z"]
    assert dict(dataset.skipped.counts) == {"split sample": 1}
    with pytest.raises(
        AbsentError, match=r"1\.tar: split sample at byte 1024: 'm' begins in .*0\.tar; write"
    ):
        dataset[2]
    strict = sk.TarDataset(paths, **options)
    message = r"[01]\.tar: split sample at byte 1024: 'm' begins in .*0\.tar"
    with pytest.raises(sk.DatasetError, match=message):
        strict.keys()
    # It stays an error: the half in each shard is never returned.
    for id in (1, 2, 1, 2):
        with pytest.raises(sk.DatasetError, match=message):
            strict[id]
    assert strict.keys([0, 3]) == ["a", "z"]
    assert not strict.skipped.places


@pytest.mark.parametrize("fetch", ["ranges", "shards"])
def test_a_loader_that_skips_bad_samples_leaves_out_both_halves_of_a_split_sample(tmp_path, fetch):
    for number, names in enumerate((["a.txt", "m.txt"], ["m.cls", "z.txt"])):
        write(tmp_path / f"{number}.tar", [(name, name.encode()) for name in names], "webdataset")
    urls = [f"memory://split/{number}.tar" for number in range(2)]
    fsspec.filesystem("memory").put(str(tmp_path) + "/", "memory://split", recursive=True)
    dataset = sk.TarDataset(urls, lengths=[2, 2], fetch=fetch, cache=tmp_path / "cache")
    options = {"batch_size": 4, "collate_fn": list, "bad_samples": "skip"}
    with dataset, sk.Loader(dataset, sk.SequentialSampler(), **options) as loader:
        for _ in range(2):
            assert [[sample["__key__"] for sample in batch] for batch in loader] == [["a", "z"]]


@pytest.mark.parametrize(("at", "is_indexed"), [(1, True), (0, True), (0, False)])
def test_a_disk_that_does_not_read_a_shard_is_an_error_with_its_name_or_leaves_its_samples_out(
    tmp_path, monkeypatch, at, is_indexed
):
    def failing(descriptor, size, offset):
        if is_broken and Path(f"/dev/fd/{descriptor}").readlink().name == "1.tar" and offset >= at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, offset)

    pread, is_broken = os.pread, not is_indexed
    monkeypatch.setattr(os, "pread", failing)
    for number in range(2):
        write(tmp_path / f"{number}.tar", [(f"{number}{key}.txt", b"x") for key in "abc"], "webdataset")
    options = {"lengths": [3, 3], "cache": tmp_path / "cache", "max_shards": 2}
    for on_error in ("raise", "skip"):
        is_broken = not is_indexed
        dataset = sk.TarDataset(f"{tmp_path}/{{0..1}}.tar", on_error=on_error, **options)
        if is_indexed:
            assert dataset[3]["__key__"] == "1a"
        is_broken = True
        if on_error == "raise":
            for ids in ([4], [3, 4, 5]):
                with pytest.raises(AbsentError, match=r"1\.tar: cannot be read \(Input/output error\)"):
                    dataset.__getitems__(ids)
        else:
            assert [sample["__key__"] for sample in dataset] == ["0a", "0b", "0c"]
            assert dict(dataset.skipped.counts) == {"unreadable": 1}


def test_a_prefetched_shard_that_is_removed_before_its_use_is_left_out(folder, tmp_path, caplog):
    dataset = open_dataset((f"{folder}/{PATTERN}", {}), tmp_path, read_ahead=1)
    with sk.Loader(dataset, sk.SequentialSampler(), batch_size=EACH, collate_fn=list) as loader:
        batches = iter(loader)
        next(batches)
        wait_until(lambda: dataset.stats.bytes_read > (folder / "train-00.tar").stat().st_size)
        (folder / "train-01.tar").unlink()
        assert [sample["__key__"] for sample in next(batches)] == [f"{2 * EACH:05}"]
    assert "train-01.tar: lacks all 12 samples that were given (unreadable: cannot be opened" in caplog.text


def test_a_shard_that_changed_before_it_is_opened_again_is_an_error(folder, tmp_path):
    paths, options = f"{folder}/{PATTERN}", {"max_shards": 1, "read_ahead": 0}
    with sk.TarDataset(paths, lengths=LENGTHS, cache=tmp_path / "cache", **options) as dataset:
        assert [dataset[id]["__key__"] for id in (0, EACH)] == ["00000", f"{EACH:05}"]
        os.utime(folder / "train-00.tar", ns=(1, 1))
        with pytest.raises(sk.DatasetError, match=r"train-00\.tar: was changed while it was in use"):
            dataset[0]


def test_a_server_that_does_not_answer_is_no_missing_shard(folder, tmp_path):
    with served(folder) as server:
        url = f"{server.url}/{PATTERN}"
    place = url, {"remote": {"attempts": 1, "timeout": 1.0}}
    problem = pytest.raises(sk.DatasetError, match=r"train-00\.tar: failed, tried once")
    with open_dataset(place, tmp_path) as dataset, problem:
        dataset.__getitems__([0, 1, 2])
