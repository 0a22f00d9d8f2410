"""The doctor: planted mistakes are found, correct setups have no findings."""

import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.doctor.datasets import files_needed_at_once
from samplerkit.inspect.doctor.findings import MEANINGS
from samplerkit.inspect.view import RunView
from tests.inspect.planted_setups import ALONG_WITH, HEALTHY, HEALTHY_ALONE, PLANTED, code_of
from tests.inspect.setups import FOUR, ROWS, Dealt, FromNumpy, bridged, of_torch, ours
from tests.storage.files.folders import write_npz


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_and_nothing_else(name):
    code, findings = code_of(name), check(PLANTED[name](), world=FOUR)
    assert code in {finding.code for finding in findings}
    assert {finding.code for finding in findings} - {code} <= ALONG_WITH.get(code, set())
    for finding in findings:
        assert finding.code in MEANINGS
        assert finding.severity in {"error", "warning"}
        assert len(finding.what) > 20
        assert len(finding.hint) > 10
        assert "\n" not in str(finding)


def test_a_mistake_is_planted_for_every_code_except_the_one_that_needs_a_function():
    assert set(map(code_of, PLANTED)) == set(MEANINGS) - {"ranks-disagree"}


@pytest.mark.parametrize("name", {**HEALTHY, **HEALTHY_ALONE})
def test_a_correct_setup_has_no_findings(name):
    world, make = (FOUR, HEALTHY[name]) if name in HEALTHY else (sk.World(), HEALTHY_ALONE[name])
    assert check(make(), world=world) == ()


def test_before_training_the_given_epoch_is_checked():
    fresh = DataLoader(ROWS, sampler=of_torch(epoch=0))
    assert check(fresh, world=FOUR, epoch=0) == ()
    (finding,) = check(fresh, world=FOUR, epoch=5)
    assert (finding.code, finding.severity) == ("epoch-frozen", "error")
    assert "is at epoch 0, and training at 5" in finding.what


def test_saving_the_state_of_a_torch_sampler_is_reported_before_samples_are_lost():
    loader = bridged(sk.RandomSampler(), num_workers=2)
    assert check(loader, world=FOUR) == ()
    (finding,) = check(loader, world=FOUR, saves_state=True)
    assert finding.code == "resume-inexact"
    assert "4 batches ahead" in finding.what
    assert check(bridged(sk.RandomSampler()), world=FOUR, saves_state=True) == ()


def seeded_by_the_process():
    return DataLoader(ROWS, sampler=of_torch(seed=random.randrange(2**20)))


def test_a_function_that_makes_another_order_each_time_is_found():
    for make in (lambda: ours(sk.RandomSampler(seed=time.time_ns() % 2**40)), seeded_by_the_process):
        (finding,) = check(make, world=FOUR)
        assert finding.code == "ranks-disagree"
        assert "the seed" in finding.what
    assert check(lambda: ours(sk.RandomSampler(seed=7))) == ()


def test_a_config_that_a_function_returns_is_checked_in_the_given_world():
    dataset = {"kind": "layout", "sizes": [100] * 3}
    config = sk.load_config({"dataset": dataset, "sampler": {"kind": "random", "shuffle": "files"}})
    for target in (config, lambda: config):
        assert [finding.code for finding in check(target, world=FOUR)] == ["few-files"]


def test_checking_leaves_the_random_states_and_the_sampler_as_they_were():
    sampler = FromNumpy()
    loader = DataLoader(range(100), sampler=Dealt(sampler, 4, 1))
    legacy = np.random.mtrand._rand  # what np.random.permutation draws from
    before = torch.get_rng_state(), legacy.get_state()[1].copy(), random.getstate()
    check(loader, world=FOUR)
    check(seeded_by_the_process, world=FOUR)
    random.setstate(before[2])  # the function itself has drawn once
    check(loader, world=FOUR)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(legacy.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_an_object_that_is_not_a_loader_is_an_error():
    with pytest.raises(sk.ArgumentTypeError, match="must be a samplerkit Loader"):
        check([1, 2, 3])
    with pytest.raises(sk.ArgumentTypeError, match="must be a World"):
        check(ours(sk.RandomSampler()), world=4)


SIZES = [40] * 16
ORDERS = {
    "files": {"shuffle": "files"},
    "blocks of 1.5 files": {"shuffle": "partial", "partial_size": 60},
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
    """How often each file of an epoch is read, on average."""
    loader = loader_of(paths, sampler, max_files)
    with loader.dataset, loader:
        files = {int(file) for step in range(len(loader)) for file in loader.ids(step) // 40}
        assert sum(1 for _ in loader) == len(loader)
        return loader.dataset.stats.files_read / len(files)


@pytest.mark.parametrize("order", ORDERS)
def test_files_are_read_again_if_check_reports_it_and_not_with_its_hint(paths, order):
    sampler = sk.RandomSampler(**ORDERS[order], seed=3)
    needed = files_needed_at_once(RunView.of(loader_of(paths, sampler, 1)), 0)
    for max_files in sorted({1, max(1, needed - 1), needed}):
        codes = [finding.code for finding in check(loader_of(paths, sampler, max_files))]
        assert ("files-read-again" in codes) == (max_files < needed)
        if max_files < needed:
            assert reads_of_a_file(paths, sampler, max_files) > 1
    assert reads_of_a_file(paths, sampler, min(needed + 2, 16)) == 1


def test_files_that_only_pads_need_again_are_not_counted():
    sampler = sk.DistributedSampler(shuffle="files", offset=1, lanes=1, seed=3)
    loader = sk.Loader(sk.Layout([11, 12, 20]), sampler, batch_size=4, world=sk.World(2, 0))
    (pad,) = loader.ids(len(loader) - 1)[loader.pads(len(loader) - 1)]
    file_of = sk.Layout([11, 12, 20]).file_of
    assert file_of([pad]) in file_of(loader.ids(0))
    assert files_needed_at_once(RunView.of(loader), 0) == 1


@pytest.mark.parametrize("affinity", [False, True])
def test_workers_with_file_affinity_keep_fewer_files_and_share_none(affinity):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=60, seed=3)
    dataset = sk.FileDataset([f"{number}.npz" for number in range(6)], "npz", [40] * 6, max_files=1)
    options = {"num_workers": 4, "file_affinity": affinity, "world": sk.World(2, 0)}
    codes = {finding.code for finding in check(sk.Loader(dataset, sampler, batch_size=8, **options))}
    assert ("few-files" in codes) == ("files-read-again" in codes) == (not affinity)
