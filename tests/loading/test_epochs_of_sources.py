"""Which pass over its source a sample is read in, as datasets receive it; loaders of trees."""

import math
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.mixing.streams import Part
from tests.chains import under
from tests.loading.token_loaders import TREE, blocks, loader, mixture, read
from tests.loading.worker_kinds import THREADS, with_workers
from tests.order.test_passes import counted
from tests.storage.files.folders import write_npz


def test_a_source_that_is_read_again_has_another_phase_and_each_pass_has_every_token_once():
    """Passes continue past the ends of epochs, and a run changes its length within them."""
    sampler = mixture(num_samples=22)  # blocks, of which the sources have 7 and 3
    counts, state = Counter(), None
    for seq_len, ranks, steps in [(2, 2, 24), (4, 3, 18), (1, 1, None), (6, 2, None), (12, 1, None)] * 2:
        seen, state = read(seq_len, ranks, state, steps, files=TREE, sampler=blocks(1, sampler), batch_size=1)
        counts += seen
    assert state["epoch"] >= 6
    by_pass = {}
    for (number, file, place), count in counts.items():
        by_pass.setdefault((number, file), Counter())[place] += count
    file_tokens = {0: 60, 1: 24, 2: 36}
    last = {file: max(number for number, other in by_pass if other == file) for file in file_tokens}
    assert min(last.values()) > 6
    for (number, file), places in by_pass.items():
        assert {*places.values()} == {1}
        if number < last[file]:
            assert len(places) == file_tokens[file]
    phases = {number: min(places) for (number, file), places in by_pass.items() if file == 0}
    assert len({*phases.values()}) > 1


def test_epochs_of_sources_reach_datasets_through_workers_trees_and_pads():
    sampler = blocks(2, mixture(num_samples=22, passes="restart"))
    with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad") as run:
        run.set_epoch(5)
        order = run.order
        expected = order.epochs_at(5, np.arange(len(order))).tolist()
        received = [epoch for batch in run for epoch, _ in batch]
    assert received[: len(expected)] == expected
    assert received[len(expected) :] == expected[: len(received) - len(expected)]
    assert {epoch & (2**40 - 1) for epoch in expected} == {5}
    assert 0 < max(expected) >> 40 < order.num_passes
    for workers in (2, "2 threads"):
        with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad", **with_workers(workers)) as run:
            run.set_epoch(5)
            assert [epoch for batch in run for epoch, _ in batch] == received


@pytest.mark.parametrize("name", ["passes_at", "epochs_at"])
def test_passes_and_epochs_are_computed_for_many_batches_at_once(monkeypatch, name):
    calls, computed = [], getattr(Part, name)
    monkeypatch.setattr(Part, name, lambda order, *given: calls.append(given) or computed(order, *given))
    data = sk.TreeDataset({"a": Both(), "b": Both()})
    sampler = sk.MixtureSampler([2, 1], num_samples=2000)
    with sk.Loader(data, sampler, batch_size=2, world=sk.World(1, 0), collate_fn=list) as run:
        assert sum(1 for _ in run) == 1000
    assert len(calls) == 2  # of an eighth first, since a loop that begins waits for it, and then of the rest


def test_a_ledger_reads_each_source_in_the_epochs_in_which_its_sampler_does():
    for child in (
        mixture(num_samples=22),
        mixture(num_samples=22, passes="restart"),
        sk.RandomSampler(seed=1),
    ):
        layout = sk.Layout.tree({"web": sk.Layout([5, 2]), "code": 3})
        for epoch in (0, 4):
            plain, edited = child.order(layout, epoch), sk.Ledger(child).order(layout, epoch)
            places = np.arange(len(plain))
            assert plain.epochs_at(epoch, places).tolist() == edited.epochs_at(epoch, places).tolist()


def test_what_repeats_is_in_an_epoch_of_its_own_each_time():
    repeated = under(sk.RepeatSampler(3), sk.MixtureSampler([1, 1], num_samples=20, seed=1))
    order = repeated.order(sk.Layout([2, 3]), 4)
    pairs = {*zip(order, order.epochs_at(4, np.arange(60)).tolist(), strict=True)}
    assert len(pairs) == 60


class Both:
    """Wants both: passes come first, then epochs."""

    wants_passes = wants_epochs = True

    def __len__(self):
        return 6

    def __getitems__(self, ids, passes, epochs):
        return [*zip(ids.tolist(), passes.tolist(), epochs.tolist(), strict=True)]


