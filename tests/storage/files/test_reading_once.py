"""Each file is read once an epoch and rank, within the limits, and the right file is evicted."""

import threading
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.storage.ahead.uses import MAX_MISTAKES, MAX_OVERTAKEN, NEVER, Uses
from samplerkit.storage.files.dataset import FileDataset
from tests.loading.worker_kinds import with_workers
from tests.storage.crowd import run_in_threads
from tests.storage.files.folders import Watching, write_npz
from tests.waiting import wait_until

FILES, ROWS, RANKS = 24, 100, 2


@pytest.fixture(name="paths", scope="module")
def fixture_paths(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("many"), [ROWS] * FILES)


IN_FILES = {"shuffle": "files"}
IN_BLOCKS = {"shuffle": "partial", "partial_size": 150}
IN_POOLS = {"shuffle": "partial", "partial_size": 50, "pools": 2}


BY_FILES = {"max_files": 4}
BY_BYTES = {"max_files": 64, "max_bytes": 4 * ROWS * 8 * 4}


@pytest.mark.parametrize(
    ("read_ahead", "mode", "limits"),
    [(0, IN_BLOCKS, BY_FILES), (1, IN_BLOCKS, BY_BYTES), (1, IN_POOLS, BY_FILES), (2, IN_FILES, BY_FILES)],
)
def test_each_file_is_read_once_an_epoch_by_one_of_the_ranks(paths, caplog, mode, read_ahead, limits):
    sampler = sk.DistributedSampler(**mode, seed=read_ahead)
    figures, counts = [], np.zeros(FILES * ROWS, dtype=int)
    for rank in range(RANKS):
        with FileDataset(paths, "npz", [ROWS] * FILES, read_ahead=read_ahead, **limits) as dataset:
            loader = sk.Loader(dataset, sampler, batch_size=16, world=sk.World(RANKS, rank))
            for batch in (*loader, *loader):
                counts += np.bincount(batch["id"].numpy(), minlength=counts.size)
            figures.append(dataset.stats)
    assert (counts == 2).all()
    assert warnings_in(caplog) == []
    assert sum(stats.files_read for stats in figures) <= 2 * (FILES + RANKS)
    assert all(stats.peak_files <= 4 for stats in figures)
    size = max(stats.bytes_read // stats.files_read for stats in figures)
    assert all(stats.peak_bytes <= 4 * size for stats in figures)


def test_a_file_larger_than_all_bytes_is_an_error_that_names_it(paths):
    with (
        FileDataset(paths, "npz", max_bytes=ROWS * 8 * 4 - 1) as dataset,
        pytest.raises(sk.DatasetError, match=r"000\.npz: takes 3200 bytes .* max_bytes=3199") as caught,
    ):
        dataset[0]
    assert "split the file" in str(caught.value)
    with FileDataset(paths, "npz", [ROWS] * FILES, max_bytes=ROWS * 8 * 4) as dataset:
        assert [dataset[id]["id"] for id in (0, 1)] == [0, 1]
        assert dataset.stats.files_read == 1  # what just fits stays


def test_closing_releases_all_files_in_memory_even_if_a_thread_holds_the_cache(paths):
    dataset = FileDataset(paths, "npz", [ROWS] * FILES, max_files=9, read_ahead=0)
    cache = dataset._cache()
    assert [dataset[file * ROWS]["id"] for file in range(3)] == [0, ROWS, 2 * ROWS]
    assert cache._contents.keys() == {0, 1, 2}
    dataset.close()
    assert (cache._contents, cache._num_bytes) == ({}, 0)
    assert dataset[ROWS]["id"] == ROWS


# The evicted file is the one whose next use is furthest in the future.


def reads(folder_paths, sequence, *, is_expected, max_files, read_ahead=0, batch=1):
    """How often files are read when batches of ids are read in a sequence."""
    batches = [np.array(sequence[start : start + batch]) for start in range(0, len(sequence), batch)]
    reader = Watching()
    with FileDataset(
        folder_paths, reader, [1] * len(folder_paths), max_files=max_files, read_ahead=read_ahead
    ) as dataset:
        if is_expected:
            dataset.expect(iter(batches))
        for ids in batches:
            assert [int(sample["id"]) for sample in dataset.__getitems__(ids)] == ids.tolist()
        assert dataset.stats.files_read == len(reader.read)
        assert dataset.stats.peak_files <= max_files
    return len(reader.read)


def fewest_reads(sequence, places):
    """The fewest reads of any policy, by trying all of them."""

    @cache
    def fewest_from(number, cached):
        if number == len(sequence):
            return 0
        file = sequence[number]
        if file in cached:
            return fewest_from(number + 1, cached)
        if len(cached) < places:
            return 1 + fewest_from(number + 1, cached | {file})
        return 1 + min(fewest_from(number + 1, cached - {out} | {file}) for out in cached)

    return fewest_from(0, frozenset())


@pytest.fixture(name="single", scope="module")
def fixture_single(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("ones"), [1] * 8)


@settings(max_examples=40, deadline=None)
@given(
    sequence=st.lists(st.integers(0, 6), min_size=1, max_size=14),
    places=st.integers(1, 4),
    read_ahead=st.integers(0, 3),
)
def test_no_policy_reads_fewer_files_when_the_order_is_known_also_ahead(single, sequence, places, read_ahead):
    ahead = read_ahead if places > 1 else 0
    num_reads = reads(single, sequence, is_expected=True, max_files=places, read_ahead=ahead)
    assert num_reads == fewest_reads(tuple(sequence), places)


def test_the_next_file_is_read_while_the_first_one_is_and_replaces_one_that_is_done(single):
    reader, others = Watching(), threading.Event()

    def read(path):
        others.set() if path != str(single[0]) else others.wait(10)
        return reader(path)

    with FileDataset(single[:4], read, [1] * 4, max_files=2, read_ahead=1) as dataset:
        dataset.expect(np.array([file]) for file in range(4))
        for file in range(4):
            dataset.__getitems__(np.array([file]))
            assert others.is_set()
            wait_until(lambda file=file: len(reader.read) == min(file + 2, 4))


def test_without_expect_files_read_in_turn_are_read_again_each_time(single):
    """The control: with one file too many, what was used least recently is always the wrong one to drop."""
    rounds = [0, 1, 2, 3, 4] * 8
    assert reads(single, rounds, is_expected=False, max_files=4) == 40
    assert reads(single, rounds, is_expected=True, max_files=4) == fewest_reads(tuple(rounds), 4) == 13


def warnings_in(caplog):
    """The logged warnings of files that are read again."""
    return [text for record in caplog.records if "read again and again" in (text := record.getMessage())]


@pytest.mark.parametrize("limit", [{"max_files": 4}, {"max_files": 60, "max_bytes": 4 * ROWS * 8 * 4}])
def test_too_little_memory_for_the_order_is_warned_about_once_and_early(paths, caplog, limit):
    sampler = sk.DistributedSampler(shuffle="partial", partial_size=550, seed=1)
    with FileDataset(paths, "npz", [ROWS] * FILES, **limit) as dataset:
        batches = iter(sk.Loader(dataset, sampler, batch_size=16, world=sk.World(1, 0)))
        while not warnings_in(caplog):
            next(batches)
        assert dataset.stats.files_read <= 20
        for _ in range(40):
            next(batches)
    [warning] = warnings_in(caplog)
    assert all(f"{name}={value}" in warning for name, value in limit.items())


# The next uses of files: computed from ids, within a limit.


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 29), max_size=6), max_size=12), num_files=st.integers(1, 40))
def test_next_uses_are_those_that_a_scan_of_all_batches_finds(batches, num_files):
    layout = sk.Layout([3, 0, 10, 7, 10])
    arrays = [np.array(batch, dtype=np.int64) for batch in batches]
    uses = Uses(iter(arrays), layout.file_of, num_files)
    arrays = [ids for ids in arrays if ids.size]  # batches without ids are skipped
    files = [set(layout.file_of(ids).tolist()) for ids in arrays]
    for number, ids in enumerate(arrays):
        uses.begin(ids)
        assert uses.is_valid
        for file in range(5):
            later = next((n for n in range(number, len(files)) if file in files[n]), NEVER)
            if uses.next_use(file) != later:  # it is unknown, behind as many other files as are asked for
                assert uses.next_use(file) == NEVER
                assert len(set().union(*files[number:later])) >= num_files
        uses.end()
        assert all(uses.next_use(file) > number for file in range(5))


