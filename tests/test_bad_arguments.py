"""Wrong arguments: each is an error of the class that MindSpore documents, and names the argument."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat.torch.any_sampler import distributed


class Columns:
    """A dataset whose labels are too few."""

    targets = (1, 2)

    def __len__(self):
        return 3


class Given(sk.Sampler):
    """Draws what it was given."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def draw(self, layout, context):
        return self.ids


def bridge():
    return sk.TorchSampler(sk.SequentialSampler(), 5, sk.World())


def nested(parent, child):
    parent.add_child(child)
    return parent


def cycle():
    inner = sk.SequentialSampler()
    outer = nested(sk.RandomSampler(), inner)
    inner.add_child(outer)


CASES = [
    # num_samples, of every sampler
    (lambda: sk.Sampler("3"), TypeError, "num_samples"),
    (lambda: sk.SequentialSampler(0, 1.0), TypeError, "num_samples"),
    (lambda: sk.SequentialSampler(0, True), TypeError, "num_samples"),
    (lambda: sk.RandomSampler(num_samples="3"), TypeError, "num_samples"),
    (lambda: sk.RandomSampler(num_samples=-1), ValueError, "num_samples"),
    (lambda: sk.RandomSampler(num_samples=2**63), ValueError, "num_samples"),
    (lambda: sk.SubsetSampler([1], -1), ValueError, "num_samples"),
    (lambda: sk.SubsetRandomSampler([1], [1]), TypeError, "num_samples"),
    (lambda: sk.WeightedRandomSampler([1], -3), ValueError, "num_samples"),
    (lambda: sk.PKSampler(1, num_samples=-1), ValueError, "num_samples"),
    (lambda: sk.IterSampler([1], -1), ValueError, "num_samples"),
    (lambda: sk.DistributedSampler(1, 0, num_samples=1.5), TypeError, "num_samples"),
    (lambda: sk.DistributedSampler(1, 0, num_samples=-1), ValueError, "num_samples"),
    (lambda: sk.RepeatSampler(2, -1), ValueError, "num_samples"),
    (lambda: sk.RepeatFactorSampler([1], 1.5), TypeError, "num_samples"),
    (lambda: sk.WindowSampler(2, 1, "3"), TypeError, "num_samples"),
    (lambda: sk.FoldSampler(2, 0, False, -1), ValueError, "num_samples"),
    # repeats and parts
    (lambda: sk.RepeatSampler(0), RuntimeError, "repeats"),
    (lambda: sk.RepeatSampler(2**20 + 1), RuntimeError, "repeats"),
    (lambda: sk.RepeatSampler(2.0), TypeError, "repeats"),
    (lambda: sk.RepeatFactorSampler([]), RuntimeError, "factors"),
    (lambda: sk.RepeatFactorSampler([0.0, 0.0]), RuntimeError, "factors"),
    (lambda: sk.RepeatFactorSampler([1, -1]), RuntimeError, "factors[1]"),
    (lambda: sk.RepeatFactorSampler([1, math.nan]), RuntimeError, "factors[1]"),
    (lambda: sk.RepeatFactorSampler([math.inf]), RuntimeError, "factors[0]"),
    (lambda: sk.RepeatFactorSampler([2.0**30, 1]), RuntimeError, "factors"),
    (lambda: sk.RepeatFactorSampler("twice"), TypeError, "factors"),
    (lambda: sk.RepeatFactorSampler([1], seed=-1), ValueError, "seed"),
    (lambda: sk.RepeatFactorSampler([1, 2]).order(3), RuntimeError, "factors"),
    (lambda: sk.RepeatFactorSampler.factors_of("cats"), TypeError, "categories: must be a list of lists"),
    (lambda: sk.RepeatFactorSampler.factors_of(7), TypeError, "categories: must be a list of lists"),
    (lambda: sk.RepeatFactorSampler.factors_of([["cat"], 7]), TypeError, "categories[1]"),
    (lambda: sk.RepeatFactorSampler.factors_of([["cat"]], 0), RuntimeError, "threshold"),
    (lambda: sk.RepeatFactorSampler.factors_of([["cat"]], "all"), TypeError, "threshold"),
    (lambda: sk.WindowSampler(0), RuntimeError, "size"),
    (lambda: sk.BlockSampler(0), RuntimeError, "pool"),
    (lambda: sk.BlockSampler(2.0), TypeError, "pool"),
    (lambda: sk.BlockSampler(windows_per_block=0), RuntimeError, "windows_per_block"),
    (lambda: sk.BlockSampler(seed=-1), ValueError, "seed"),
    (lambda: sk.BlockSampler().order(8), RuntimeError, "dataset"),
    (lambda: sk.BlockSampler(windows_per_block=3).order(sk.Layout([3, 4])), RuntimeError, "dataset"),
    (lambda: sk.WindowSampler(True), TypeError, "size"),
    (lambda: sk.WindowSampler(2, 0), RuntimeError, "stride"),
    (lambda: sk.WindowSampler(4).order(sk.Layout([3, 3])), RuntimeError, "size"),
    (lambda: sk.FoldSampler(1, 0), RuntimeError, "num_folds"),
    (lambda: sk.FoldSampler("5", 0), TypeError, "num_folds"),
    (lambda: sk.FoldSampler(5, 5), RuntimeError, "fold"),
    (lambda: sk.FoldSampler(5, -1), RuntimeError, "fold"),
    (lambda: sk.FoldSampler(5, 0, 1), TypeError, "held_out"),
    (lambda: sk.FoldSampler(2, 0, labels=[]), RuntimeError, "labels"),
    (lambda: sk.FoldSampler(2, 0, groups=[]), RuntimeError, "groups"),
    (lambda: sk.FoldSampler(2, 0, groups=[[1], [2]]), TypeError, "groups"),
    (lambda: sk.FoldSampler(2, 0, labels=[1], groups=[1]), ValueError, "groups"),
    (lambda: sk.FoldSampler(2, 0, labels=[1], by_files=True), ValueError, "by_files"),
    (lambda: sk.FoldSampler(2, 0, by_files="yes"), TypeError, "by_files"),
    (lambda: sk.FoldSampler(2, 0, seed=0.5), TypeError, "seed"),
    (lambda: sk.FoldSampler(4, 0).order(3), RuntimeError, "num_folds"),
    (lambda: sk.FoldSampler(2, 0, labels=[1, 2]).order(3), RuntimeError, "labels"),
    (lambda: sk.FoldSampler(2, 0, groups=[1, 1, 1]).order(3), RuntimeError, "num_folds"),
    (lambda: sk.FoldSampler(2, 0, by_files=True).order(3), RuntimeError, "by_files"),
    (lambda: sk.FoldSampler(3, 0, by_files=True).order(sk.Layout([3, 3])), RuntimeError, "num_folds"),
    (lambda: nested(sk.FoldSampler(2, 0), sk.RandomSampler()).order(3), RuntimeError, "FoldSampler"),
    (lambda: nested(sk.WindowSampler(2), sk.SubsetSampler([2, 0])).order(3), RuntimeError, "WindowSampler"),
    # start_index
    (lambda: sk.SequentialSampler(-1), RuntimeError, "start_index"),
    (lambda: sk.SequentialSampler("0"), TypeError, "start_index"),
    (lambda: sk.SequentialSampler(False), TypeError, "start_index"),
    (lambda: sk.SequentialSampler(9).order(3), IndexError, "start_index"),
    # shuffle, replacement, seed and what belongs to the mode
    (lambda: sk.RandomSampler("yes"), TypeError, "replacement"),
    (lambda: sk.RandomSampler(1), TypeError, "replacement"),
    (lambda: sk.RandomSampler(shuffle="globl"), TypeError, "shuffle"),
    (lambda: sk.RandomSampler(shuffle=None), TypeError, "shuffle"),
    (lambda: sk.RandomSampler(shuffle=1), TypeError, "shuffle"),
    (lambda: sk.RandomSampler(shuffle=False), TypeError, "shuffle"),
    (lambda: sk.RandomSampler(True, shuffle="files"), RuntimeError, "shuffle"),
    (lambda: sk.RandomSampler(shuffle="files").order(5), RuntimeError, "shuffle"),
    (lambda: sk.DistributedSampler(1, 0, "infile").order(5), RuntimeError, "shuffle"),
    (lambda: sk.RandomSampler(seed=-1), ValueError, "seed"),
    (lambda: sk.RandomSampler(seed=2**64), ValueError, "seed"),
    (lambda: sk.RandomSampler(seed=1.0), TypeError, "seed"),
    (lambda: sk.RandomSampler(seed=None), TypeError, "seed"),
    (lambda: sk.RandomSampler(partial_size=0), RuntimeError, "partial_size"),
    (lambda: sk.RandomSampler(partial_size=1e6), TypeError, "partial_size"),
    (lambda: sk.RandomSampler(pools=0), RuntimeError, "pools"),
    (lambda: sk.RandomSampler(pools=3), RuntimeError, "pools"),
    (lambda: sk.RandomSampler(pools=True), TypeError, "pools"),
    (lambda: sk.DistributedSampler(1, 0, pools="2"), TypeError, "pools"),
    (lambda: sk.DistributedSampler(1, 0, pools=None), TypeError, "pools"),
    (lambda: sk.RandomSampler(adaptive_threshold=-1), RuntimeError, "adaptive_threshold"),
    (lambda: sk.RandomSampler(adaptive_threshold="big"), TypeError, "adaptive_threshold"),
    (lambda: sk.RandomSampler(lanes=0), RuntimeError, "lanes"),
    (lambda: sk.RandomSampler(lanes=True), TypeError, "lanes"),
    (lambda: sk.RandomSampler(algorithm="other"), ValueError, "algorithm"),
    (lambda: sk.RandomSampler(algorithm=1), TypeError, "algorithm"),
    # indices
    (lambda: sk.SubsetSampler([]), RuntimeError, "indices"),
    (lambda: sk.SubsetSampler(None), TypeError, "indices"),
    (lambda: sk.SubsetSampler("123"), TypeError, "indices"),
    (lambda: sk.SubsetSampler([1, "2"]), TypeError, "indices[1]"),
    (lambda: sk.SubsetSampler([1.0]), TypeError, "indices[0]"),
    (lambda: sk.SubsetSampler([True, 2]), TypeError, "indices[0]"),
    (lambda: sk.SubsetSampler([3, -2]), RuntimeError, "indices"),
    (lambda: sk.SubsetSampler([2**63]), RuntimeError, "indices"),
    (lambda: sk.SubsetSampler([[1, 2], [3, 4]]), TypeError, "indices"),
    (lambda: sk.SubsetSampler([[1, 2], [3]]), TypeError, "indices"),
    (lambda: sk.SubsetSampler({1, 2}), TypeError, "indices"),
    (lambda: sk.SubsetSampler({1: 2}), TypeError, "indices"),
    (lambda: sk.SubsetSampler(1.5), TypeError, "indices"),
    (lambda: sk.SubsetSampler(np.array([1.5, 2.5])), TypeError, "indices"),
    (lambda: sk.SubsetSampler(np.float64(1.5)), TypeError, "indices"),
    (lambda: sk.SubsetSampler(np.array(["1"])), TypeError, "indices"),
    (lambda: sk.SubsetSampler([5]).order(5), IndexError, "indices"),
    (lambda: sk.SubsetRandomSampler([1, None]), TypeError, "indices[1]"),
    (lambda: sk.SubsetRandomSampler([7]).order(5), RuntimeError, "indices"),
    (lambda: sk.SubsetRandomSampler([7], seed="a"), TypeError, "seed"),
    # weights
    (lambda: sk.WeightedRandomSampler([]), RuntimeError, "weights"),
    (lambda: sk.WeightedRandomSampler([0, 0.0]), RuntimeError, "weights"),
    (lambda: sk.WeightedRandomSampler([1, -1]), RuntimeError, "weights[1]"),
    (lambda: sk.WeightedRandomSampler([1, math.nan]), RuntimeError, "weights[1]"),
    (lambda: sk.WeightedRandomSampler([math.inf]), RuntimeError, "weights[0]"),
    (lambda: sk.WeightedRandomSampler(["1"]), TypeError, "weights[0]"),
    (lambda: sk.WeightedRandomSampler("12"), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler(None), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler([[1.0], [2.0]]), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler([[1.0], [2.0, 3.0]]), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler(np.ones((2, 2))), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler([1 + 2j]), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler([10**400]), RuntimeError, "weights"),
    (lambda: sk.WeightedRandomSampler(frozenset({1.0, 2.0})), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler(torch.ones(3, dtype=torch.bfloat16)), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler(torch.ones(3, requires_grad=True)), TypeError, "weights"),
    (lambda: sk.WeightedRandomSampler([1], replacement=0), TypeError, "replacement"),
    (lambda: sk.WeightedRandomSampler([1, 0], 2, False), RuntimeError, "num_samples"),
    (lambda: sk.WeightedRandomSampler([1, 1]).order(1), IndexError, "weights"),
    # PK
    (lambda: sk.PKSampler(0), RuntimeError, "num_val"),
    (lambda: sk.PKSampler("2"), TypeError, "num_val"),
    (lambda: sk.PKSampler(True), TypeError, "num_val"),
    (lambda: sk.PKSampler(2, 3), NotImplementedError, "num_class"),
    (lambda: sk.PKSampler(2, shuffle="yes"), TypeError, "shuffle"),
    (lambda: sk.PKSampler(2, class_column=3), TypeError, "class_column"),
    (lambda: sk.PKSampler(2, labels=[]), RuntimeError, "labels"),
    (lambda: sk.PKSampler(2, labels="ab"), TypeError, "labels"),
    (lambda: sk.PKSampler(2, labels=5), TypeError, "labels"),
    (lambda: sk.PKSampler(2, labels=[[1], [2, 3]]), TypeError, "labels"),
    (lambda: sk.PKSampler(2, labels=[1, None]), TypeError, "labels"),
    (lambda: sk.PKSampler(2, labels=[1]).order(2), RuntimeError, "labels"),
    (lambda: sk.PKSampler(2).order(Columns()), RuntimeError, "labels"),
    (lambda: sk.PKSampler(2).order(5), RuntimeError, "class_column"),
    (lambda: sk.PKSampler(2**31, labels=[0, 1]).order(2), RuntimeError, "num_val"),
    (lambda: sk.PKSampler(2**31, labels=[0], num_samples=2**31).order(1), RuntimeError, "num_val"),
    # Iter
    (lambda: sk.IterSampler(3), TypeError, "sampler"),
    (lambda: sk.IterSampler(torch.tensor(3)), TypeError, "sampler"),
    (lambda: sk.IterSampler(np.array(3)), TypeError, "sampler"),
    (lambda: sk.IterSampler("12"), TypeError, "sampler"),
    (lambda: sk.IterSampler(iter([1])), TypeError, "sampler"),
    (lambda: sk.IterSampler(["a"]).order(5), TypeError, "sampler"),
    (lambda: sk.IterSampler([]).order(5), RuntimeError, "sampler"),
    (lambda: sk.IterSampler([-1]).order(5), IndexError, "sampler"),
    # Distributed
    (lambda: sk.DistributedSampler("2", 0), TypeError, "num_shards"),
    (lambda: sk.DistributedSampler(True, 0), TypeError, "num_shards"),
    (lambda: sk.DistributedSampler(0, 0), RuntimeError, "num_shards"),
    (lambda: sk.DistributedSampler(-1, 0), RuntimeError, "num_shards"),
    (lambda: sk.DistributedSampler(2, "0"), TypeError, "shard_id"),
    (lambda: sk.DistributedSampler(2, 2), RuntimeError, "shard_id"),
    (lambda: sk.DistributedSampler(2, -1), RuntimeError, "shard_id"),
    (lambda: sk.DistributedSampler(2, 0, "all"), TypeError, "shuffle"),
    (lambda: sk.DistributedSampler(2, 0, offset=3), RuntimeError, "offset"),
    (lambda: sk.DistributedSampler(2, 0, offset=-2), RuntimeError, "offset"),
    (lambda: sk.DistributedSampler(2, 0, offset="0"), TypeError, "offset"),
    (lambda: sk.DistributedSampler(2, 0, offset=None), TypeError, "offset"),
    (lambda: sk.DistributedSampler(2, 0, seed=-5), ValueError, "seed"),
    # the order's own arguments
    (lambda: sk.RandomSampler().order(5, world=(2, 0)), TypeError, "world"),
    (lambda: Given([[1], [2, 3]]).order(5), TypeError, "Given: must be an integer or integers"),
    (lambda: sk.RandomSampler().order(5, -1), ValueError, "epoch"),
    (lambda: sk.RandomSampler().order(5, 1.0), TypeError, "epoch"),
    (lambda: sk.RandomSampler().order(None), RuntimeError, "dataset"),
    (lambda: sk.DistributedSampler(2, 0).order(5, world=sk.World(3, 0)), RuntimeError, "world"),
    (lambda: sk.SequentialSampler().order(5)[5], IndexError, "position"),
    (lambda: sk.SequentialSampler().order(5)[-6], IndexError, "position"),
    (lambda: sk.SequentialSampler().order(5)[[0, 9]], IndexError, "position"),
    (lambda: sk.SequentialSampler().order(5)["a"], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[1.0], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[True], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[[[1], [2, 3]]], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[torch.tensor([True, False])], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[torch.tensor([1.0])], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[torch.tensor(True)], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[1.5:2], TypeError, "index"),
    (lambda: sk.SequentialSampler().order(5)[::0], ValueError, "step"),
    (lambda: sk.SequentialSampler().order(5).positions_of("a"), TypeError, "ids"),
    (lambda: sk.SequentialSampler().order(5).positions_of(1.5), TypeError, "ids"),
    (lambda: sk.SequentialSampler().order(5).positions_of([[1], [2, 3]]), TypeError, "ids"),
    (lambda: list(sk.SequentialSampler().order(5).chunks(0)), ValueError, "size"),
    (lambda: list(sk.SequentialSampler().order(5).chunks("a")), TypeError, "size"),
    (lambda: list(sk.SequentialSampler().order(5).chunks(True)), TypeError, "size"),
    (lambda: list(sk.SequentialSampler().order(5).chunks(2, "a")), TypeError, "start"),
    (lambda: list(sk.SequentialSampler().order(5).chunks(2, 6)), IndexError, "start"),
    # add_child
    (lambda: nested(sk.RandomSampler(), 3), TypeError, "child"),
    (lambda: nested(sk.RandomSampler(), sk.RandomSampler), TypeError, "child"),
    (lambda: nested(sk.RandomSampler(), sk.RandomSampler(shuffle="partial")), RuntimeError, "PARTIAL"),
    (lambda: nested(sk.RandomSampler(shuffle="files"), sk.SequentialSampler()), RuntimeError, "'files'"),
    (lambda: nested(sk.DistributedSampler(1, 0, "adaptive"), sk.Sampler()), RuntimeError, "'adaptive'"),
    (lambda: nested(nested(sk.RandomSampler(), sk.Sampler()), sk.Sampler()), RuntimeError, "child"),
    (cycle, RuntimeError, "cycle"),
    (lambda: sk.Sampler().order(3), RuntimeError, "draw"),
    # Layout
    (lambda: sk.Layout("12"), TypeError, "sizes"),
    (lambda: sk.Layout(1.5), TypeError, "sizes"),
    (lambda: sk.Layout(torch.tensor(1.5)), TypeError, "sizes"),
    (lambda: sk.Layout(True), TypeError, "sizes"),
    (lambda: sk.Layout([1, 2.0]), TypeError, "sizes"),
    (lambda: sk.Layout([[1], [2]]), TypeError, "sizes"),
    (lambda: sk.Layout([[1], [2, 3]]), TypeError, "sizes"),
    (lambda: sk.Layout({5, 6}), TypeError, "sizes"),
    (lambda: sk.Layout({5: 6}), TypeError, "sizes"),
    (lambda: sk.Layout([1, 2]).file_of(1.5), TypeError, "ids"),
    (lambda: sk.Layout([1, 2]).file_of("a"), TypeError, "ids"),
    (lambda: sk.Layout([1, 2]).file_of([True, False]), TypeError, "ids"),
    (lambda: sk.Layout([1, -2]), ValueError, "sizes"),
    (lambda: sk.Layout(-1), ValueError, "sizes"),
    (lambda: sk.Layout(2**62 + 1), RuntimeError, "sizes"),
    (lambda: sk.Layout([2**62, 1]), RuntimeError, "sizes"),
    (lambda: sk.Layout([2**70]), RuntimeError, "sizes"),
    (lambda: sk.Layout([1], "a"), TypeError, "names"),
    (lambda: sk.Layout([1], [1]), TypeError, "names"),
    (lambda: sk.Layout([1], ["a", "b"]), ValueError, "names"),
    (lambda: sk.Layout([1], 5), TypeError, "names"),
    (lambda: sk.Layout([1], np.array("a")), TypeError, "names"),
    (lambda: sk.Layout.of(object()), RuntimeError, "dataset"),
    (lambda: sk.Layout([1]).file_of(np.array([1])), IndexError, "ids"),
    # World
    (lambda: sk.World("2"), TypeError, "num_shards"),
    (lambda: sk.World(True), TypeError, "num_shards"),
    (lambda: sk.World(np.True_), TypeError, "num_shards"),
    (lambda: sk.World(torch.tensor([1, 2])), TypeError, "num_shards"),
    (lambda: sk.World(0), RuntimeError, "num_shards"),
    (lambda: sk.World(2, 2), RuntimeError, "shard_id"),
    (lambda: sk.World(2, -1), RuntimeError, "shard_id"),
    (lambda: sk.World(2, 0.0), TypeError, "shard_id"),
    # the torch bridge
    (lambda: sk.TorchSampler([1], 5), TypeError, "sampler"),
    (lambda: sk.TorchSampler(sk.SequentialSampler(), 5, (2, 0)), TypeError, "world"),
    (lambda: bridge().set_epoch(-1), ValueError, "epoch"),
    (lambda: bridge().set_epoch("1"), TypeError, "epoch"),
    (lambda: sk.TorchBatchSampler(sk.SequentialSampler(), 2), TypeError, "sampler"),
    (lambda: sk.TorchBatchSampler(bridge(), 0), RuntimeError, "batch_size"),
    (lambda: sk.TorchBatchSampler(bridge(), 2.0), TypeError, "batch_size"),
    (lambda: sk.TorchBatchSampler(bridge(), 2, 1), TypeError, "drop_last"),
    # seconds
    (lambda: sk.RemoteOptions(timeout=10**400), RuntimeError, "timeout"),
    (lambda: sk.RemoteOptions(retry_seconds=float("nan")), RuntimeError, "retry_seconds"),
    (lambda: distributed(range(3), agreement_seconds="10"), TypeError, "agreement_seconds"),
    (lambda: sk.Loader(range(3), batch_size=1, agreement_seconds="10"), TypeError, "agreement_seconds"),
]


