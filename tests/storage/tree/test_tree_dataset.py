"""A dataset of datasets returns what a walk over its parts does, and each part receives its share."""

import pickle
from itertools import accumulate

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order.layout import Layout
from samplerkit.storage.ahead.uses import NEVER, Uses
from samplerkit.storage.tree_leaves import share_of
from tests.storage.files.folders import plain, write_npz
from tests.storage.tar.remote_shards import EACH, NUMBERS, SHARDS, write_shards


class Batched:
    """A dataset of texts that notes the batches that it is asked for."""

    def __init__(self, texts):
        self.texts = list(texts)
        self.asked = []

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index]

    def __getitems__(self, ids):
        self.asked.append(list(map(int, ids)))
        return [self[id] for id in ids]


texts = st.lists(st.text("xyz", max_size=2), max_size=4)


def mapped(parts, most):
    named = st.dictionaries(st.text("ab", min_size=1, max_size=2), parts, min_size=1, max_size=most)
    return named.map(sk.TreeDataset)


datasets = st.recursive(
    st.one_of(
        texts,
        texts.map(Batched),
        st.lists(texts.filter(len), min_size=1, max_size=3).map(torch.utils.data.ConcatDataset),
    ),
    lambda parts: mapped(parts, 3),
)
trees = mapped(datasets, 4)


def walked(dataset):
    if isinstance(dataset, sk.TreeDataset):
        return [sample for part in dataset.parts.values() for sample in walked(part)]
    return [dataset[index] for index in range(len(dataset))]


@settings(max_examples=25)
@given(trees, st.data())
def test_a_batch_is_what_a_walk_over_the_parts_finds(dataset, data):
    expected = walked(dataset)
    assert len(dataset) == len(expected) == len(dataset.layout)
    assert [dataset[index] for index in range(len(dataset))] == expected
    if expected:
        ids = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=12))
        assert dataset.__getitems__(ids) == [expected[id] for id in ids]
        assert dataset.__getitems__(np.array(ids, dtype=np.int64)) == [expected[id] for id in ids]
    starts = [0, *accumulate(len(walked(part)) for part in dataset.parts.values())]
    assert dataset.layout.part_starts.tolist() == starts
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # our own bytes
    assert walked(again) == expected
    assert describe_dataset(again) == describe_dataset(dataset)


def test_a_part_that_says_nothing_of_being_remote_is_not():
    assert not sk.TreeDataset({"a": [1, 2]}).is_remote


def test_real_files_and_shards_beside_one_another(tmp_path):
    files = sk.FileDataset(write_npz(tmp_path / "files", [4, 3]), "npz")
    shards = sk.TarDataset(write_shards(tmp_path / "tar"), cache=tmp_path / "cache").decode()
    with sk.TreeDataset({"files": files, "tar": shards, "texts": ["a", "b"]}) as tree:
        assert len(tree) == 7 + len(NUMBERS) + 2
        assert tree.layout.num_files == 2 + SHARDS + 1
        assert tree.layout.names[:3] == ("files/000.npz", "files/001.npz", "tar/train-00.tar")
        found = tree.__getitems__([7 + 5, 6, len(tree) - 1, 7, 0])
        assert [found[0]["cls"], plain(found[1]), found[2], found[3]["cls"]] == [5, (6, 2, [6, -6]), "b", 0]
        assert tree.stats == files.stats
        assert tree.fingerprint != sk.TreeDataset({"tar": shards}).fingerprint
    assert sk.TreeDataset({"a": ["x"]}).fingerprint is None


