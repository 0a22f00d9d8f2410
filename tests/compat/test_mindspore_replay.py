"""MindSpore's orders id for id, against recorded ones; and the random engines and shuffles below them."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.compat import mindspore as ds
from samplerkit.compat.mindspore import record_files
from samplerkit.compat.mindspore.generators import (
    MinstdRand0,
    Mt19937,
    canonical,
    first_words,
    uniform_integers,
)
from samplerkit.compat.mindspore.shuffle import carried, shuffle, swapped, weighted_draws
from tests.compat import mindspore_chains as chains
from tests.samplers import mindspore_cases

# TFRecord cases are arguments of a dataset and no sampler.
CASES = [case for case in mindspore_cases.recorded("golden") if case["dataset"]["kind"] != "tfrecord"]
PLAIN = [case for case in CASES if not case["quirks"]]
TAGGED = [case for case in CASES if case["quirks"]]

# Recorded refusals of plain cases that we do not share, each with our reason.
WE_ACCEPT = {
    "The sampler is not supported yet": "a sampler without randomness reads files as well",
    "different from generator.len": "num_samples is a limit, as for every sampler",
    "Not a valid index": "PK over a child looks up the labels of what the child yields",
    "there are no child ids": "PK over a child looks up the labels of what the child yields",
    "Argument shuffle with value": "a mode may be said in place of a bool",
}


def recordings(case):
    """Every (epoch, shard, recorded ids or None)."""
    for epoch in range(case["num_epochs"]):
        for shard in range(chains.num_shards(case)):
            yield epoch, shard, case["epochs"] and case["epochs"][epoch][shard]


def test_every_plain_case_is_replayed_exactly_with_the_flag_and_without(capsys):
    cases, sequences = Counter(), Counter()
    for case in PLAIN:
        kind = case["dataset"]["kind"]
        cases[kind] += 1
        for epoch, shard, recorded in recordings(case):
            if recorded is not None:
                for quirks in (False, True):
                    ids = chains.read(case, epoch, shard, quirks=quirks)
                    assert chains.is_recorded(ids, recorded), (case["id"], epoch, shard, quirks, ids)
                sequences[kind] += 1
    with capsys.disabled():
        print(f"\nexact: {dict(cases)} cases, {dict(sequences)} sequences of ids")
    assert cases == {"mappable": 639, "labelled": 84, "mindrecord": 547, "concat": 25}
    assert sequences == {"mappable": 4250, "labelled": 243, "mindrecord": 2756, "concat": 182}


def test_what_mindspore_refused_is_refused_with_its_class_or_accepted_for_a_reason():
    outcomes, used = Counter(), set()
    for case in PLAIN:
        for epoch, shard, recorded in recordings(case):
            if recorded is not None:
                continue
            theirs, ours = case["errors"][0], chains.read(case, epoch, shard, quirks=False)
            same_class = theirs["type"] in {base.__name__ for base in type(ours).__mro__}
            if isinstance(ours, sk.SamplerkitError) and same_class:
                outcomes["refused"] += 1
                continue
            reasons = {reason for reason in WE_ACCEPT if reason in theirs["message"]}
            assert reasons, (case["id"], theirs, ours)
            used |= reasons
            outcomes["accepted"] += 1
            if isinstance(ours, sk.SamplerkitError):
                # The dataset's argument was taken: it is the mode that does not fit.
                assert case["sampler"] is None, (case["id"], ours)
                assert ours.place in {"shuffle", "num_samples"}
    assert outcomes["refused"] > 250
    assert outcomes["accepted"] > 50
    assert used == set(WE_ACCEPT)


# What becomes of the cases with each tag.
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
    """Says what becomes of a case with a quirk, over all its epochs and shards."""
    runs = [run for run in recordings(case) if run[2] is not None]
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


def test_each_case_with_a_quirk_is_in_one_group(capsys):
    groups = defaultdict(Counter)
    for case in TAGGED:
        for tag in case["quirks"]:
            groups[tag][group(case)] += 1
    with capsys.disabled():
        for tag, counts in sorted(groups.items()):
            print(f"\n{tag}: {dict(counts)}", end="")
        print()
    assert groups == GROUPS


def test_without_the_flag_weighted_and_subset_draws_differ_from_epoch_to_epoch():
    for sampler in (ds.WeightedRandomSampler([1.0] * 50, seed=7), ds.SubsetRandomSampler(range(50), seed=7)):
        assert list(sampler.order(50, 0)) != list(sampler.order(50, 1))
    constant = ds.WeightedRandomSampler([1.0] * 50, seed=7, quirks=True)
    assert list(constant.order(50, 0)) == list(constant.order(50, 5))


def test_an_epoch_is_the_same_whether_earlier_ones_were_asked_for_or_not():
    sampler = ds.RandomSampler(seed=3)
    fifth = sampler.order(1000, 5)[:]
    held = [sampler.order(1000, epoch) for epoch in range(6)]
    assert np.array_equal(held[5][:], fifth)
    assert np.array_equal(ds.RandomSampler(seed=3).order(1000, 5)[:], fifth)


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
    assert parent.chain_algorithm == "mindspore-2.10"


@pytest.mark.parametrize("name", ["lanes", "pools"])
def test_what_mindspore_has_not_is_refused(name):
    with pytest.raises(NotImplementedError, match=name):
        sk.RandomSampler(algorithm="mindspore-2.10", **{name: 2})
    with pytest.raises(NotImplementedError, match="algorithm"):
        sk.MixtureSampler(algorithm="mindspore-2.10")


def test_a_loader_saves_the_algorithm_and_refuses_another_one():
    dataset = list(range(40))
    loader = sk.Loader(dataset, ds.RandomSampler(seed=1), batch_size=4)
    first = [int(i) for batch in [next(iter(loader))] for i in batch]
    state = loader.state_dict()
    assert first == ds.RandomSampler(seed=1).order(40)[:4].tolist()
    assert state["algorithm"] == "mindspore-2.10"
    with pytest.raises(sk.StateError, match="algorithm"):
        sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=4).load_state_dict(state)


CONCAT = ConcatDataset([range(3), range(4)])


@pytest.mark.parametrize(
    ("sampler", "kind", "name"),
    [
        (lambda: ds.DistributedSampler(2, 0), ValueError, "shuffle"),
        (lambda: ds.DistributedSampler(2, 0, False, num_samples=2), ValueError, "num_samples"),
        (lambda: ds.RandomSampler(True), ValueError, "replacement"),
        (lambda: ds.RandomSampler(num_samples=1), ValueError, "num_samples"),
        (lambda: ds.SubsetRandomSampler([1]), TypeError, "sampler"),
        (lambda: ds.WeightedRandomSampler([1]), TypeError, "sampler"),
        (lambda: ds.PKSampler(1, labels=range(7)), TypeError, "sampler"),
    ],
)
def test_a_concat_dataset_refuses_what_mindspore_refuses(sampler, kind, name):
    with pytest.raises(kind, match=name):
        sampler().order(CONCAT)


def test_over_a_concat_dataset_a_torch_loader_pads_nothing():
    shards = [sk.TorchSampler(ds.DistributedSampler(2, shard, False), CONCAT) for shard in range(2)]
    assert [list(shard) for shard in shards] == [[0, 2, 4, 6], [1, 3, 5]]


@pytest.mark.parametrize(
    "make",
    [lambda: ds.RandomSampler(seed=1), lambda: ds.DistributedSampler(8, 3, seed=1)],
    ids=["random", "distributed"],
)
@pytest.mark.parametrize("dataset", [10**6, sk.Layout([10**3] * 10**3)], ids=["plain", "files"])
def test_a_million_samples_need_at_most_four_arrays_of_their_number(make, dataset):
    # The first epoch, and the second one while the first is held: all that is allocated then.
    tracemalloc.start()
    try:
        first = make().order(dataset, 0)
        second = make().order(dataset, 1)
        assert tracemalloc.get_traced_memory()[1] < 4 * 8 * 10**6
    finally:
        tracemalloc.stop()
    assert first[0] != second[0]


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


def shuffled_by_a_loop(size, generator):
    """`std::shuffle` of libstdc++ 9, written as a loop."""
    items, stream, span = list(range(size)), words(generator), generator.span

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


def test_mt19937_gives_the_words_of_the_standard():
    generator = Mt19937(5489)
    assert generator.peek(3).tolist() == [3499211612, 581869302, 3890346734]
    generator.skip(9999)
    assert generator.peek(1).tolist() == [4123659995]


def test_minstd_rand0_gives_the_words_of_the_standard():
    assert MinstdRand0(1).peek(10_000)[-1] + 1 == 1043618065
    # The state is never 0: the seeds 0 and 2^31 - 1 count as 1.
    assert MinstdRand0(0).peek(1) == MinstdRand0(2**31 - 1).peek(1) == MinstdRand0(1).peek(1)


@pytest.mark.parametrize("kind", GENERATORS)
def test_words_do_not_depend_on_how_they_are_asked_for(kind):
    expected = kind(3).peek(200_000)
    generator = kind(3)
    for count, used in ((5, 2), (100_000, 70_000), (10, 0), (1, 1)):
        generator.peek(count)
        generator.skip(used)
    assert np.array_equal(generator.peek(1000), expected[70_003:71_003])
    generator.skip(100_000)
    assert generator.peek(1)[0] == expected[170_003]


def test_first_words_are_those_of_a_generator_of_each_seed():
    seeds = np.array([0, 1, 5489, 2**31, 2**32 - 1, *range(100, 120)])
    assert first_words(seeds).tolist() == [int(Mt19937(seed).peek(1)[0]) for seed in seeds.tolist()]


@pytest.mark.parametrize("kind", GENERATORS)
@given(st.lists(st.integers(1, 2**31 - 3), min_size=1, max_size=200), st.integers(0, 2**32 - 1))
def test_integers_are_those_of_a_loop_and_the_generator_is_left_behind_them(kind, sizes, seed):
    generator, reference = kind(seed), kind(seed)
    drawn = uniform_integers(generator, np.array(sizes))
    stream = words(reference)
    assert drawn.tolist() == [one_integer(stream, kind.span, size) for size in sizes]
    assert generator.peek(1)[0] == next(stream)


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 100, 101, 46339, 46340, 46341, 65535, 65536, 65537])
def test_a_shuffle_is_that_of_a_loop(kind, size):
    # Around the square root of the span, one word stops serving two swaps, and most words are thrown away.
    assert shuffle(size, kind(7)).tolist() == shuffled_by_a_loop(size, kind(7))


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=300))
def test_swaps_all_at_once_are_swaps_one_after_another(fractions):
    targets = [int(fraction * (i + 1)) for i, fraction in enumerate(fractions)]
    items = list(range(len(targets)))
    for i, target in enumerate(targets):
        items[i], items[target] = items[target], items[i]
    assert swapped(np.array(targets, dtype=np.int64)).tolist() == items


def test_more_elements_than_words_are_refused():
    with pytest.raises(sk.NotSupportedError, match="shuffle"):
        shuffle(2**31, MinstdRand0(1))


def test_a_single_weight_uses_no_word():
    generator = Mt19937(1)
    assert weighted_draws(np.array([2.0]), 5, generator).tolist() == [0] * 5
    assert generator.peek(1) == Mt19937(1).peek(1)


def test_weighted_draws_in_chunks_are_those_of_a_search_one_by_one():
    weights = np.random.default_rng(0).random(1000)
    borders = np.cumsum(weights / np.cumsum(weights)[-1])
    borders[-1] = 1.0
    expected = np.searchsorted(borders, canonical(Mt19937(4), 100_000), side="left")
    assert np.array_equal(weighted_draws(weights, 100_000, Mt19937(4)), expected)


@pytest.mark.parametrize("tie", [1.0, 1e-3])
def test_parts_drawn_by_doubles_are_those_drawn_by_whole_numbers(monkeypatch, tie):
    sizes = np.array([300, 1, 2000, 40])
    quick = record_files.random_concat(sizes, 5, 3)
    monkeypatch.setattr(record_files, "_TIE", tie)
    assert np.array_equal(record_files.random_concat(sizes, 5, 3), quick)
    assert sorted(quick) == list(range(2341))


def test_an_epoch_starts_from_the_latest_one_that_is_held():
    arranged = []

    def arrange(epoch, before):
        arranged.append(epoch)
        return np.arange(before or 4)[::-1].copy()

    held = carried("a name of this test", 3, arrange)
    # Turned around six times.
    assert carried("a name of this test", 5, arrange)[:].tolist() == [0, 1, 2, 3]
    assert arranged == [0, 1, 2, 3, 4, 5]
    del held
    carried("a name of this test", 1, arrange)
    assert arranged[6:] == [0, 1]
