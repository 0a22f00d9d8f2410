"""Lengths are counted and sorted once, into tables that processes share."""

import os
import pickle
import subprocess

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.batches import set_plan
from samplerkit.batches.lengths import SampleLengths
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.set_plan import SortedMembers
from samplerkit.batches.table_cache import TableCache
from tests.batches import laws
from tests.programs import Program

LENGTHS = np.random.default_rng(3).integers(0, 60, 500)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / os.fsdecode(b"lengths-\xe9.npy")  # no text: a name is bytes
    np.save(path, LENGTHS.astype(np.uint16))
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(set_plan, "CACHED_FROM", 100)
    return TableCache(tmp_path / "cache")


def planned(path, folder):
    """All batches of an epoch, with its table in a folder."""
    recipe = sk.TokenBatches(200, lengths=path)
    return laws.read(recipe.over(sk.RandomSampler(seed=1), 500, folder=folder).plan(0))


class Data:
    """A dataset with lengths."""

    def __len__(self):
        return 500


class Indexed:
    """Lengths with `__getitem__` only."""

    def __getitem__(self, number):
        return int(LENGTHS[number])


@pytest.mark.parametrize("name", ["lengths", "length"])
@pytest.mark.parametrize("kind", ["attribute", "column"])
def test_lengths_are_found_in_the_dataset(name, kind):
    data = Data()
    if kind == "attribute":
        setattr(data, name, LENGTHS)
    else:
        data.column_names = [name]
        type(data).__getitem__ = lambda self, column: LENGTHS if column == name else None
    plan = sk.TokenBatches(200).plan(sk.RandomSampler(seed=1), data)
    assert laws.read(plan) == laws.read(
        sk.TokenBatches(200, lengths=LENGTHS).plan(sk.RandomSampler(seed=1), 500)
    )


def test_arrays_lists_and_files_of_any_integers_have_the_same_digest_and_plan(path):
    given = [LENGTHS, LENGTHS.tolist(), LENGTHS.astype(np.int8), path, str(path)]
    assert len({SampleLengths(lengths).digest for lengths in given}) == 1
    plans = [sk.TokenBatches(200, lengths=lengths).plan(sk.RandomSampler(seed=1), 500) for lengths in given]
    assert len({str(laws.read(plan)) for plan in plans}) == 1
    assert SampleLengths([2**31 - 1]).histogram.values.tolist() == [2**31 - 1]  # the largest
    for iterable in (iter(LENGTHS.tolist()), Indexed()):
        assert SampleLengths(iterable).digest == SampleLengths(LENGTHS).digest
    changed = LENGTHS.copy()
    changed[[3, 4]] = changed[[4, 3]]
    assert SampleLengths(changed).digest != SampleLengths(LENGTHS).digest


@pytest.mark.parametrize("most", [50, 1 << 30])
def test_small_and_large_lengths_are_counted_in_chunks(most, monkeypatch):
    monkeypatch.setattr("samplerkit.batches.lengths.CHUNK", 37)
    lengths = np.random.default_rng(5).integers(0, most, 300)
    values, counts = np.unique(lengths, return_counts=True)
    whole = SampleLengths(lengths).histogram
    assert (whole.values[::-1].tolist(), whole.counts[::-1].tolist()) == (values.tolist(), counts.tolist())
    some = np.arange(0, 300, 7)
    part = SampleLengths(lengths).histogram_of(SampleSet(some.size, some))
    assert part.total == some.size
    assert set(part.values.tolist()) == set(lengths[some].tolist())
    assert SampleLengths(lengths).histogram_of(SampleSet(40)).total == 40


@pytest.mark.parametrize("most", [50, 1 << 30])
def test_members_are_sorted_by_length_in_chunks_and_found_again(most, cache, monkeypatch):
    monkeypatch.setattr("samplerkit.batches.lengths.CHUNK", 37)
    lengths = SampleLengths(np.random.default_rng(5).integers(0, most, 300))
    for ids in (None, np.arange(0, 300, 2)):
        expected = np.arange(300) if ids is None else ids
        chosen = SampleSet(expected.size, ids)
        table = SortedMembers(lengths, chosen, lengths.histogram_of(chosen), cache)
        members = table.at(np.arange(table.size))
        assert members.tolist() == sorted(
            expected.tolist(), key=lambda member: (-lengths.at(np.array([member]))[0], member)
        )
        which, places = table.places_of(np.arange(-2, 303))
        assert (np.arange(-2, 303)[which]).tolist() == expected.tolist()
        assert members[places].tolist() == expected.tolist()


def test_counts_and_sorted_tables_are_read_from_the_cache(path, cache, monkeypatch):
    first = planned(path, cache.folder)
    assert sorted(file.suffix for file in cache.folder.iterdir()) == [".npy", ".npz"]

    def fail(*_):
        raise AssertionError("the cache is not used")

    monkeypatch.setattr(SampleLengths, "_count_all", fail)
    monkeypatch.setattr(SortedMembers, "_fill", fail)
    assert planned(path, cache.folder) == first
    # Another seed, epoch, budget and policy read the same table.
    other = sk.TokenBatches(300, lengths=path, waste=0.2, short="keep")
    assert len(other.over(sk.RandomSampler(seed=2), 500, folder=cache.folder).plan(9))


