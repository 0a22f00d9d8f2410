"""What MindSpore 2.10.0 does, ours does: its recorded runs, wherever no random number is in them."""

from collections import Counter

import numpy as np

import samplerkit as sk
from tests.samplers import mindspore_cases as mindspore

# TFRecord cases are arguments of a dataset and no sampler. A quirk tag names a bug of MindSpore's.
PLAIN = [
    case
    for case in mindspore.recorded("golden")
    if not case["quirks"] and case["dataset"]["kind"] != "tfrecord"
]
FIXED = [case for case in PLAIN if not mindspore.is_shuffled(case)]
SHUFFLED = [case for case in PLAIN if mindspore.is_shuffled(case)]

# Recorded refusals that we do not share, each with our reason.
WE_ACCEPT = {
    "num_samples cannot be specified at the same time": "file-aware orders are cut like any other",
    "The sampler is not supported yet": "every sampler works over files",
    "is not supported with current dataset": "PARTIAL and ADAPTIVE need no files",
    "different from generator.len 100": "num_samples is a limit, as for every sampler",
    "Not a valid index": "PK over a child looks up the labels of what the child yields",
    "there are no child ids": "PK over a child looks up the labels of what the child yields",
}


def read(case, epoch, shard):
    """Our ids for one shard of a case in one epoch, or the error."""
    try:
        return np.asarray(mindspore.sampler(case, shard).order(mindspore.layout(case), epoch)).tolist()
    except sk.SamplerkitError as error:
        return error


def length(ids):
    return ids["n"] if isinstance(ids, dict) else len(ids)


def test_enough_cases_are_compared():
    assert (len(FIXED), len(SHUFFLED)) == (489, 806)


def test_orders_without_randomness_are_the_recorded_ones():
    compared = 0
    for case in FIXED:
        for epoch, shard, ids in mindspore.recordings(case):
            if ids is not None:
                assert read(case, epoch, shard) == ids, case["id"]
                compared += 1
    assert compared == 3190


def test_shuffled_orders_are_as_long_as_the_recorded_ones_and_cover_as_many_samples():
    compared = 0
    for case in SHUFFLED:
        runs = [
            (epoch, ids, ids and read(case, epoch, shard)) for epoch, shard, ids in mindspore.recordings(case)
        ]
        assert all(len(ours) == length(ids) for _, ids, ours in runs if ids is not None), case["id"]
        if mindspore.draws_with_replacement(case) or not all(isinstance(ids, list) for _, ids, _ in runs):
            continue
        for epoch in range(case["num_epochs"]):
            theirs, ours = (Counter(i for e, *both in runs if e == epoch for i in both[k]) for k in (0, 1))
            assert sorted(ours.values()) == sorted(theirs.values()), case["id"]
            compared += 1
    assert compared > 1000


def test_get_num_samples_is_the_recorded_one():
    for case in PLAIN:
        shards = mindspore.num_shards(case)
        recorded = case["get_num_samples"]
        expected = recorded if isinstance(recorded, list) else [recorded] * shards
        if case["sampler"] is not None:
            ours = [mindspore.sampler(case, shard).get_num_samples() for shard in range(shards)]
            assert ours == expected, case["id"]


def test_errors_of_mindspore_have_the_same_class_here_or_a_reason_to_accept():
    # Without a sampler it is the constructor of MindSpore's dataset that refuses.
    refused, accepted, used = 0, 0, set()
    for case in [case for case in PLAIN if case["sampler"]]:
        for epoch, shard, ids in mindspore.recordings(case):
            if ids is not None:
                continue
            ours = read(case, epoch, shard)
            if isinstance(ours, sk.SamplerkitError):
                assert case["errors"][0]["type"] in {base.__name__ for base in type(ours).__mro__}
                refused += 1
            else:
                message = case["errors"][0]["message"]
                reasons = {reason for reason in WE_ACCEPT if reason in message}
                assert reasons, (case["id"], message)
                used |= reasons
                accepted += 1
    assert refused > 30
    assert accepted > 200
    assert used == {*WE_ACCEPT}
