"""MindSpore's orders id for id, against recorded ones; its random engines and shuffles against loops."""

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.compat import mindspore as ds
from samplerkit.compat.mindspore import orders
from samplerkit.compat.mindspore.generators import MinstdRand0, Mt19937, canonical
from samplerkit.compat.mindspore.orders import rearranged, shuffle, weighted_draws
from tests.compat import mindspore_chains as chains
from tests.samplers import mindspore_cases

# TFRecord cases are arguments of a dataset and no sampler.
CASES = [case for case in mindspore_cases.recorded("golden") if case["dataset"]["kind"] != "tfrecord"]
PLAIN = [case for case in CASES if not case["quirks"]]
TAGGED = [case for case in CASES if case["quirks"]]

# Recorded refusals of plain cases that samplerkit accepts, each with the reason.
WE_ACCEPT = {
    "The sampler is not supported yet": "a sampler without randomness reads files as well",
    "different from generator.len": "num_samples is a limit, as for every sampler",
    "Not a valid index": "PK over a child looks up the labels of what the child yields",
    "there are no child ids": "PK over a child looks up the labels of what the child yields",
    "Argument shuffle with value": "a mode may be given in place of a bool",
}


def test_every_plain_case_is_replayed_exactly_with_quirks_and_without():
    cases, sequences = Counter(), Counter()
    for case in PLAIN:
        kind = case["dataset"]["kind"]
        cases[kind] += 1
        for epoch, shard, recorded in mindspore_cases.recordings(case):
            if recorded is not None:
                for quirks in (False, True):
                    ids = chains.read(case, epoch, shard, quirks=quirks)
                    assert chains.is_recorded(ids, recorded), (case["id"], epoch, shard, quirks, ids)
                sequences[kind] += 1
    assert cases == {"mappable": 639, "labelled": 84, "mindrecord": 547, "concat": 25}
    assert sequences == {"mappable": 4250, "labelled": 243, "mindrecord": 2756, "concat": 182}


def test_refusals_of_mindspore_have_its_class_or_are_accepted_for_a_reason():
    outcomes, used = Counter(), set()
    for case in PLAIN:
        for epoch, shard, recorded in mindspore_cases.recordings(case):
            if recorded is not None:
                continue
            error, outcome = case["errors"][0], chains.read(case, epoch, shard, quirks=False)
            same_class = error["type"] in {base.__name__ for base in type(outcome).__mro__}
            if isinstance(outcome, sk.SamplerkitError) and same_class:
                outcomes["refused"] += 1
                continue
            reasons = {reason for reason in WE_ACCEPT if reason in error["message"]}
            assert reasons, (case["id"], error, outcome)
            used |= reasons
            outcomes["accepted"] += 1
            if isinstance(outcome, sk.SamplerkitError):
                # The argument of the dataset is accepted, but the mode does not fit.
                assert case["sampler"] is None, (case["id"], outcome)
                assert outcome.place in {"shuffle", "num_samples"}
    assert outcomes["refused"] > 250
    assert outcomes["accepted"] > 50
    assert used == set(WE_ACCEPT)


# The outcomes of the cases with each tag.
GROUPS = {
    "dataset_size_wrong": {
        "the same with and without": 24,
        "exact with the flag": 43,
        "refused": 5,
        "exact in epoch 0, then refused": 16,
    },
    "distributed_child_reports_full_size_to_parent": {
        "MindSpore refused it": 41,
        "the same with and without": 31,
        "exact with the flag": 12,
    },
    "empty_shard_yields_id_0": {"exact with the flag": 57},
    "mindrecord_chain_parents_not_rerun_after_epoch_0": {
        "exact in epoch 0, then refused": 116,
        "the same with and without": 8,
    },
    "mindrecord_negative_index_unsigned_modulo": {"refused": 11},
    "mindrecord_offset_gives_contiguous_blocks": {"exact with the flag": 57},
    "mindrecord_partial_wraps_once": {"refused": 1},
    "mindrecord_replacement_ignored": {"refused": 15, "MindSpore refused it": 8},
    "subset_random_same_seed_every_epoch": {
        "exact with the flag": 87,
        "the same with and without": 17,
        "MindSpore refused it": 2,
    },
    "weighted_same_draws_every_epoch": {
        "exact with the flag": 120,
        "the same with and without": 46,
        "MindSpore refused it": 37,
        "refused": 3,
    },
}


