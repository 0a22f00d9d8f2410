"""What the doctor says of `max_files` is what happens: there files are read again, and not with its hint."""

from __future__ import annotations

import pytest

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.costs import files_needed_at_once
from samplerkit.inspect.view import RunView
from tests.storage.files.folders import write_npz

SIZES = [40] * 16
ORDERS = {
    "files": {"shuffle": "files"},
    "blocks of 1.5 files": {"shuffle": "partial", "partial_size": 60},
    "blocks of 3.5 files": {"shuffle": "partial", "partial_size": 140},
    "two pools": {"shuffle": "partial", "partial_size": 60, "pools": 2},
    "lanes of another number of ranks": {"shuffle": "partial", "partial_size": 60, "lanes": 4},
    "global": {"shuffle": "global"},
}


@pytest.fixture(scope="module", name="paths")
def fixture_paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_npz(folder, SIZES)
    return sorted(folder.glob("*.npz"))


def loader_of(paths, sampler, max_files):
    dataset = sk.FileDataset(paths, "npz", SIZES, max_files=max_files)
    return sk.Loader(dataset, sampler, batch_size=8, tail="drop", world=sk.World(2, 0))


def reads_of_a_file(paths, sampler, max_files):
    """How often each file of an epoch is read, in the mean."""
    loader = loader_of(paths, sampler, max_files)
    with loader.dataset, loader:
        files = {int(file) for step in range(len(loader)) for file in loader.ids(step) // 40}
        assert sum(1 for _ in loader) == len(loader)
        return loader.dataset.stats.files_read / len(files)


@pytest.mark.parametrize("order", ORDERS)
def test_files_are_read_again_where_the_doctor_says_so_and_not_with_its_hint(paths, order):
    sampler = sk.RandomSampler(**ORDERS[order], seed=3)
    needed = files_needed_at_once(RunView.of(loader_of(paths, sampler, 1)), 0)
    for max_files in sorted({1, max(1, needed - 1), needed}):
        found = [finding.code for finding in check(loader_of(paths, sampler, max_files))]
        assert ("files-read-again" in found) == (max_files < needed)
        if max_files < needed:
            assert reads_of_a_file(paths, sampler, max_files) > 1
    assert reads_of_a_file(paths, sampler, min(needed + 2, 16)) == 1


def test_each_worker_needs_the_files_of_its_own_batches(paths):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=140, seed=3)
    view = RunView.of(loader_of(paths, sampler, 1))
    assert 1 < files_needed_at_once(view, 0, workers=2) <= files_needed_at_once(view, 0)


def test_a_pad_at_the_end_that_repeats_the_first_sample_is_no_reason_to_keep_its_file():
    sampler = sk.DistributedSampler(shuffle="files", offset=1, lanes=1, seed=3)
    loader = sk.Loader(sk.Layout([11, 12, 20]), sampler, batch_size=4, world=sk.World(2, 0))
    (pad,) = loader.ids(len(loader) - 1)[loader.pads(len(loader) - 1)]
    file_of = sk.Layout([11, 12, 20]).file_of
    assert file_of([pad]) in file_of(loader.ids(0))
    assert files_needed_at_once(RunView.of(loader), 0) == 1


@pytest.mark.parametrize("affinity", [False, True])
def test_workers_that_each_have_files_of_their_own_need_less_room_and_share_no_file(affinity):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=60, seed=3)
    dataset = sk.FileDataset([f"{number}.npz" for number in range(6)], "npz", [40] * 6, max_files=1)
    options = {"num_workers": 4, "file_affinity": affinity, "world": sk.World(2, 0)}
    found = {finding.code for finding in check(sk.Loader(dataset, sampler, batch_size=8, **options))}
    assert ("few-files" in found) == ("files-read-again" in found) == (not affinity)