def test_shards_of_which_one_is_gone_are_left_out_by_name(tmp_path):
    write_shards(tmp_path / "data", index=False)
    paths = [tmp_path / "data" / f"train-{number:02}.tar" for number in range(2)]
    (tmp_path / "data" / "train-01.tar").unlink()
    shards = sk.TarDataset(paths, cache=tmp_path / "c", lengths=[EACH] * 2, on_error="skip", progress=False)
    tree = sk.TreeDataset({"texts": ["a", "b"], "tar": shards})
    ids = sk.SubsetSampler([0, 2, 2 + EACH, 1, *range(2 + EACH, 6 + EACH)])
    loader = sk.Loader(tree, ids, batch_size=4, collate_fn=list)
    with loader, tree:
        first, second = [
            [one if isinstance(one, str) else one["__key__"] for one in batch] for batch in loader
        ]
    assert first == ["a", "00000", "b"]
    # All samples of the second batch are missing: one takes their place, as in the part alone.
    assert len(second) == 1
    assert {skip.id for skip in loader.skipped} == {*range(2 + EACH, 6 + EACH)}
    assert all("(part 'tar')" in skip.error and "train-01.tar" in skip.error for skip in loader.skipped)


class Flaky(Batched):
    def __getitem__(self, index):
        if index == 1:
            raise OSError("no such text")
        return super().__getitem__(index)


def test_an_error_names_the_part_and_so_does_a_skipped_sample():
    tree = sk.TreeDataset({"good": ["a", "b"], "all": sk.TreeDataset({"bad": Flaky("xyz")})})
    for read in (lambda: tree[3], lambda: tree.__getitems__([0, 3])):
        with pytest.raises(OSError, match="no such text") as raised:
            read()
        assert raised.value.__notes__ == ["samplerkit: in part 'all/bad' of a tree of datasets"]
    loader = sk.Loader(tree, sk.SequentialSampler(), batch_size=5, bad_samples="skip", collate_fn=list)
    assert list(loader) == [["a", "b", "x", "z"]]
    assert [skip.error for skip in loader.skipped] == [
        "OSError: no such text; samplerkit: in part 'all/bad' of a tree of datasets"
    ]


def test_columns_of_parts_are_joined_in_order(tmp_path):
    def columns(name, sizes):
        return sk.FileDataset(write_npz(tmp_path / name, sizes), "npz", as_columns=True)

    tree = sk.TreeDataset({"a": columns("a", [2, 3]), "b": columns("b", [4])})
    batch = tree.__getitems__([5, 4, 0, 8])
    assert {name: column.tolist() for name, column in batch.items()} == {
        "id": [0, 4, 0, 3],
        "row": [0, 2, 0, 3],
        "pair": [[0, 0], [4, -4], [0, 0], [3, -3]],
    }
    mixed = sk.TreeDataset({"a": columns("a", [2, 3]), "b": ["x"]})
    problem = r"part 'a': returns columns, but part 'b' does not; .* as_columns, or batches, for"
    with pytest.raises(sk.DatasetError, match=problem):
        mixed.__getitems__([0, 5])


class Lengths(Batched):
    def __init__(self, texts, lengths):
        super().__init__(texts)
        self.lengths = lengths


def test_lengths_are_those_of_the_parts_and_batches_are_made_of_them():
    tree = sk.TreeDataset(
        {"a": Lengths("abc", [1, 2, 3]), "b": Lengths("xy", np.array([9, 8], dtype=np.uint8))}
    )
    assert tree.lengths.tolist() == [1, 2, 3, 9, 8]
    plan = sk.TokenBatches(10).plan(sk.RandomSampler(seed=3), tree)
    assert sorted(id for number in range(len(plan)) for id in plan[number].tolist()) == [0, 1, 2, 3, 4]
    assert all(tree.lengths[plan[number]].sum() <= 10 for number in range(len(plan)))
    assert sk.TreeDataset({"a": ["x"]}).lengths is None
    with pytest.raises(sk.DatasetError, match="part 'b': has no lengths, but other parts have"):
        _ = sk.TreeDataset({"a": Lengths("a", [1]), "b": ["x"]}).lengths
    with pytest.raises(sk.DatasetError, match=r"'b': must have lengths of shape \(1,\), as other parts"):
        _ = sk.TreeDataset({"a": Lengths("a", [1]), "b": Lengths("x", [1, 2])}).lengths


class Told(Batched):
    def __init__(self, texts, wants=True):
        super().__init__(texts)
        self.epochs, self.passes, self.upcoming = [], [], []
        self.wants_passes = wants

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def expect(self, upcoming):
        self.upcoming.append([ids.tolist() for ids in upcoming])

    def __getitems__(self, ids, passes=None):
        self.passes.append(None if passes is None else list(map(int, passes)))
        return super().__getitems__(ids)