def test_a_file_of_lengths_that_was_replaced_is_counted_again(path, cache):
    recipe = sk.TokenBatches(200, lengths=path)
    before = recipe.over(sk.RandomSampler(), 500, folder=cache.folder)
    status = path.stat()
    np.save(path, LENGTHS[::-1].astype(np.uint16))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = recipe.over(sk.RandomSampler(), 500, folder=cache.folder)
    assert after.digest != before.digest
    assert after.digest == SampleLengths(LENGTHS[::-1]).digest


DAMAGED_HEADER = b"\x93NUMPY\x01\x00\x76\x00" + b"{'shape': ((4,), }".ljust(118)
"""numpy raises a TokenError of `tokenize` for it, which is no ValueError."""


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"no table at all" * 9, DAMAGED_HEADER])
def test_a_damaged_table_is_made_again(damage, path, cache):
    first = planned(path, cache.folder)
    for file in cache.folder.iterdir():
        file.write_bytes(damage)
    assert planned(path, cache.folder) == first
    assert all(file.stat().st_size > 100 for file in cache.folder.iterdir())


def test_plans_are_the_same_if_the_folder_cannot_be_written_to(path, tmp_path, cache):
    (tmp_path / "file").write_text("no folder")
    assert planned(path, tmp_path / "file") == planned(path, cache.folder)


def test_a_table_for_which_the_disk_has_no_room_is_made_in_memory(small_disk):
    """Writing its pages into holes of a mapped file would kill the process."""
    table = TableCache(small_disk).mapped("table", 3 << 20, np.dtype("<u4"), lambda made: made.fill(7))
    assert set(table.tolist()) == {7}
    assert [*small_disk.iterdir()] == []


@pytest.mark.usefixtures("cache")
def test_tables_are_in_the_users_cache_folder_by_default(path, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sk.TokenBatches(200, lengths=path).plan(sk.RandomSampler(), 500)
    assert len(list((tmp_path / "cache" / "samplerkit" / "batches").iterdir())) == 2


def test_lengths_of_a_file_are_pickled_as_its_path(path):
    lengths = SampleLengths(path)
    sent = pickle.dumps(lengths)
    assert len(sent) < 2000
    assert pickle.loads(sent).at(np.arange(500)).tolist() == LENGTHS.tolist()  # noqa: S301  # our own bytes


PROGRAM = """
import sys
import samplerkit as sk
from samplerkit.batches import set_plan
set_plan.CACHED_FROM = 100
plans = sk.TokenBatches(200, lengths=sys.argv[1]).over(sk.RandomSampler(seed=1), 500, folder=sys.argv[2])
print([batch.tolist() for batch in plans.plan(0)])
"""


def test_processes_that_make_a_table_at_the_same_time_share_it(path, cache):
    command = ["-c", PROGRAM, str(path), str(cache.folder)]
    running = [Program(command, stdout=subprocess.PIPE) for _ in range(3)]
    outputs = {process.communicate(timeout=100)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 3
    assert len(outputs) == 1
    assert sorted(file.suffix for file in cache.folder.iterdir()) == [".npy", ".npz"]


@pytest.mark.parametrize("window", [None, 64])
def test_a_plan_of_no_samples_is_empty(window):
    plan = sk.TokenBatches(200, lengths=[], window=window).plan(sk.RandomSampler(), 0)
    assert len(plan) == 0
    assert list(plan) == []
    assert plan.efficiency() == 1
    assert plan.batch_of(0).tolist() == []


PAIRS = [[9, 9], [1, 1], [2, 1], [2, 2], [1, 2], [1, 1]]


@pytest.mark.parametrize("lengths", [PAIRS, [3, 3, 2, 2, 2, 9]], ids=["pairs", "lengths"])
@pytest.mark.parametrize("abreast", [1, 2])
def test_short_drop_leaves_out_a_last_batch_that_is_not_full(lengths, abreast):
    def batches(short):
        recipe = sk.TokenBatches(8, lengths=lengths, short=short, long="drop", window=6, abreast=abreast)
        plan = recipe.plan(sk.SequentialSampler(), 6)
        return [batch.tolist() for batch in plan], plan.dropped, recipe.budget

    (all_batches, dropped, budget), (full, dropped_more, _) = batches("keep"), batches("drop")
    longest = np.array(lengths)[all_batches[-1]].max(axis=0, keepdims=True)
    assert budget.sizes(longest)[0] > len(all_batches[-1])
    assert full == all_batches[:-1]
    assert dropped_more == dropped + len(all_batches[-1])


@pytest.mark.parametrize("lengths", [PAIRS, [9, 1, 2, 2, 1, 1]], ids=["pairs", "lengths"])
def test_a_long_sample_outside_of_the_set_is_no_error(lengths):
    recipe = sk.TokenBatches(8, lengths=lengths)
    plan = recipe.plan(sk.SubsetRandomSampler([5, 3, 1], seed=1), 6)
    assert sorted(id for batch in plan for id in batch.tolist()) == [1, 3, 5]
    with pytest.raises(sk.ArgumentRangeError, match="9"):
        recipe.plan(sk.SubsetRandomSampler([0, 3, 1], seed=1), 6)
