"""PadCollate: padded tensors with masks, and batches that are checked against the limit of their plan."""

from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import samplerkit as sk
from tests.loading.worker_kinds import with_workers

Pair = namedtuple("Pair", ["source", "label"])


@given(
    st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=6),
    st.sampled_from([list, np.array, torch.tensor]),
    st.integers(1, 5),
)
def test_the_masked_values_are_the_samples(samples, make, multiple):
    collate = sk.PadCollate(length_multiple=multiple, value=-1)
    values, mask = collate([make(sample) for sample in samples])
    assert [row[keep].tolist() for row, keep in zip(values, mask, strict=True)] == samples
    assert (values[~mask] == -1).all()
    longest = max(map(len, samples))
    assert values.shape == mask.shape == (len(samples), -(-longest // multiple) * multiple)
    assert mask.dtype == torch.bool
    # Padding comes last.
    assert (mask.int().diff(dim=1) <= 0).all()


def test_fields_are_found_in_dicts_tuples_and_named_tuples_however_deep():
    samples = [
        {"a": {"b": (torch.ones(size, 2), "x")}, "c": Pair([1.5] * size, size), "n": np.float32(size)}
        for size in (1, 3)
    ]
    batch = sk.PadCollate()(samples)
    deep, words = batch["a"]["b"]
    assert deep.values.shape == (2, 3, 2)
    assert deep.mask.tolist() == [[True, False, False], [True, True, True]]
    assert words == ["x", "x"]
    assert isinstance(batch["c"], Pair)
    assert batch["c"].source.values.dtype == torch.float32
    assert batch["c"].label.tolist() == batch["n"].tolist() == [1, 3]


def test_masks_are_renamed_or_left_out_and_fields_have_values_of_their_own():
    samples = [{"input_ids": [5] * size, "labels": [7] * size, "box": [1, size]} for size in (1, 2)]
    masks, fields = {"input_ids": "attention_mask"}, ["input_ids", "labels"]
    batch = sk.PadCollate(value={"labels": -100}, masks=masks, fields=fields)(samples)
    box = batch.pop("box")  # is left to torch
    assert [column.tolist() for column in box] == [[1, 1], [1, 2]]
    assert {key: value.tolist() for key, value in batch.items()} == {
        "input_ids": [[5, 0], [5, 5]],
        "attention_mask": [[True, False], [True, True]],
        "labels": [[7, -100], [7, 7]],
    }
    assert sk.PadCollate(masks={})([torch.ones(1), torch.ones(2)]).tolist() == [[1, 0], [1, 1]]


def test_tensors_of_several_types_lose_nothing():
    """And what has no entries has no type of its own."""
    first, second = torch.tensor([1, 2]), torch.tensor([1.5])
    for samples in ([first, second], [second, first]):
        values = sk.PadCollate()(samples).values
        assert sorted(values.flatten().tolist()) == [0, 1, 1.5, 2]
    large = torch.tensor([(1 << 53) + 1])
    assert sk.PadCollate()([torch.tensor([]), large]).values.tolist() == [[0], large.tolist()]


def test_arrays_of_three_types_get_the_type_that_numpy_gives_them_in_any_order():
    """In pairs, small integers with and without sign need a larger float than with it."""
    for types in (("i1", "u1", "f2"), ("i2", "u2", "f4"), ("i1", "u2", "f4")):
        values = sk.PadCollate()([np.zeros(1, dtype) for dtype in types]).values
        assert values.numpy().dtype == np.result_type(*types)


@pytest.mark.parametrize("make", [lambda size: np.ones(size, np.uint8), lambda size: torch.ones(size).byte()])
def test_the_largest_number_that_a_field_can_hold_is_used(make):
    assert sk.PadCollate(value=255)([make(1), make(2)]).values.tolist() == [[1, 255], [1, 1]]


LENGTHS = np.random.default_rng(3).integers(1, 60, 400)
TOKENS = sk.TokenBatches(240, lengths=LENGTHS)
BUCKETS = sk.BucketBatches([16, 32, 64], [16, 8, 4], lengths=LENGTHS)


def plan_of(recipe):
    return recipe.plan(sk.RandomSampler(seed=7), LENGTHS.size)


@pytest.mark.parametrize(
    "recipe",
    [sk.TokenBatches(240, lengths=LENGTHS, length_multiple=4, waste=0.2, pool=1), BUCKETS],
    ids=["tokens", "buckets"],
)
def test_a_batch_has_the_shape_that_the_plan_says(recipe):
    plan = plan_of(recipe)
    shapes = set()
    for number, ids in enumerate(plan):
        samples = [torch.ones(int(length)) for length in LENGTHS[ids]]
        assert sk.PadCollate(plan=plan)(samples).values.shape == plan.shape(number)
        to_bucket = sk.PadCollate("bucket", plan=plan)(samples).values.shape
        assert to_bucket == plan.shape(number, of_bucket=True)
        shapes.add(to_bucket[1])
    # The control: padded to the longest, there are more shapes.
    assert len(shapes) < len({plan.shape(number)[1] for number in range(len(plan))})


@pytest.mark.parametrize(
    ("recipe", "limit"),
    [(TOKENS, 240), (replace(TOKENS, window=64), 240), (BUCKETS, 256)],
    ids=["tokens", "windows", "buckets"],
)
def test_samples_with_wrong_lengths_are_named(recipe, limit):
    plan = plan_of(recipe)
    collate = sk.PadCollate().measured_by(plan.measure)
    ids = max(plan, key=len)
    samples = [torch.ones(int(length)) for length in LENGTHS[ids]]
    collate.collated(samples, ids)
    wrong = int(ids[1])
    samples[1] = torch.ones(61)
    with pytest.raises(sk.DatasetError, match=f"{wrong}: '61, not {LENGTHS[wrong]}'") as caught:
        collate.collated(samples, ids)
    assert caught.value.place == "lengths"
    assert list(caught.value.value) == [wrong]
    assert f"a batch of {ids.size}x61" in caught.value.problem
    assert "count them" in caught.value.hint
    # A plain DataLoader has no ids: places are named.
    with pytest.raises(sk.DatasetError, match="'place 1': '61'"):
        collate(samples)
    assert ids.size * 61 > limit


def test_a_length_multiple_that_breaks_the_limit_is_named_instead_of_samples():
    plan = plan_of(TOKENS)
    collate = sk.PadCollate(length_multiple=64).measured_by(plan.measure)
    ids = max(plan, key=len)
    with pytest.raises(sk.DatasetError, match=r"lengths: a batch of .*, got {}; .*length_multiple= is for"):
        collate.collated([torch.ones(int(length)) for length in LENGTHS[ids]], ids)


def test_pairs_are_checked_against_the_limit_on_both_sides():
    pairs = np.stack([LENGTHS, LENGTHS[::-1]], axis=1)
    plan = sk.TokenBatches(400, lengths=pairs).plan(sk.RandomSampler(seed=7), LENGTHS.size)
    collate = sk.PadCollate(fields=["source", "target", "extra"]).measured_by(plan.measure)
    for number, ids in enumerate(plan):
        samples = [{"source": [1] * a, "target": [2] * b, "extra": [3] * 500} for a, b in pairs[ids].tolist()]
        batch = collate.collated(samples, ids)
        shape = (len(ids), batch["source"].shape[1], batch["target"].shape[1])
        assert shape == plan.shape(number)
    samples[0]["target"] = [2] * 400
    with pytest.raises(sk.DatasetError, match=f"{ids[0]}: '{pairs[ids[0], 0]} and 400, not"):
        collate.collated(samples, ids)
    with pytest.raises(sk.ArgumentValueError, match="fewer fields than a sample has lengths"):
        sk.PadCollate().measured_by(plan.measure).collated([{"source": [1]}], ids[:1])


def loader_of(dataset, **options):
    options = {"batches": BUCKETS, "tail": "split", **options}
    options["collate_fn"] = sk.PadCollate("bucket" if options["batches"] else "longest")
    return sk.Loader(dataset, sk.RandomSampler(seed=7), **options)


def sequences(other=None, text=None):
    dataset = [{"text": torch.ones(int(length)), "id": id} for id, length in enumerate(LENGTHS)]
    if other is not None:
        dataset[other]["text"] = text
    return dataset


@pytest.mark.parametrize("workers", [0, 1, "2 threads"])
def test_a_loader_pads_by_its_own_plan(workers):
    with loader_of(sequences(), **with_workers(workers)) as loader:
        shapes, seen = set(), []
        for batch in loader:
            ids = batch["id"].tolist()
            assert loader.ids(loader.step - 1).tolist() == ids
            assert batch["text_mask"].sum(dim=1).tolist() == LENGTHS[ids].tolist()
            shapes.add(batch["text"].shape[1])
            seen += ids
    assert shapes == {16, 32, 64}
    assert sorted(seen) == list(range(LENGTHS.size))


def test_batches_without_lengths_are_padded_to_their_longest():
    classes = sk.ClassBatches(2, 1, labels=LENGTHS % 2).plan(sk.RandomSampler(seed=7), LENGTHS.size)
    samples = [torch.ones(int(length)) for length in LENGTHS[classes[0]]]
    assert sk.PadCollate(plan=classes)(samples).values.shape == (2, max(map(len, samples)))


def test_ids_are_those_of_the_remaining_samples_if_others_were_skipped():
    plan = plan_of(BUCKETS)
    wrong, missing = plan[int(plan.batch_of(17)[0])][[-1, 0]].tolist()

    class Holes(list):
        def __getitem__(self, index):
            if index == missing:
                raise OSError("gone")
            return super().__getitem__(index)

    message = f"than their given lengths, got {{{wrong}: '99, not {LENGTHS[wrong]}'}}"
    with (
        loader_of(Holes(sequences(wrong, torch.ones(99))), bad_samples="skip") as loader,
        pytest.raises(sk.DatasetError, match=message),
    ):
        list(loader)


def test_samples_of_another_structure_are_named_by_their_ids_without_batches_too():
    with (
        loader_of(sequences(17, text=1), batches=None, tail="pad", batch_size=16) as loader,
        pytest.raises(sk.DatasetError, match="sample 17, field text: must be a sequence"),
    ):
        list(loader)


class Columns(list):
    """Lists that a batch has as a column, whatever a single one is."""

    lost = 0

    def __getitems__(self, ids):
        return {"text": [self[id] for id in ids], "size": [len(self[id]) for id in ids][self.lost :]}


def test_columns_are_padded_as_samples_are_and_none_is_lost():
    dataset = Columns([[1], [2, 3], [4, 5, 6]])
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=3, collate_fn=sk.PadCollate())
    (batch,) = loader
    assert batch["text"].tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 6]]
    assert batch["size"].tolist() == batch["text_mask"].sum(1).tolist() == [1, 2, 3]
    dataset.lost = 1
    with pytest.raises(sk.DatasetError, match=r"gives columns with more or fewer.*'text': 3, 'size': 2"):
        next(iter(loader))


def test_a_list_of_arrays_is_no_sequence_of_numbers():
    samples = [{"boxes": [np.array([size]), np.array([4])], "text": [1] * size} for size in (1, 2)]
    batch = sk.PadCollate()(samples)
    assert batch["boxes"][0].tolist() == [[1], [2]]
    assert batch["text"].shape == (2, 2)