def test_each_part_receives_the_epoch_its_own_ids_and_its_own_passes():
    web, code, deaf = Told("abcd"), Told("xy", wants=False), Batched("z")
    tree = sk.TreeDataset({"web": web, "code": code, "deaf": deaf})
    assert tree.wants_passes
    loader = sk.Loader(tree, sk.SubsetSampler([0, 6, 5, 4, 4, 1, 6, 3]), batch_size=2, collate_fn=list)
    loader.set_epoch(3)
    assert list(loader) == [["a", "z"], ["y", "x"], ["x", "b"], ["z", "d"]]
    assert (web.epochs, code.epochs) == ([3], [3])
    assert (web.upcoming, code.upcoming) == ([[[0], [1], [3]]], [[[1, 0], [0]]])
    assert web.asked == web.upcoming[0]
    assert (web.passes, code.passes) == ([[0], [0], [0]], [None, None])
    tree.__getitems__([3, 4, 0], np.array([7, 8, 9]))
    assert (web.passes[-1], code.passes[-1]) == ([7, 9], None)
    assert (tree[1], web.passes[-1]) == ("b", [0])  # an item read alone is in the first pass
    assert not sk.TreeDataset({"code": code}).wants_passes
    assert sk.TreeDataset({"deaf": deaf}).expect is None


class Drawing(Batched):
    """A dataset of its draws: item by item, or in batches by the place of each."""

    def __getitem__(self, index):
        return int(sk.draw_rng().integers(1 << 40)), float(torch.rand(()))


class DrawingInBatches(Drawing):
    def __getitems__(self, ids):
        return [(int(sk.draw_rng(place).integers(1 << 40)), 0.0) for place in range(len(ids))]


class DrawingAlone(Drawing):
    __getitems__ = None


@pytest.mark.parametrize("seed_draws", [False, True])
def test_draws_in_a_tree_are_those_of_the_order_whatever_the_part_is(seed_draws):
    kinds = [DrawingInBatches, DrawingAlone]
    tree = sk.TreeDataset({str(n): kinds[n % 2](range(3)) for n in range(4)})
    alone = DrawingAlone(range(12))
    order = sk.RandomSampler(seed=5)
    told = [
        list(sk.Loader(dataset, order, batch_size=batch_size, collate_fn=list, seed_draws=seed_draws))
        for dataset, batch_size in ((tree, 12), (tree, 5), (alone, 4))
    ]
    draws = [[draw for batch in batches for draw, _ in batch] for batches in told]
    assert len(set(draws[0])) == 12
    assert draws[0] == draws[1] == draws[2]
    if seed_draws:
        pixels = [[pixel for batch in batches for _, pixel in batch] for batches in told]
        assert pixels[0] == pixels[1] == pixels[2]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter("abc")


class Wrong(Batched):
    def __getitems__(self, ids):
        return self.texts[0] if len(ids) == 1 else self.texts[:1]


class Column(Batched):
    def __getitems__(self, ids):
        return {"x": self.texts[0]}


def test_what_a_part_does_wrong_is_an_error_that_names_it():
    with pytest.raises(sk.DatasetError, match=r"parts\['b'\]: has neither a layout nor a length"):
        len(sk.TreeDataset({"a": "x", "b": Stream()}))
    deep = "x"
    for _ in range(64):
        deep = sk.TreeDataset({"a": deep})
    assert len(deep) == 1
    with pytest.raises(sk.ArgumentValueError, match="nested more than 64 deep"):
        len(sk.TreeDataset({"a": deep}))
    wrong = sk.TreeDataset({"a": "x", "b": Wrong("yz")})
    with pytest.raises(sk.DatasetError, match="part 'b': returns neither a list of samples nor col"):
        wrong.__getitems__([1])
    with pytest.raises(sk.DatasetError, match="part 'b': must return 2 samples for as many ids, got 1"):
        wrong.__getitems__([1, 2])
    with pytest.raises(sk.DatasetError, match="part 'b': must return 2 samples for as many ids, got 4"):
        sk.TreeDataset({"a": "x", "b": Column([[1, 1, 2, 2], []])}).__getitems__([1, 2])
    with pytest.raises(sk.DatasetError, match="part 'b': array 'x' is neither an array nor a seq"):
        sk.TreeDataset({"a": "x", "b": Column([5, 5])}).__getitems__([1, 2])
    with pytest.raises(sk.ArgumentTypeError, match="ids: must be a flat list of integers"):
        wrong.__getitems__([[1], [1, 2]])


