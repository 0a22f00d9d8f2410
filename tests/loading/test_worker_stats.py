"""The figures of datasets that live in workers reach the loop with the batches."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.stats import DeviceStats, LoaderStats
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.remote.retries import RemoteStats

FILES, SAMPLES = 6, 10


@pytest.fixture
def files(tmp_path):
    for number in range(FILES):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(SAMPLES) + number * SAMPLES)
    return str(tmp_path / "*.npz")


def loader_over(files, workers, **options):
    dataset = sk.FileDataset(files, "npz", max_files=2, progress=False)
    sampler = sk.RandomSampler(shuffle="files", seed=7)
    return sk.Loader(dataset, sampler, batch_size=5, num_workers=workers, **options)


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"bad_samples": "skip"}])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_workers_read_is_added_up_over_workers_and_epochs(files, workers, options):
    with loader_over(files, workers, **options) as loader:
        for epoch in range(1, 4):
            assert sorted(i for batch in loader for i in batch["x"].tolist()) == list(range(FILES * SAMPLES))
            figures = loader.stats.dataset
            # A file of ten samples is two batches of five: with two workers each of them reads every file.
            # Workers that live on find files of the last epoch in memory.
            kept = 2 * workers * (epoch - 1) if "persistent_workers" in options else 0
            assert epoch * FILES * workers - kept <= figures.files_read <= epoch * FILES * workers
            assert figures.hits + figures.waits >= figures.files_read
            assert 1 <= figures.peak_files <= 2
            assert loader.stats.to_dict()["dataset/files_read"] == figures.files_read


def test_without_workers_the_figures_are_those_of_the_dataset_itself(files):
    with loader_over(files, 0) as loader:
        list(loader)
        assert loader.stats.dataset == loader.dataset.stats
        assert loader.stats.dataset.files_read == FILES


class WithMoments(list):
    """Has `stats`, as datasets of images do, that are no figures of reading."""

    stats = np.array([0.5, 0.25])


def test_stats_of_another_kind_stay_in_the_workers():
    with sk.Loader(WithMoments(range(6)), sk.SequentialSampler(), batch_size=3, num_workers=1) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]
        assert loader.stats.dataset is None


def shards_over(folder, workers):
    with sk.TarWriter(f"{folder}/%d.tar", samples_per_shard=SAMPLES) as writer:
        for number in range(FILES * SAMPLES):
            writer.write({"__key__": str(number), "cls": number})
    shards = f"{folder}/{{0..{FILES - 1}}}.tar"
    dataset = sk.TarDataset(shards, lengths=[SAMPLES] * FILES, cache=folder / "cache").decode()
    return sk.Loader(
        dataset.to_tuple("cls"), sk.RandomSampler(shuffle="files"), batch_size=5, num_workers=workers
    )


@pytest.mark.parametrize("kind", ["files", "tar"])
def test_the_dataset_itself_tells_what_its_workers_read(request, tmp_path, kind):
    loader = shards_over(tmp_path, 2) if kind == "tar" else loader_over(request.getfixturevalue("files"), 2)
    with loader:
        assert loader.dataset.stats.files_read == 0
        for epoch in (1, 2):
            assert len(list(loader)) == 12
            counted_here = {"files_counted": loader.dataset.stats.files_counted}
            assert loader.dataset.stats == replace(loader.stats.dataset, **counted_here)
            assert loader.dataset.stats.files_read >= FILES * epoch
        of_workers = loader.dataset.stats.files_read
        loader.dataset[0]
        assert loader.dataset.stats.files_read == of_workers + 1
        # Another loader of the same dataset: all are added up, also when they are gone.
        with sk.Loader(loader.dataset, sk.SequentialSampler(), batch_size=30, num_workers=1) as second:
            list(second)
            read = second.stats.dataset.files_read
        del second
        assert loader.dataset.stats.files_read == of_workers + 1 + read
        assert loader.stats.dataset.files_read == of_workers


@pytest.mark.parametrize("kind", [LoaderStats, DeviceStats, FileStats, RemoteStats])
def test_before_anything_is_read_every_figure_is_nothing(kind):
    figures = [
        *astuple(kind()),
        *(getattr(kind(), name) for name in dir(kind) if name in {"waiting", "mean_wait"}),
    ]
    assert not any(figures)


def test_a_loader_and_its_device_stage_have_figures_before_the_first_batch():
    loader = sk.Loader(range(4), sk.SequentialSampler(), batch_size=2)
    assert loader.stats == LoaderStats()
    assert sk.DeviceLoader(loader, "cpu").stats == DeviceStats()