def test_batches_without_ids_do_not_delay_those_after_them():
    """Such as the lines of other files in a `JsonlDataset`, or of other parts in a tree."""
    empty, batches = np.zeros(0, np.int64), [np.array([id]) for id in range(3)]
    uses = Uses([part for ids in batches for part in [empty] * 40 + [ids]], sk.Layout([1] * 3).file_of, 3)
    for id, ids in enumerate(batches):
        uses.begin(ids)
        assert uses.next_use(id) == id
        uses.end()
        assert uses.next_use(id) == NEVER


def test_an_unexpected_batch_discards_the_known_next_uses():
    uses = Uses(iter([np.array([0, 1]), np.array([2])]), sk.Layout([3]).file_of, 3)
    for _ in range(MAX_MISTAKES - 1):
        uses.begin(np.array([1, 2]))
        assert uses.is_valid
    uses.begin(np.array([0, 1]))
    assert uses.next_use(0) == 0
    for _ in range(MAX_MISTAKES):
        assert uses.is_valid
        uses.begin(np.array([7]))
    assert not uses.is_valid


@pytest.mark.parametrize("each", [10, 10_000])
@pytest.mark.parametrize("num_files", [1, 4, 7])
def test_the_requested_number_of_next_files_is_known_for_batches_of_any_size(each, num_files):
    batches = [np.arange(file * each, file * each + each) for file in range(9)]
    uses = Uses(iter(batches), lambda ids: ids // each, num_files)
    uses.begin(batches[0])
    assert num_files <= len(uses.upcoming_files()) <= (num_files + 1 if each == 10_000 else 9)


@pytest.mark.parametrize(("mode", "most"), [("files", 64 + 8192 // 512), ("global", 64 + 8192)])
def test_the_memory_of_next_uses_is_bounded_for_any_epoch_length(mode, most, monkeypatch):
    monkeypatch.setattr("samplerkit.storage.ahead.uses.MAX_USES", 64)
    layout = sk.Layout([10**12] * 1000)
    order = sk.RandomSampler(shuffle=mode, seed=7).order(layout)
    taken = 0

    def batches():
        nonlocal taken
        for ids in order.chunks(512):
            taken += ids.size
            yield ids

    uses = Uses(batches(), layout.file_of, num_files=6)
    for ids in islice(order.chunks(512), 100):
        uses.begin(ids)
        uses.end()
    assert taken <= 512 * 102 + 100 * 8192 + 8192
    assert sum(map(len, uses._uses.values())) <= most


# The next uses stay known when several threads begin batches out of order.

BATCHES = [np.arange(10 * file, 10 * file + 4) for file in range(60)]


def test_a_batch_started_early_takes_no_file_from_the_one_before():
    uses = Uses(iter(BATCHES), lambda ids: ids // 10, 8)
    run_in_threads(lambda: uses.begin(BATCHES[1]))
    assert [uses.next_use(file) for file in (0, 1, 2)] == [0, 1, 2]
    uses.begin(BATCHES[0])
    uses.end()
    assert [uses.next_use(file) for file in (0, 1, 2)] == [NEVER, 1, 2]
    for batch in BATCHES[2:20]:
        uses.begin(batch)
        uses.end()
    assert uses.is_valid
    assert uses.next_use(20) == 20


def test_a_batch_overtaken_by_many_is_taken_as_skipped():
    uses = Uses(iter(BATCHES), lambda ids: ids // 10, 60)
    for batch in BATCHES[1 : MAX_OVERTAKEN + 2]:
        uses.begin(batch)
        uses.end()
    assert uses.is_valid
    assert uses.next_use(0) == NEVER
    for _ in range(MAX_MISTAKES):
        uses.begin(BATCHES[0])
    assert not uses.is_valid


def test_threads_with_room_for_few_files_read_each_file_once_an_epoch(tmp_path):
    dataset = sk.FileDataset(write_npz(tmp_path, [10] * 20), "npz", max_files=5, progress=False)
    sampler = sk.RandomSampler(shuffle="partial", partial_size=15, seed=7)
    with dataset, sk.Loader(dataset, sampler, batch_size=4, **with_workers("3 threads")) as loader:
        for epoch in (1, 2, 3):
            read = [index for batch in loader for index in batch["id"].tolist()]
            assert read == sampler.order(dataset, epoch - 1)[:].tolist()
        assert loader.stats.dataset.files_read <= 3 * 20 + 3  # what an epoch leaves in memory may go
        assert loader.stats.dataset.peak_files <= 5