def group(case):
    """Returns the outcome of a case with a quirk, over all its epochs and shards."""
    runs = [run for run in mindspore_cases.recordings(case) if run[2] is not None]
    if not runs:
        return "MindSpore refused it"
    with_flag = [chains.read(case, epoch, shard, quirks=True) for epoch, shard, _ in runs]
    is_exact = [chains.is_recorded(ids, run[2]) for ids, run in zip(with_flag, runs, strict=True)]
    is_refused = [isinstance(ids, sk.SamplerkitError) for ids in with_flag]
    if all(is_exact):
        without = [chains.read(case, epoch, shard, quirks=False) for epoch, shard, _ in runs]
        is_plain = all(chains.is_recorded(ids, run[2]) for ids, run in zip(without, runs, strict=True))
        return "the same with and without" if is_plain else "exact with the flag"
    if all(is_refused):
        return "refused"
    epochs = [run[0] for run in runs]
    if all(
        refused if epoch else exact
        for epoch, exact, refused in zip(epochs, is_exact, is_refused, strict=True)
    ):
        return "exact in epoch 0, then refused"
    return "WRONG"


def test_each_case_with_a_quirk_is_in_one_group():
    groups = defaultdict(Counter)
    for case in TAGGED:
        for tag in case["quirks"]:
            groups[tag][group(case)] += 1
    assert groups == GROUPS


def test_the_seed_of_the_process_is_taken_when_a_sampler_is_made():
    before = ds.get_seed()
    try:
        ds.config.set_seed(11)
        sampler = ds.RandomSampler()
        ds.set_seed(12)
        assert (sampler.seed, ds.RandomSampler().seed, ds.RandomSampler(seed=5).seed) == (11, 12, 5)
    finally:
        ds.set_seed(before)


