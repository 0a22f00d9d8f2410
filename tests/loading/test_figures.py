"""The figures of a loader and of datasets that live in workers, for a training log and for a terminal."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.loading.steps import with_bar

TREE = sk.TreeDataset({"web": range(300), "code": range(100), "books": range(200)})


def loader(**options):
    weights = {"web": 3, "code": 1, "books": 2}
    mixture = sk.MixtureSampler(dict.fromkeys(weights), weights=weights, num_samples=240, seed=4)
    options = {"batch_size": 12, "world": sk.World(2, 1), **options}
    return sk.Loader(TREE, mixture, **options)


def test_figures_are_those_of_the_state_the_steps_and_the_ids_that_were_handed_out():
    read = loader()
    for _ in read:
        figures, state = read.figures(), read.state_dict()
        assert (figures["epoch"], figures["position"]) == (state["epoch"], state["position"])
        if read.step == 7:
            break
    assert [figures[name] for name in ("epoch_step", "steps", "epochs", "batches")] == [7, 10, 0.7, 7]
    ids = [int(id) for step in range(7) for id in read.ids(step)]
    assert figures["share/web"] == pytest.approx(sum(id < 300 for id in ids) / 84)
    assert sum(figures[f"share/{name}"] for name in ("web", "code", "books")) == pytest.approx(1)
    assert figures["ids_per_second"] * figures["seconds"] == pytest.approx(84)
    json.dumps(figures)


def test_a_resumed_loader_counts_in_steps_of_the_whole_epoch():
    state = loader().state_dict(step=4)
    read = loader()
    read.load_state_dict(state)
    before = read.figures()
    assert before["epochs"] == 0.4
    assert "ids_per_second" not in before
    next(iter(read))
    assert [read.figures()[name] for name in ("epoch_step", "batches", "epochs")] == [5, 1, 0.5]


def test_shares_and_efficiency_are_of_the_latest_steps():
    """Short samples first, then long ones together with short ones, which are padded."""
    lengths = [4] * 200 + [1, 4] * 100
    recipe = sk.BucketBatches([4], 2, lengths=lengths)
    read = sk.Loader(range(400), sk.SequentialSampler(), batches=recipe, world=sk.World(1, 0))
    for _ in read:
        if read.step == 90:
            early = read.figures()["efficiency"]
        last = read.figures()["efficiency"] if read.step == 190 else None
        if last is not None:
            break
    plan = read.plan
    assert early == plan.tokens(range(26, 90)).sum() / plan.padded_tokens(range(26, 90)).sum()
    assert last == plan.tokens(range(126, 190)).sum() / plan.padded_tokens(range(126, 190)).sum()


class TestProgress:
    """The bar, on a terminal that is a text."""

    @staticmethod
    def drawn(read):
        text = io.StringIO()
        batches = list(with_bar(read, Console(file=text, force_terminal=True, width=120)))
        return batches, text.getvalue()

    def test_it_hands_out_the_batches_of_the_loader_and_shows_the_progress(self):
        expected = [batch.tolist() for batch in loader(world=sk.World(1, 0))]
        batches, text = self.drawn(loader(world=sk.World(1, 0)))
        assert [batch.tolist() for batch in batches] == expected
        assert "epoch 0" in text
        assert "20/20" in text
        assert " 1/20" in text
        assert "ids/s" in text
        assert "waiting" in text

    def test_any_loader_has_a_bar_in_a_device_loader(self):
        plain = DataLoader(range(6), batch_size=2)
        assert len(self.drawn(sk.DeviceLoader(plain, "cpu"))[0]) == 3
        assert len(list(sk.DeviceLoader(loader(), "cpu").progress())) == 10

    def test_without_a_terminal_and_on_other_ranks_nothing_is_shown(self, monkeypatch, capsys):
        assert len(list(loader().progress())) == 10
        assert capsys.readouterr() == ("", "")
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert self.drawn(loader())[1] == ""

    def test_it_is_drawn_on_standard_error(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
        assert list(with_bar(range(3))) == [0, 1, 2]
        printed, drawn = capsys.readouterr()
        assert (printed, "3/3" in drawn) == ("", True)


FILES, SAMPLES = 6, 10
FILE_BYTES = SAMPLES * 8


@pytest.fixture
def files(tmp_path):
    for number in range(FILES):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(SAMPLES) + number * SAMPLES)
    return str(tmp_path / "*.npz")


def loader_over(files, workers, **options):
    dataset = sk.FileDataset(files, "npz", max_files=2, progress=False)
    sampler = sk.RandomSampler(shuffle="files", seed=7)
    return sk.Loader(dataset, sampler, batch_size=5, num_workers=workers, **options)


@pytest.mark.parametrize(
    ("workers", "options"), [(2, {}), (2, {"persistent_workers": True}), (1, {"bad_samples": "skip"})]
)
def test_what_workers_read_is_added_up_over_workers_and_epochs(files, workers, options):
    with loader_over(files, workers, **options) as loader:
        for epoch in range(1, 4):
            assert sorted(i for batch in loader for i in batch["x"].tolist()) == list(range(FILES * SAMPLES))
            figures = loader.stats.dataset
            # A file of ten samples is two batches of five: with two workers each of them reads every file.
            # Persistent workers have files of the last epoch in memory.
            cached = 2 * workers * (epoch - 1) if "persistent_workers" in options else 0
            assert epoch * FILES * workers - cached <= figures.files_read <= epoch * FILES * workers
            assert figures.hits + figures.waits >= figures.files_read
            assert 1 <= figures.peak_files <= 2
            assert FILE_BYTES <= figures.peak_bytes <= 2 * FILE_BYTES
            assert loader.stats.to_dict()["dataset/files_read"] == figures.files_read
            assert loader.stats.to_dict()["dataset/bytes_read"] > 0
