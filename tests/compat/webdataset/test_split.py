"""Which samples the drop-in for webdataset reads: over ranks, workers, windows, passes, and from a server."""

from collections import Counter

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from samplerkit.compat.webdataset.reading import SamplePipeline, WorkerSlot
from samplerkit.order.sequences import Range
from tests.compat.webdataset.shards import is_even, loader, numbers, once_each, received, write


def test_a_worker_opens_few_shards(tmp_path):
    urls = write(tmp_path, 16, 160)
    dataset = wds.WebDataset(urls, cache=tmp_path / "cache").shuffle(5)
    for rank in range(2):
        order = dataset._pipeline.order(dataset._pipeline.tar, 0, sk.World(2, rank))
        for worker in range(4):
            ids = dataset._pipeline.part(order, WorkerSlot(sk.World(2, rank), worker, 4))[:]
            assert len(ids) == 20
            assert len(set((ids // 10).tolist())) <= 3


@pytest.mark.parametrize("total", [0, 5, 24, 97])
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize("block", [1, 4])
def test_the_split_loses_and_repeats_nothing_and_equal_steps_are_equal(total, ranks, workers, block):
    def read(equal_steps):
        pipeline = SamplePipeline(lambda *_: iter(()), equal_steps=equal_steps, batch_size=block)
        by_rank = []
        for rank in range(ranks):
            parts = [
                list(pipeline.part(Range(0, total), WorkerSlot(sk.World(ranks, rank), worker, workers)))
                for worker in range(workers)
            ]
            assert sum(map(len, parts)) == pipeline.rows_of_rank(total, sk.World(ranks, rank))
            assert sum(len(part) % block > 0 for part in parts) <= 1
            by_rank.append(parts)
        batches = [[-(-len(part) // 3) for part in parts] for parts in by_rank]
        return Counter(id for parts in by_rank for part in parts for id in part), batches

    assert read(None)[0] == once_each(total)
    padded, batches = read("pad")
    assert batches == [batches[0]] * ranks
    assert set(padded) == set(range(total))
    assert padded.total() == -(-total // ranks) * ranks
    dropped, batches = read("drop")
    assert batches == [batches[0]] * ranks
    assert set(dropped.values()) <= {1}
    assert dropped.total() == total // ranks * ranks


def test_without_shuffle_shards_are_in_storage_order_and_shardshuffle_moves_whole_shards(tmp_path):
    urls = write(tmp_path, 5, 50)
    assert list(numbers(urls, tmp_path, shardshuffle=False)) == list(range(50))
    epoch = list(numbers(urls, tmp_path, shardshuffle=100, seed=3))
    shards = [epoch[start : start + 10] for start in range(0, 50, 10)]
    assert all(shard == list(range(shard[0], shard[0] + 10)) for shard in shards)
    assert Counter(epoch) == once_each(50)
    assert epoch != list(range(50))


def test_orders_differ_by_seed_and_are_the_same_for_a_seed(tmp_path):
    urls = write(tmp_path, 5, 50)
    orders = [list(numbers(urls, tmp_path, seed=seed).shuffle(10)) for seed in (None, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert list(numbers(urls, tmp_path).shuffle(10, seed=1)) == orders[2]


def test_batches_made_in_workers_are_counted_and_at_most_one_is_smaller(tmp_path):
    dataset = numbers(write(tmp_path, 3, 50), tmp_path).shuffle(20).batched(8)
    batches = DataLoader(dataset, batch_size=None, num_workers=3)
    sizes = Counter(len(batch) for batch in batches)
    assert sizes == {8: 6, 2: 1}
    assert len(batches) == len(dataset) == 7
    assert len(numbers(f"{tmp_path}/many-*.tar", tmp_path).batched(8, partial=False)) == 6


def test_the_length_is_known_with_the_batch_size_of_the_loader(tmp_path):
    urls = write(tmp_path, 3, 50)
    batches = loader(numbers(urls, tmp_path, batch_size=8), 8, num_workers=3)
    assert len(batches) == len(list(batches)) == 7
    with pytest.raises(TypeError, match="batch_size"):
        len(numbers(urls, tmp_path))
    with pytest.raises(TypeError, match="not known"):
        len(numbers(urls, tmp_path, batch_size=8).select(is_even))
    with pytest.raises(TypeError, match="not known"):
        len(numbers(urls, tmp_path, batch_size=8).repeat(3, nbatches=20))  # in each of any number of workers
    assert len(numbers(urls, tmp_path).with_length(123)) == 123
    assert len(numbers(urls, tmp_path, batch_size=8).repeat(3)) == 150


def test_equal_steps_refuse_what_changes_the_number_of_samples(tmp_path):
    dataset = numbers(write(tmp_path, 1, 10), tmp_path, equal_steps="pad")
    with pytest.raises(sk.CompositionError, match="with_epoch"):
        dataset.select(is_even)
    with pytest.raises(sk.CompositionError, match="compose"):
        dataset.compose(iter)
    with pytest.raises(sk.DatasetError, match="which equal_steps does not allow"):
        list(dataset.map(lambda number: None if number == 7 else number))
    by_key = sk.TarDataset(f"{tmp_path}/many-*.tar").select(lambda key: int(key) < 5, by="key")
    assert len(list(wds.WebDataset(by_key, equal_steps="drop", world=sk.World(2, 1)))) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_with_epoch_yields_that_many_items_from_as_many_passes_as_needed(tmp_path, workers):
    dataset = numbers(write(tmp_path, 2, 10), tmp_path).shuffle(10).with_epoch(25)
    for _ in range(2):
        epoch = received(loader(dataset, num_workers=workers))
        assert len(epoch) == 25 * max(1, workers)
        # Whole passes, and a part of one.
        assert set(Counter(epoch).values()) <= {2, 3} if not workers else {5}
    assert dataset.epoch == 2


@pytest.mark.parametrize("options", [{"resampled": True}, {"mode": "resampled"}], ids=str)
def test_resampled_reads_without_end_and_each_pass_has_every_sample(tmp_path, options):
    urls = write(tmp_path, 5, 20)
    dataset = numbers(urls, tmp_path, nodesplitter=None, **options).with_epoch(60)
    epoch = list(dataset)
    assert Counter(epoch) == Counter(dict.fromkeys(range(20), 3))
    assert epoch[:20] != epoch[20:40]


def test_a_repeated_dataset_without_samples_is_an_error_and_no_endless_loop(tmp_path):
    dataset = numbers(write(tmp_path, 1, 4), tmp_path).repeat()
    with pytest.raises(sk.DatasetError, match="again and again"):
        next(iter(dataset.select(lambda number: number > 10)))


@pytest.mark.parametrize(("samples", "selected"), [(2, [0, 1]), (10, [0, 1, 2])])
def test_a_worker_without_a_sample_does_not_end_a_repeated_dataset(tmp_path, samples, selected):
    dataset = numbers(write(tmp_path, 1, samples), tmp_path).select(lambda number: number < 3).repeat(2)
    assert sorted(received(loader(dataset, num_workers=4))) == sorted([*selected, *selected])


def test_a_worker_without_samples_in_a_pass_reads_the_next_pass(tmp_path):
    dataset = numbers(write(tmp_path, 1, 10), tmp_path).shuffle(10).select(lambda number: number < 3)
    epoch = received(loader(dataset.with_epoch(4), num_workers=4))
    assert (len(epoch), set(epoch)) == (16, {0, 1, 2})
    for endless in (dataset.select(lambda number: number > 5), numbers(f"{tmp_path}/many-*.tar", tmp_path)):
        with pytest.raises(sk.DatasetError, match="again and again: no sample is left"):
            received(loader(endless.select(lambda number: number < 3).with_epoch(4), num_workers=4))


def test_an_empty_dataset_is_an_error_unless_it_is_allowed(tmp_path):
    urls = write(tmp_path, 1, 4)
    tar = sk.TarDataset(urls).select(lambda key: False, by="key")
    strict, lenient = (wds.WebDataset(tar, empty_check=check) for check in (True, False))
    with pytest.raises(sk.DatasetError, match="has no samples"):
        list(strict)
    assert list(lenient) == []


def test_every_rank_reads_everything_without_a_nodesplitter(tmp_path, monkeypatch):
    urls = write(tmp_path, 2, 10)
    dataset = numbers(urls, tmp_path, nodesplitter=None)
    assert dataset._world == sk.World(1, 0)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sorted(dataset) == list(range(10))
