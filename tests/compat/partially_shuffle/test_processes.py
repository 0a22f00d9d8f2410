"""The drop-in for PartiallyShuffle resumes, runs in other processes and workers, and reads remote files."""

import copy
import gc
import logging
import os
import pickle
import traceback

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from samplerkit.storage.remote.options import RemoteOptions
from tests.compat.partially_shuffle.folders import (
    UNEQUAL,
    Dataset,
    all_ranks,
    flat,
    ids_of,
    items_of,
    make_dataset,
    make_sampler,
)
from tests.storage.files.folders import reading_threads
from tests.storage.remote.server import served

SIZES = UNEQUAL[:20]


@pytest.fixture(name="dataset")
def fixture_dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("files"), SIZES)


@pytest.mark.parametrize(("version", "ranks", "rank"), [(1, 1, 0), (2, 4, 3)])
def test_any_step_resumes_with_the_remaining_items_and_reads_only_their_files(dataset, version, ranks, rank):
    def make():
        sampler = make_sampler(dataset, ranks, rank, version=version, shuffle_buffer=40, file_buffer=20)
        sampler.set_epoch(3)
        return sampler

    whole = [(ids_of(item), item[2]) for item in make()]
    for step in range(len(whole) + 1):
        sampler = make()
        dataset.read.clear()
        sampler.find_ckpt_position(step)
        assert dataset.read == []
        rest = [(ids_of(item), item[2]) for item in sampler]
        assert rest == whole[step:]
        assert sorted(dataset.read) == sorted({file for _, files in rest for file in files})
        assert sampler.epoch == 4


@pytest.mark.parametrize("calls", ["epoch, step", "step, epoch"])
def test_a_step_applies_to_an_epoch_that_is_set_before_or_after_it(dataset, calls):
    whole, sampler = make_sampler(dataset), make_sampler(dataset)
    whole.set_epoch(2)
    for call in calls.split(", "):
        if call == "epoch":
            sampler.set_epoch(2)
        else:
            sampler.find_ckpt_position(5)
    assert items_of(sampler) == items_of(whole)[5:]


