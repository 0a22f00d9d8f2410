"""Windows of tokens through a Loader: in batches, workers, mixtures, trees and resumed runs."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.deal import World
from samplerkit.storage.tokens.outputs import OUTPUTS
from tests.chains import under
from tests.storage.checks import identical

ALONE = World(1, 0)


def test_a_loader_gives_a_dict_of_tensors_where_there_are_several_outputs(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1000, dtype=np.uint16))
    outputs = ("tokens", "labels", "position_ids", "cu_seqlens")
    data = sk.TokenDataset(tmp_path / "a.npy", 10, documents=7, outputs=outputs)
    with sk.Loader(data, sk.SequentialSampler(), batch_size=4, world=ALONE) as loader:
        batch = next(iter(loader))
    shapes = {name: tuple(value.shape) for name, value in batch.items() if name != "cu_seqlens"}
    assert shapes == dict.fromkeys(("tokens", "labels", "position_ids"), (4, 10))
    assert batch["cu_seqlens"].dtype == torch.int32
    assert int(batch["cu_seqlens"][-1]) == 40


# As parts of a tree, which returns the same as one dataset of all corpora.

CORPORA = {"web": 900, "code": 500, "books": 700}


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(3)
    for name, tokens in CORPORA.items():
        with sk.TokenWriter(str(tmp_path / name), "uint16") as writer:
            while tokens > 0:
                length = int(rng.integers(1, 30))
                writer.write(rng.integers(1, 9000, length))
                tokens -= length
    return {name: str(tmp_path / name) for name in CORPORA}


BY_ROW = tuple(name for name in OUTPUTS if name != "cu_seqlens")
"""The outputs with a row for each window."""


@pytest.mark.parametrize(
    ("documents", "outputs", "options"),
    [
        ("idx", BY_ROW, {}),
        (7, BY_ROW, {"phase": False}),
        (7, ("documents",), {}),
        ("idx", ("position_ids", "tokens"), {"block_len": 64}),
        ("idx", ("labels", "loss_mask"), {"phase": False}),
    ],
)
def test_a_tree_returns_the_same_as_one_dataset_of_all_corpora(files, documents, outputs, options):
    """The parts of the tree are datasets of one corpus each, which has their name."""
    make = partial(sk.TokenDataset, seq_len=16, documents=documents, outputs=outputs, **options)
    one, tree = make(files), sk.TreeDataset({name: make({name: path}) for name, path in files.items()})
    rng = np.random.default_rng(5)
    assert len(one) == len(tree)
    for epoch in (0, 5):
        one.set_epoch(epoch)
        tree.set_epoch(epoch)
        for size in (1, 7, 40):
            ids = rng.permutation(len(one))[:size]
            assert identical(one.__getitems__(ids), tree.__getitems__(ids))
            assert identical(one[int(ids[0])], tree[int(ids[0])])


@pytest.mark.parametrize("outputs", [("cu_seqlens",), ("cu_seqlens", "tokens")])
def test_borders_of_documents_in_the_flattened_batch_do_not_pass_through_a_tree(files, outputs):
    make = partial(sk.TokenDataset, seq_len=16, documents="idx", outputs=outputs)
    tree = sk.TreeDataset({name: make(path) for name, path in files.items()})
    for ids in ([0], [0, 1, len(tree) - 1]):
        with pytest.raises(sk.DatasetError, match=r"^part '(web|code|books)'"):
            tree.__getitems__(ids)


def test_a_corpus_without_a_name_has_other_phases_in_a_tree(files):
    """What docs/trees.md says: the phase of a file follows from the names that lead to its corpus."""
    one = sk.TokenDataset(files, 16)
    tree = sk.TreeDataset({name: sk.TokenDataset(path, 16) for name, path in files.items()})
    first = [np.stack(data.__getitems__([0, len(data) - 1])) for data in (one, tree)]
    assert not np.array_equal(*first)
    fixed = sk.TokenDataset(files, 16, phase=False)
    unnamed = sk.TreeDataset({name: sk.TokenDataset(path, 16, phase=False) for name, path in files.items()})
    ids = np.arange(len(fixed))
    np.testing.assert_array_equal(fixed.__getitems__(ids), np.stack(unnamed.__getitems__(ids)))


MIX = {"web": 0.6, "code": 0.4}
ALL = {"web": 0.4, "code": 0.3, "books": 0.3}


def mixture():
    return sk.MixtureSampler({"web": sk.RandomSampler(seed=1), "code": None}, weights=MIX, seed=4)


CASES = {
    "windows": ({}, lambda sampler: sampler, 20),
    "windows without phases": ({"phase": False}, lambda sampler: sampler, 20),
    "blocks": ({"block_len": 32}, lambda sampler: under(sk.BlockSampler(2, seed=3), sampler), 10),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_a_ledger", [True, False])
def test_a_state_from_before_a_corpus_was_appended_loads_after_an_edit_that_adds_it(
    files, case, with_a_ledger
):
    options, wrap, at = CASES[case]

    def loader(names, sampler):
        data = sk.TokenDataset({name: files[name] for name in names}, 16, **options)
        return sk.Loader(data, wrap(sampler), batch_size=4, world=ALONE, tail="ragged")

    before = loader(MIX, sk.Ledger(mixture()) if with_a_ledger else mixture())
    state = before.state_dict(step=5)
    edits = [sk.Edit(at=at, source="books", weights=ALL)]
    after = loader(ALL, sk.Ledger(mixture(), edits))
    after.load_state_dict(state)
    uninterrupted = loader(ALL, sk.Ledger(mixture(), edits))
    read = np.concatenate([*islice(before, 5), *after])
    expected = np.concatenate(list(uninterrupted))
    assert len(read) == len(expected) > 40
    np.testing.assert_array_equal(read[20:], expected[20:])
    # A BlockSampler above a ledger shuffles a pool in another way than one above the mixture alone.
    np.testing.assert_array_equal(*(np.sort(rows[:20], axis=0) for rows in (read, expected)))
    for refused in [
        loader(ALL, sk.Ledger(mixture())),
        loader(ALL, sk.Ledger(mixture(), [sk.Edit(at=at - 2, source="books", weights=ALL)])),
        loader(["code", "web", "books"], sk.Ledger(mixture(), edits)),
    ]:
        with pytest.raises(sk.StateError):
            refused.load_state_dict(state)