def test_closing_reaches_each_part_even_if_one_fails():
    class Closing(Batched):
        closed = 0

        def close(self):
            self.closed += 1
            if self.texts == ["bad"]:
                raise OSError("will not close")

    parts = {"a": Closing("x"), "b": Closing(["bad"]), "c": Closing("z"), "d": "w"}
    tree = sk.TreeDataset({**parts, "again": parts["a"]})
    with pytest.raises(OSError, match="will not close"), tree:
        pass
    assert [parts[name].closed for name in "abc"] == [1, 1, 1]
    assert tree[0] == "x"


class Rows:
    """Samples that are rows of an array."""

    def __init__(self, first, dtype="int64"):
        self.rows = np.arange(first, first + 12).reshape(4, 3).astype(dtype)

    def __len__(self):
        return 4

    def __getitems__(self, ids):
        return self.rows[ids]


def test_parts_that_give_rows_of_arrays_give_an_array_and_other_ones_a_list():
    alike = sk.TreeDataset({"a": Rows(0), "b": Rows(100)}).__getitems__([5, 0, 7])
    assert isinstance(alike, np.ndarray)
    assert alike.tolist() == [[103, 104, 105], [0, 1, 2], [109, 110, 111]]
    for other in (Rows(100, "float32"), list("wxyz")):
        mixed = sk.TreeDataset({"a": Rows(0), "b": other}).__getitems__([1, 6])
        assert isinstance(mixed, list)
        assert mixed[0].tolist() == [3, 4, 5]


batches = st.lists(st.lists(st.integers(0, 9), max_size=4).map(np.array), max_size=8)


@given(batches, st.integers(0, 10), st.integers(0, 10))
def test_a_share_is_what_a_walk_over_the_batches_finds(upcoming, one, other):
    begin, end = sorted((one, other))
    expected = [[id - begin for id in ids.tolist() if begin <= id < end] for ids in upcoming]
    found = [ids.tolist() for ids in share_of(iter(upcoming), begin, end)]
    assert found == [ids for ids in expected if ids]


class Counting:
    """Batches of the first part, with a sample of the second every so often; counts those asked for."""

    def __init__(self, every, size=256):
        self.every, self.size, self.asked = every, size, 0

    def __iter__(self):
        while True:
            self.asked += 1
            ids = np.zeros(self.size, dtype=np.int64)
            if self.asked % self.every == 0:
                ids[-1] = 1 + self.asked // self.every % 8
            yield ids


LOOKAHEAD = 1 << 14
"""Ids of all parts that may be searched in one step for those of a rare part."""


@pytest.mark.parametrize("every", [1, 300])
def test_who_looks_for_the_files_of_a_rare_part_goes_a_bounded_way_at_a_time(every):
    upcoming = Counting(every)
    one_file_a_sample = Layout([1] * 8)
    uses = Uses(share_of(iter(upcoming), 1, 9), one_file_a_sample.file_of, num_files=8)
    assert upcoming.asked <= 2 * LOOKAHEAD // upcoming.size + 1
    for step in range(1, 20):
        before = upcoming.asked
        uses.begin(np.array([step % 8]))  # what comes next of the part
        assert uses.next_use(step % 8, after=-1) < NEVER
        # Never further than to what is read now, and a bounded way beyond.
        assert upcoming.asked <= max(before, step * every) + 2 * LOOKAHEAD // upcoming.size + 1
    assert uses.is_valid
    assert uses.upcoming_files()
    assert upcoming.asked > 19 * every
