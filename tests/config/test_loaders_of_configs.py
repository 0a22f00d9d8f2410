"""The loaders that a config makes, torch's and samplerkit's; and its section `batches`."""

import inspect

import numpy as np
import pytest
import torch.utils.data
import yaml

import samplerkit as sk
from samplerkit.config.registry import BATCHES
from samplerkit.config.sections import FROM_PYTHON, LOADER
from tests.config.answers import LABELS, SIZE, refused, valid


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


LENGTHS = [1 + number * 7 % 30 for number in range(60)]
SIXTY = {"kind": "size", "size": 60}
RANDOM = {"kind": "random", "seed": 7}
SHAPES = [[64, 64], [64, 96], [96, 64]] * 20

SECTIONS = {
    "tokens": (
        {"kind": "tokens", "max_tokens": 90, "lengths": LENGTHS, "waste": 0.2, "short": "keep", "abreast": 2},
        sk.TokenBatches(90, lengths=LENGTHS, waste=0.2, short="keep", abreast=2),
    ),
    "bucket": (
        {"kind": "bucket", "boundaries": [10, 30], "batch_size": [6, 2], "lengths": LENGTHS},
        sk.BucketBatches([10, 30], [6, 2], lengths=LENGTHS),
    ),
    "shapes": (
        {"kind": "bucket", "boundaries": None, "batch_size": 4, "keys": SHAPES},
        sk.BucketBatches(None, 4, keys=[tuple(shape) for shape in SHAPES]),
    ),
    "classes": (
        {"kind": "classes", "num_class": 2, "num_val": 3, "labels": ["a", "b", "c"] * 20},
        sk.ClassBatches(2, 3, labels=["a", "b", "c"] * 20),
    ),
    "packs": (
        {"kind": "packs", "seq_len": 20, "lengths": LENGTHS, "packs": 2, "length_multiple": 2},
        sk.PackBatches(20, lengths=LENGTHS, packs=2, length_multiple=2),
    ),
}


def read(loader):
    """The ids of each batch, or its tokens."""
    return [(batch["input_ids"] if isinstance(batch, dict) else batch).tolist() for batch in loader]


@pytest.mark.parametrize(("section", "recipe"), SECTIONS.values(), ids=SECTIONS.keys())
def test_a_config_makes_the_batches_of_its_recipe_and_round_trips(section, recipe):
    config = sk.load_config({"dataset": SIXTY, "sampler": RANDOM, "batches": section})
    assert sk.load_config(config.to_dict()) == config
    assert sk.Config.from_yaml(yaml.safe_dump(config.to_dict())) == config
    assert valid(config.to_dict(), sk.Config.json_schema())
    config.check_order()
    world = sk.World(2, 1)
    documents = [[number] * length for number, length in enumerate(LENGTHS)]
    dataset = documents if isinstance(recipe, sk.PackBatches) else range(60)
    loader = config.make_loader(dataset, world)
    by_hand = sk.Loader(dataset, sk.RandomSampler(seed=7), batches=recipe, world=world)
    expected = read(by_hand)
    assert read(loader) == expected
    assert len(expected) > 2
    assert loader.state_dict() == by_hand.state_dict()
    if dataset is documents:
        with pytest.raises(sk.SamplerkitError, match="parts of documents"):
            config.dataloader(dataset, world)
    else:
        assert read(config.dataloader(dataset, world)) == expected


def test_lengths_are_next_to_the_config_and_mapped_only_for_the_first_batch(tmp_path, monkeypatch):
    path = tmp_path / "run.yaml"
    path.write_text(
        "dataset: {kind: size, size: 60}\nsampler: {kind: random}\n"
        "batches: {kind: tokens, max_tokens: 90, lengths: lengths.npy}"
    )
    config = sk.load_config(path)
    with pytest.raises(
        sk.ConfigError, match=r"batches.lengths: the file does not exist, got '.*lengths.npy'"
    ):
        config.check_order()
    np.save(tmp_path / "lengths.npy", LENGTHS)
    monkeypatch.chdir("/")
    config.check_order()
    assert config.to_dict()["batches"]["lengths"] == str(tmp_path / "lengths.npy")
    assert config.make_loader(range(60), sk.World(1, 0)).plan[0].size > 1


def test_a_file_of_lengths_with_another_ending_is_refused_when_the_config_is_read():
    written = {"sampler": RANDOM, "batches": {"kind": "tokens", "max_tokens": 90, "lengths": "lengths.txt"}}
    assert refused(sk.load_config, written).place == "batches.lengths"
    assert not valid(written, sk.Config.json_schema())


def test_pairs_come_from_a_file_or_from_python(tmp_path):
    pairs = np.array([LENGTHS, LENGTHS[::-1]]).T
    np.save(tmp_path / "pairs.npy", pairs)
    for lengths in (pairs, str(tmp_path / "pairs.npy")):
        section = {"kind": "tokens", "max_tokens": 200, "lengths": lengths}
        config = sk.load_config({"dataset": SIXTY, "sampler": RANDOM, "batches": section})
        assert len(config.make_loader(range(60), sk.World(1, 0)).plan.shape(0)) == 3


def test_arguments_from_python_take_precedence():
    config = sk.load_config({"sampler": RANDOM, "batches": SECTIONS["tokens"][0]})
    assert config.make_loader(range(60), sk.World(1, 0), batch_size=5).batch_size == 5
    other = sk.ClassBatches(1, 2, labels=[0] * 60)
    assert config.make_loader(range(60), sk.World(1, 0), batches=other).batches is other
    plain = sk.load_config({"sampler": RANDOM, "loader": {"batch_size": 3}})
    assert plain.make_loader(range(60), sk.World(1, 0), batches=other).batches is other


def test_a_custom_recipe_is_a_kind_whose_errors_have_places():
    class Threes(sk.BatchRecipe):
        window = 12

        def __init__(self, by: int = 3) -> None:
            if by < 1:
                raise sk.ArgumentRangeError("by", "must be positive", by)
            self.by = by

        def cut(self, ids, lengths, context):
            return np.split(np.argsort(ids), range(self.by, ids.size, self.by))

    if "threes" not in BATCHES:
        sk.register_batches("threes", Threes)
    config = sk.load_config({"sampler": RANDOM, "batches": {"kind": "threes", "by": 4}})
    assert {batch.size for batch in config.make_loader(range(60), sk.World(1, 0)).plan} == {4}
    with pytest.raises(sk.ConfigError, match=r"batches.by: must be positive, got 0"):
        sk.load_config({"sampler": RANDOM, "batches": {"kind": "threes", "by": 0}})
    batches = sk.Config.json_schema()["properties"]["batches"]["anyOf"][0]
    assert "threes" in batches["properties"]["kind"]["enum"]