class Neither(Both):
    wants_passes = wants_epochs = False

    def __getitems__(self, ids):
        return [(int(id), -1, -1) for id in ids]


@pytest.mark.parametrize("in_a_tree", [False, True])
def test_a_dataset_may_want_passes_and_epochs(in_a_tree):
    data = sk.TreeDataset({"a": Both(), "b": Neither()}) if in_a_tree else Both()
    with sk.Loader(data, sk.SubsetSampler([4, 1, 4] + [9] * in_a_tree), batch_size=4, collate_fn=list) as run:
        run.set_epoch(2)
        samples = [sample for batch in run for sample in batch]
    assert samples[:3] == [(4, 0, 2), (1, 0, 2), (4, 1, 2 + 2**40)]
    assert samples[3:] == [(3, -1, -1)] * in_a_tree


MIXTURE = {"weights": [3, 1], "num_samples": 90, "seed": 1}
LAYOUT = sk.Layout([10, 20])


class Passes:
    """Sample i is (i, its pass, a number of its draw)."""

    layout = LAYOUT
    wants_passes = True

    def __len__(self):
        return len(LAYOUT)

    def __getitem__(self, index):
        raise AssertionError("a single sample has no pass")

    def __getitems__(self, ids, passes):
        assert ids.dtype == passes.dtype == np.int64
        return [
            (int(id), int(number), int(sk.draw_rng(place).integers(2**62)))
            for place, (id, number) in enumerate(zip(ids, passes, strict=True))
        ]


class PassesOfFew(Passes):
    """Fails in batches, and for one sample alone too."""

    def __getitems__(self, ids, passes):
        if 7 in ids:
            raise OSError("damaged")
        return super().__getitems__(ids, passes)


class Present(Passes):
    """Leaves out sample 7 by itself."""

    class PresentSamples(list):
        substitute = None
        missing = ()

    def read_present(self, ids, passes):
        places = [place for place in range(len(ids)) if ids[place] != 7]
        samples = self.PresentSamples(self.__getitems__(ids[places], passes[places]))
        samples.missing = [(place, "", "left out") for place in range(len(ids)) if ids[place] == 7]
        return samples


def read_all(dataset, sampler=None, **options):
    sampler = sk.MixtureSampler(**MIXTURE) if sampler is None else sampler
    options = {"batch_size": 12, "collate_fn": list, **options}
    with sk.Loader(dataset, sampler, world=sk.World(1, 0), **options) as batches:
        return [sample for batch in batches for sample in batch]


def expected():
    order = sk.MixtureSampler(**MIXTURE).order(LAYOUT)
    return [*zip(order, order.passes_at(np.arange(90)).tolist(), strict=True)]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, THREADS, {"seed_draws": True}, {"bad_samples": "skip"}]
)
def test_passes_come_with_the_ids(options):
    samples = read_all(Passes(), **options)
    assert [sample[:2] for sample in samples] == expected()
    assert len({number for _, number, _ in samples}) == 7


@pytest.mark.parametrize("dataset", [PassesOfFew(), Present()])
def test_samples_that_are_left_out_take_no_pass_from_others(dataset):
    samples = read_all(dataset, bad_samples="skip")
    assert [sample[:2] for sample in samples] == [pair for pair in expected() if pair[0] != 7]


@pytest.mark.parametrize("num_class", [2, 3])
def test_batches_of_classes_count_passes_over_each_class(num_class):
    recipe = sk.ClassBatches(num_class, 2, labels=np.arange(30) % 3, num_batches=60)
    samples = read_all(Passes(), sk.RandomSampler(seed=1), batches=recipe, batch_size=None)
    assert len({(id, number) for id, number, _ in samples}) == len(samples) == 120 * num_class
    if num_class == 3:
        # Else a class that a round leaves out misses its turn, and some samples their pass.
        ids = [id for id, *_ in samples]
        assert [number for _, number, _ in samples] == counted(ids)
        assert {*Counter(ids).values()} == {12}


def test_a_dataset_that_wants_passes_and_reads_no_batches_is_refused():
    class Alone(Passes):
        __getitems__ = None

    with pytest.raises(sk.DatasetError, match=r"write __getitems__\(self, ids, passes\)"):
        read_all(Alone(), sampler=sk.SequentialSampler())


