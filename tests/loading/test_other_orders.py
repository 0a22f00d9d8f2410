"""A state that is allowed to be of another order: the error and the log say what that skips and repeats."""

from __future__ import annotations

import logging
import re
from itertools import islice

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.state.identity import MOST_COUNTED
from tests.numbers import Numbers

WHOLE = sk.World(1, 0)


def loader(size, sampler, **options):
    return sk.Loader(
        range(size), sampler, batch_size=5, collate_fn=list, world=WHOLE, **{"tail": "ragged", **options}
    )


def limited():
    return sk.DistributedSampler(num_samples=30, shuffle=True, seed=2)


CHANGED = {
    "samples were appended": (40, 57, lambda: sk.RandomSampler(seed=3)),
    "samples were taken away": (57, 40, lambda: sk.RandomSampler(seed=3)),
    "in storage order": (40, 57, sk.SequentialSampler),
    "every sample became two": (40, 80, lambda: sk.RandomSampler(seed=3)),
    "with a limit": (40, 57, limited),
    "over the first ones only": (40, 57, lambda: sk.SubsetSampler(range(30))),
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("step", [1, 3, 5])
def test_the_error_and_the_log_count_what_an_epoch_skips_and_repeats(change, step, caplog):
    before, now, sampler = CHANGED[change]
    first, rest = loader(before, sampler()), loader(now, sampler())
    read = [id for batch in islice(first, step) for id in batch]
    with pytest.raises(sk.StateError, match="state: dataset: ") as caught:
        rest.load_state_dict(first.state_dict(step=step))
    with caplog.at_level(logging.WARNING, "samplerkit"):
        rest.load_state_dict(first.state_dict(step=step), allow={"dataset"})
    wanted = {id for batch in loader(now, sampler()) for id in batch}
    again = [id for batch in rest for id in batch]
    skipped, repeated = len(wanted - set(read) - set(again)), len(set(read) & set(again))
    said = f"which skips {skipped} of its {len(wanted)} samples and repeats {repeated},"
    assert said in str(caught.value)
    assert said in caplog.messages[-1]
    assert step * 5 == len(read)


def counted(first, rest, field="dataset", **options):
    with pytest.raises(sk.StateError, match=f"state: {field}: ") as caught:
        rest.load_state_dict(first.state_dict(step=2), **options)
    return str(caught.value)


def of_files(sizes, shuffle):
    data = Numbers(sk.Layout(sizes, ["0", "1"]))  # files that tell nothing else
    return sk.Loader(data, sk.RandomSampler(shuffle=shuffle), batch_size=5, world=WHOLE)


def test_files_that_the_order_does_not_see_are_counted_by_their_samples():
    assert "which skips 0 of its 40 samples and repeats 0," in counted(
        of_files([20, 20], "global"), of_files([10, 30], "global")
    )


BOUNDED = {
    "an order of files": lambda: counted(of_files([20, 20], "files"), of_files([10, 30], "files")),
    "another seed": lambda: counted(
        loader(40, sk.RandomSampler(seed=1)), loader(40, sk.RandomSampler(seed=2)), "seed"
    ),
    "another sampler": lambda: counted(
        loader(40, sk.RandomSampler()), loader(40, sk.RandomSampler(shuffle="partial")), "sampler"
    ),
    "another seed as well": lambda: counted(
        loader(41, sk.RandomSampler(seed=1)), loader(40, sk.RandomSampler(seed=2)), allow={"seed"}
    ),
}


@pytest.mark.parametrize("change", BOUNDED)
def test_where_the_order_of_before_cannot_be_made_again_a_bound_is_told(change):
    assert "which may skip up to 10 of its 40 samples and repeat up to 10" in BOUNDED[change]()


def test_more_samples_than_are_counted_have_a_bound():
    size = MOST_COUNTED + 1
    said = counted(loader(size - 1, sk.RandomSampler()), loader(size, sk.RandomSampler()))
    assert f"which may skip up to 10 of its {size} samples and repeat up to 10" in said


def test_a_sampler_that_reads_no_other_dataset_leaves_the_error_as_it_is():
    def weighted(size):
        return loader(size, sk.WeightedRandomSampler(np.ones(size)))

    said = counted(weighted(40), weighted(50))
    assert "which may skip up to 10 of its 50 samples and repeat up to 10" in said
    weights = sk.WeightedRandomSampler(np.ones(40))
    assert "which may skip and repeat up to 10 samples" in counted(weighted(40), loader(30, weights))


def test_at_the_beginning_of_an_epoch_nothing_is_skipped_or_repeated():
    with pytest.raises(sk.StateError, match="so no sample is skipped or repeated"):
        loader(41, sk.RandomSampler()).load_state_dict(loader(40, sk.RandomSampler()).state_dict())


def test_a_position_behind_the_end_is_not_advised_to_be_allowed():
    said = counted(loader(40, sk.RandomSampler()), loader(8, sk.RandomSampler()))
    assert "which has only 8 samples: it cannot be loaded" in said
    said = counted(loader(40, sk.RandomSampler()), loader(10, sk.RandomSampler()))
    assert "of its 10 samples and repeats 0," in said


def test_another_tail_changes_no_order():
    said = counted(loader(40, sk.RandomSampler()), loader(40, sk.RandomSampler(), tail="drop"), "tail")
    assert 'allow={"tail"}: the order is the same' in said


def test_batches_have_a_bound_in_batches():
    def of_batches(**options):
        data, recipe = type("Told", (list,), options)(range(40)), sk.TokenBatches(8, lengths=np.full(40, 2))
        return sk.Loader(data, sk.RandomSampler(), batches=recipe, collate_fn=list, world=WHOLE)

    said = counted(of_batches(fingerprint="1"), of_batches(fingerprint="2"))
    assert "which may skip and repeat up to 2 batches" in said


def test_an_iterable_is_not_read_again_to_count():
    class Once(sk.Sampler):
        read = 0

        def __iter__(self):
            type(self).read += 1
            return iter(range(40))

    before, now = loader(40, Once()), loader(41, Once())
    state = before.state_dict(step=2)
    now.ids(0)
    Once.read = 0
    with pytest.raises(sk.StateError, match="which may skip up to 10 of its"):
        now.load_state_dict(state)
    assert Once.read <= 1


def test_a_sampler_whose_states_have_no_allow_does_not_advise_it():
    state = sk.TorchSampler(sk.RandomSampler(), range(40), world=WHOLE).state_dict()
    with pytest.raises(sk.StateError, match="make it as it was when the state was saved") as caught:
        sk.TorchSampler(sk.RandomSampler(), range(41), world=WHOLE).load_state_dict(state)
    assert not re.search("allow", str(caught.value))


@pytest.mark.parametrize(
    ("options", "sampler", "step"),
    [
        ({}, sk.RandomSampler, 3),
        ({"phase": False}, sk.SequentialSampler, 0),
        ({"seed": 4}, lambda: None, 3),
        ({}, lambda: None, 0),
    ],
)
def test_another_seq_len_cannot_be_allowed_where_no_block_sampler_orders_windows(
    options, sampler, step, tmp_path
):
    np.save(tmp_path / "tokens.npy", np.arange(4096, dtype=np.uint16))

    def windows(seq_len):
        data = sk.TokenDataset(tmp_path / "tokens.npy", seq_len, **options)
        return sk.Loader(data, sampler(), batch_size=4, world=WHOLE)

    state = windows(32).state_dict(step=step)
    for allow in [(), {"dataset"}, {"dataset", "sampler", "seed"}]:
        with pytest.raises(sk.StateError, match=r"seq_len: .*allow= does not cover this") as caught:
            windows(64).load_state_dict(state, allow=allow)
        assert (caught.value.saved, caught.value.current) == (32, 64)
    assert "finish the epoch with seq_len=32" in str(caught.value)
    assert "BlockSampler" in str(caught.value)
    assert "block_len=" in str(caught.value)
    same = windows(32)  # what the hint advises
    same.load_state_dict(state)
    assert same.state_dict() == state
