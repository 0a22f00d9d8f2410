"""The loaders that a config makes: torch's DataLoader, and samplerkit's."""

from __future__ import annotations

import inspect

import pytest
import torch.utils.data

import samplerkit as sk
from samplerkit.config.loader import FROM_PYTHON, LOADER
from tests.config.links import LABELS, SIZE


class Squares(torch.utils.data.Dataset):
    """A map-style dataset with whole batches."""

    targets = LABELS

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return [int(index) for index in indices]


def test_the_dataloader_is_torchs_own_with_the_options_of_the_config():
    config = sk.Config.from_yaml(
        "sampler: {kind: sequential}\n"
        "loader: {batch_size: 5, num_workers: 1, prefetch_factor: 3, persistent_workers: true, timeout: 30}"
    )
    loader = config.dataloader(Squares(), sk.World(1, 0))
    assert type(loader) is torch.utils.data.DataLoader
    assert isinstance(loader.batch_sampler, sk.TorchBatchSampler)
    options = ("num_workers", "prefetch_factor", "persistent_workers", "timeout", "pin_memory")
    assert [getattr(loader, name) for name in options] == [1, 3, True, 30, False]
    assert torch.cat(list(loader)).tolist() == list(range(SIZE))


def test_a_config_makes_the_loader_that_can_be_resumed():
    config = sk.Config.from_yaml(
        "dataset: {kind: layout, sizes: [10, 0, 20]}\n"
        "sampler: {kind: random, shuffle: files, seed: 3}\n"
        "loader: {batch_size: 4, tail: ragged, num_workers: 1, after_break: continue}"
    )
    with config.make_loader(Squares(), sk.World(1, 0)) as loader:
        assert (loader.tail, loader.num_workers) == ("ragged", 1)
        first = [next(iter(loader)).tolist() for _ in range(3)]
    resumed = sk.load_config(config.to_dict()).make_loader(Squares(), sk.World(1, 0), num_workers=0)
    resumed.load_state_dict(loader.state_dict())
    rest = [batch.tolist() for batch in resumed]
    assert sum(first + rest, []) == list(config.sampler.order(config.dataset))


def test_a_sampler_reads_labels_from_the_dataset_when_the_config_gives_the_files():
    config = sk.Config.from_yaml("dataset: {kind: layout, sizes: [10, 20]}\nsampler: {kind: pk, num_val: 1}")
    drawn = torch.cat(list(config.dataloader(Squares(), sk.World(1, 0)))).tolist()
    assert [LABELS[index] for index in drawn] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("section", "dataset"),
    [
        ("{kind: size, size: 29}", Squares()),
        ("{kind: layout, sizes: [10, 21]}", Squares()),
        ("{kind: layout, sizes: [10, 20]}", torch.utils.data.ConcatDataset([range(20), range(10)])),
    ],
)
def test_a_dataset_that_contradicts_the_config_is_refused(section, dataset):
    config = sk.Config.from_yaml(f"sampler: {{kind: random}}\ndataset: {section}")
    with pytest.raises(sk.ConfigError, match="dataset: declares"):
        config.dataloader(dataset)


def test_a_dataset_that_agrees_with_the_config_or_has_no_length_is_read():
    class Endless(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return index

    for section, dataset in [
        ("{kind: size, size: 30}", torch.utils.data.ConcatDataset([range(20), range(20, 30)])),
        ("{kind: layout, sizes: [20, 10]}", torch.utils.data.ConcatDataset([range(20), range(20, 30)])),
        ("{kind: size, size: 30}", Endless()),
    ]:
        config = sk.Config.from_yaml(f"sampler: {{kind: sequential}}\ndataset: {section}")
        assert torch.cat(list(config.dataloader(dataset, sk.World()))).tolist() == list(range(SIZE))


def test_each_argument_of_the_loader_is_a_config_key():
    assert inspect.signature(sk.Loader).parameters.keys() - FROM_PYTHON <= {*LOADER.names}