FILES = [10, 14, 9, 12, 11, 8]
SHARDS, EACH = 6, 12
TEXTS = 21


class Texts:
    """A dataset of ours: batches, passes, and no files."""

    wants_passes = True

    def __len__(self):
        return TEXTS

    def __getitem__(self, index):
        raise AssertionError("batches are read as such")

    def __getitems__(self, ids, passes):
        return [int(id) for id in ids]


def number(sample):
    return sample["cls"]


def ids_in(path):
    """A reader of files whose samples are numbers, as those of the other parts."""
    with np.load(path) as arrays:
        return arrays["id"].tolist()


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%02d.tar", samples_per_shard=EACH) as writer:
        for sample in range(SHARDS * EACH):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    options = {"lengths": [EACH] * SHARDS, "cache": tmp_path / "cache", "progress": False}
    shards = sk.TarDataset(f"{tmp_path}/{{00..{SHARDS - 1:02}}}.tar", **options).decode().map(number)
    files = sk.FileDataset(write_npz(tmp_path / "npz", FILES), ids_in, FILES)
    with sk.TreeDataset({"web": shards, "more": sk.TreeDataset({"books": files, "texts": Texts()})}) as tree:
        yield tree


def expected_of_tree(tree, ids):
    """The samples of some ids, by where the parts begin."""
    starts = [0, SHARDS * EACH, SHARDS * EACH + sum(FILES)]
    assert len(tree) == starts[-1] + TEXTS
    return [id - max(start for start in starts if start <= id) for id in ids]


def loader_of(tree, mode, world, batch_size=7, **options):
    sampler = sk.RandomSampler(shuffle=mode, partial_size=20, seed=5)
    return sk.Loader(tree, sampler, batch_size=batch_size, world=world, collate_fn=np.array, **options)


@pytest.mark.parametrize(
    ("ranks", "workers", "mode"),
    [(1, 2, "files"), (3, 0, "partial"), (2, "2 threads", "global")],
)
def test_a_tree_is_resumed_at_other_ranks_and_workers(tree, ranks, workers, mode):
    first = [loader_of(tree, mode, sk.World(2, rank)) for rank in range(2)]
    read: Counter[int] = Counter()
    for one in first:
        for step, batch in zip(range(4), one, strict=False):
            assert batch.tolist() == expected_of_tree(tree, one.ids(step).tolist())
            read.update(one.ids(step).tolist())
    state = first[0].state_dict()
    assert state == first[1].state_dict()
    for one in first:
        one.close()
    for rank in range(ranks):
        loader = loader_of(tree, mode, sk.World(ranks, rank), batch_size=5, **with_workers(workers))
        loader.load_state_dict(state)
        with loader:
            steps = [(loader.ids(step), loader.pads(step)) for step in range(loader.remaining)]
            for batch, (ids, pads) in zip(loader, steps, strict=True):
                assert batch.tolist() == expected_of_tree(tree, ids.tolist())
                read.update(ids[~pads].tolist())
    assert read == Counter(range(len(tree)))


FILES_OF = {"web": 31, "code": 17, "books": 9}
CORPUS = sk.Layout.tree(
    {
        "text": sk.Layout.tree({name: sk.Layout([24] * FILES_OF[name]) for name in ("web", "books")}),
        "code": sk.Layout([24] * FILES_OF["code"]),
    }
)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_reads_few_files_of_each_source(ranks):
    web, books, code = (sk.RandomSampler(shuffle="files", seed=seed) for seed in (3, 4, 6))
    text = sk.MixtureSampler({"web": web, "books": books}, seed=5)
    mixture = sk.MixtureSampler({"text": text, "code": code}, seed=7)
    first = dict(zip(["web", "books", "code"], [0, 31, 40], strict=True))
    for rank in range(ranks):
        loader = sk.Loader(CORPUS, mixture, batch_size=8, world=sk.World(ranks, rank), tail="drop")
        ids = np.concatenate([loader.ids(step) for step in range(len(loader))])
        files = np.unique(CORPUS.file_of(ids))
        for name, number in FILES_OF.items():
            files_read = ((files >= first[name]) & (files < first[name] + number)).sum()
            print(f"{ranks} ranks, rank {rank}: {files_read} files of {name}")
            assert 0 < files_read <= math.ceil(number / ranks) + 1