@pytest.mark.parametrize(
    ("seed", "kind"), [(-1, ValueError), (2**32, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_seed_that_mindspore_cannot_have_is_refused(seed, kind):
    for take in (ds.set_seed, lambda seed: ds.RandomSampler(seed=seed)):
        with pytest.raises(kind, match="seed"):
            take(seed)


def test_samplers_of_one_chain_have_one_algorithm():
    parent = ds.RandomSampler()
    with pytest.raises(sk.CompositionError, match="one algorithm"):
        parent.add_child(ds.DistributedSampler(2, 0, quirks=True))
    with pytest.raises(sk.CompositionError, match="one algorithm"):
        parent.add_child(sk.RandomSampler())
    parent.add_child(ds.SequentialSampler())
    assert parent.chain.algorithm == "mindspore-2.10"


@pytest.mark.parametrize("name", ["lanes", "pools"])
def test_arguments_that_mindspore_lacks_are_refused(name):
    with pytest.raises(NotImplementedError, match=name):
        sk.RandomSampler(algorithm="mindspore-2.10", **{name: 2})


@pytest.mark.parametrize(
    "sampler",
    [ds.SubsetRandomSampler([1]), ds.WeightedRandomSampler([1]), ds.PKSampler(1, labels=range(7))],
)
def test_a_concat_dataset_refuses_a_sampler_that_mindspore_refuses(sampler):
    with pytest.raises(TypeError, match="must be a DistributedSampler or a RandomSampler"):
        sampler.order(ConcatDataset([range(3), range(4)]))


@pytest.mark.parametrize(
    "make",
    [lambda: ds.RandomSampler(seed=1), lambda: ds.DistributedSampler(8, 3, seed=1)],
    ids=["random", "distributed"],
)
@pytest.mark.parametrize("dataset", [10**6, sk.Layout([10**3] * 10**3)], ids=["plain", "files"])
def test_a_million_samples_need_at_most_four_arrays_of_their_number(make, dataset):
    # All that is allocated for the first epoch, and for the second while the first is referenced.
    tracemalloc.start()
    try:
        first = make().order(dataset, 0)
        second = make().order(dataset, 1)
        assert tracemalloc.get_traced_memory()[1] < 4 * 8 * 10**6
    finally:
        tracemalloc.stop()
    assert first[0] != second[0]


@pytest.mark.parametrize("tie", [1.0, 1e-3])
def test_parts_drawn_by_doubles_equal_those_drawn_by_integers(monkeypatch, tie):
    sizes = np.array([300, 1, 2000, 40])
    quick = orders.random_concat(sizes, 5, 3)
    monkeypatch.setattr(orders, "_TIE", tie)
    assert np.array_equal(orders.random_concat(sizes, 5, 3), quick)
    assert sorted(quick) == list(range(2341))


def test_an_epoch_starts_from_the_latest_one_that_is_referenced():
    arranged = []

    def arrange(epoch, before):
        arranged.append(epoch)
        return np.arange(before or 4)[::-1].copy()

    first = rearranged("a name of this test", 3, arrange)
    # Reversed six times.
    assert rearranged("a name of this test", 5, arrange)[:].tolist() == [0, 1, 2, 3]
    assert arranged == [0, 1, 2, 3, 4, 5]
    del first
    rearranged("a name of this test", 1, arrange)
    assert arranged[6:] == [0, 1]


GENERATORS = [Mt19937, MinstdRand0]


def words(generator):
    """The generator's words, one by one."""
    while True:
        yield from generator.peek(1000).tolist()
        generator.skip(1000)


def one_integer(stream, span, size):
    """`std::uniform_int_distribution` of libstdc++ 9, written as a loop."""
    scale = span // size
    while True:
        word = next(stream)
        if word < size * scale:
            return word // scale


def shuffled_by_a_loop(size, stream, span):
    """`std::shuffle` of libstdc++ 9, written as a loop."""
    items = list(range(size))

    def swap(i, j):
        items[i], items[j] = items[j], items[i]

    if size < 2:
        return items
    if span // size < size:
        for i in range(1, size):
            swap(i, one_integer(stream, span, i + 1))
        return items
    i = 1
    if size % 2 == 0:
        swap(i, one_integer(stream, span, 2))
        i += 1
    while i < size:
        both = one_integer(stream, span, (i + 1) * (i + 2))
        swap(i, both // (i + 2))
        swap(i + 1, both % (i + 2))
        i += 2
    return items


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 100, 101, 46339, 46340, 46341, 65535, 65536, 65537])
def test_a_shuffle_equals_that_of_a_loop(kind, size):
    # Around the square root of the span, one word stops serving two swaps, and most words are thrown away.
    generator, reference = kind(7), kind(7)
    words_of_loop = words(reference)
    assert shuffle(size, generator).tolist() == shuffled_by_a_loop(size, words_of_loop, kind.span)
    assert generator.peek(1)[0] == next(words_of_loop)


def test_more_elements_than_words_are_refused():
    with pytest.raises(sk.NotSupportedError, match="shuffle"):
        shuffle(2**31, MinstdRand0(1))


def test_weighted_draws_in_chunks_equal_those_of_one_search():
    weights = np.random.default_rng(0).random(1000)
    borders = np.cumsum(weights / np.cumsum(weights)[-1])
    borders[-1] = 1.0
    expected = np.searchsorted(borders, canonical(Mt19937(4), 100_000), side="left")
    assert np.array_equal(weighted_draws(weights, 100_000, Mt19937(4)), expected)