@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_on_other_ranks_each_step_has_the_same_samples(dataset, ranks):
    def steps(samplers):
        rows = zip(*(items_of(sampler) for sampler in samplers), strict=True)
        return [sorted(flat(items)) for items in rows]

    def samplers_of(ranks, state=None):
        samplers = [make_sampler(dataset, ranks, rank, batch_size=24 // ranks) for rank in range(ranks)]
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
        return samplers

    whole, first = steps(samplers_of(4)), make_sampler(dataset, 4, 2, batch_size=6)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    rest = steps(samplers_of(ranks, first.state_dict()))
    assert rest[:-1] == whole[5:-1]
    # In the last step some samples are repeated, so that all ranks read as many.
    assert set(whole[-1]) <= set(rest[-1])
    assert len(rest[-1]) - len(whole[-1]) < ranks


REFUSED = {
    "another seed": ({"seed": 5}, "seed"),
    "another buffer": ({"shuffle_buffer": 61}, "sampler"),
}


@pytest.mark.parametrize(("named", "field"), REFUSED.values(), ids=REFUSED)
def test_a_state_of_another_order_is_refused(dataset, named, field):
    state = make_sampler(dataset).state_dict()
    make_sampler(dataset, batch_size=3, file_buffer=7).load_state_dict(state)
    with pytest.raises(sk.StateError) as caught:
        make_sampler(dataset, **named).load_state_dict(state)
    assert caught.value.field == field


def test_workers_get_what_was_read_in_the_main_process(dataset):
    sampler = make_sampler(dataset, 2, 0)
    loader = DataLoader(
        dataset,
        batch_size=1,
        sampler=sampler,
        num_workers=2,
        collate_fn=dataset.collate,
        persistent_workers=True,
    )
    for epoch in range(2):
        read = [batch["id"].tolist() for batch in loader]
        sampler.set_epoch(epoch)
        assert read == items_of(sampler)
    assert dataset.processes == {os.getpid()}
    assert reading_threads() == []


def fail(sampler):
    with pytest.raises(KeyError):
        for item in sampler:
            item[0][0]["no such array"]


def close(sampler):
    iterator = iter(sampler)
    next(iterator)
    sampler.close()
    with pytest.raises(sk.DatasetError, match="closed"):
        next(iterator)


def drop(sampler):
    iterator = iter(sampler)
    next(iterator)
    del iterator


@pytest.mark.parametrize("leave", [fail, close, drop])
def test_no_thread_is_left(dataset, leave):
    sampler = make_sampler(dataset, batch_size=4)
    iterator = iter(sampler)
    next(iterator)
    assert len(reading_threads()) == 1
    del iterator
    leave(sampler)
    gc.collect()
    assert reading_threads() == []
    sampler.set_epoch(0)
    assert sorted(flat(items_of(sampler))) == list(range(sum(SIZES)))


def test_nothing_runs_and_nothing_is_opened_at_construction(tmp_path):
    dataset = make_dataset(tmp_path, [3])
    dataset.files = [str(tmp_path / "no such file.npz")]
    sampler = DistributedSamplerViaLocallyShuffle(dataset, dataset.file_reader("npz"), 1, 0)
    iterator = iter(sampler)
    assert reading_threads() == []
    assert dataset.counted == []
    with pytest.raises(sk.DatasetError, match="no such file"):
        next(iterator)


def pickled(sampler):
    return pickle.loads(pickle.dumps(sampler))  # noqa: S301  # our own


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_a_copy_is_independent(dataset, duplicate):
    sampler = make_sampler(dataset, reader="npz")
    iterator = iter(sampler)
    next(iterator)
    other = duplicate(sampler)
    assert items_of(other) == all_ranks(dataset, 1)[0]
    assert len(list(iterator)) == len(items_of(other)) - 1


SECRET = "?X-Signature=5ec4e7"  # noqa: S105  # not a real one


@pytest.fixture(name="local")
def fixture_local(tmp_path):
    return make_dataset(tmp_path / "data", SIZES)


@pytest.fixture(name="remote")
def fixture_remote(tmp_path):
    return RemoteOptions(cache=tmp_path / "cache", retry_seconds=2)


def remote_dataset(local, url, query=""):
    return Dataset(f"{url}/data/{file.rsplit('/', 1)[1]}{query}" for file in local.files)


def test_urls_are_fetched_once_for_all_ranks_and_epochs(local, remote, tmp_path):
    with served(tmp_path) as web:
        dataset = remote_dataset(local, web.url, SECRET)
        for epoch in range(2):
            read = all_ranks(dataset, 2, epoch, reader="npz", remote=remote)
            assert read == all_ranks(local, 2, epoch)
        assert len(web.calls("GET")) == len(SIZES)
        with make_sampler(dataset, reader="npz", remote=remote) as sampler:
            first = next(iter(sampler))
            assert set(first[2]) <= set(dataset.files)
            assert sampler.stats.files_counted == len(SIZES)
            assert sampler.stats.downloads == 0


def test_an_error_names_the_url_without_its_query_also_if_the_reader_fetches(local, caplog):
    def reader(filename):
        raise OSError(f"no route to {filename}")

    dataset = remote_dataset(local, "http://127.0.0.1:9", SECRET)
    lengths = dict(zip(dataset.files, SIZES, strict=True))
    sampler = make_sampler(dataset, reader=reader, files_len=lengths, shuffle=False, debug=True)
    with pytest.raises(sk.DatasetError) as caught, caplog.at_level(logging.INFO, "samplerkit"):
        items_of(sampler)
    text = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert caught.value.place.endswith(".npz")  # the one that was read first
    assert "reading http://127.0.0.1" in caplog.text
    assert "5ec4e7" not in text