@pytest.mark.parametrize(
    ("call", "kind", "name"), CASES, ids=[f"{number}-{case[2]}" for number, case in enumerate(CASES)]
)
def test_a_wrong_argument_is_an_error_of_the_documented_class_that_names_it(call, kind, name):
    with pytest.raises(sk.SamplerkitError) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, kind), f"{type(caught.value).__name__}: {message}"
    assert name in message
    assert "\n" not in message
    assert len(message) < 300


REQUIRED = {
    "DeviceLoader": ([range(3)], {}),
    "FileDataset": (["a.npz"], {"reader": "npz"}),
    "Loader": ([range(3)], {"batch_size": 1}),
    "FoldSampler": ([2, 0], {}),
    "PKSampler": ([2], {}),
    "TarDataset": (["a.tar"], {}),
    "TarWriter": (["out-%d.tar"], {}),
    "TokenDataset": (["a.npy", 8], {}),
    "TokenWriter": (["out"], {"dtype": "uint16"}),
    "TorchBatchSampler": ([bridge()], {"batch_size": 2}),
    "WeightedRandomSampler": ([[1, 2]], {}),
    "load_config": ([{"sampler": {"kind": "random"}}], {}),
}
"""What must be given besides, by public name."""


def switches():
    """All public arguments that are a bool."""
    for name in sk.__all__:
        found = getattr(sk, name)
        if (inspect.isclass(found) and not issubclass(found, sk.Config)) or inspect.isfunction(found):
            for argument, parameter in inspect.signature(found).parameters.items():
                if parameter.annotation in {"bool", bool}:
                    yield name, argument


@pytest.mark.parametrize("value", [1, "no", None, []])
@pytest.mark.parametrize(("name", "argument"), [*switches()])
def test_a_switch_takes_a_bool_and_nothing_that_is_only_like_one(name, argument, value):
    given, named = REQUIRED.get(name, ([], {}))
    with pytest.raises(sk.ArgumentTypeError, match=f"^{argument}: must be a bool, got "):
        getattr(sk, name)(*given, **named, **{argument: value})


def test_the_message_of_a_long_array_is_one_short_line():
    with pytest.raises(TypeError) as caught:
        sk.SubsetSampler(np.linspace(0, 1, 10_000).reshape(100, 100))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_integer_that_python_refuses_to_write_is_refused_all_the_same():
    with pytest.raises(sk.ArgumentValueError, match=r"seed: must be in .*, got <int>"):
        sk.RandomSampler(seed=1 << 20_000)
