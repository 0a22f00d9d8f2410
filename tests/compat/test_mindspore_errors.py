"""The wrong arguments that MindSpore 2.10.0 was probed with: refused as early here, or not, for a reason."""

import functools
import math

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.compat import mindspore as ds
from tests.chains import under
from tests.samplers import mindspore_cases

# The other probes are of the arguments of MindSpore's datasets.
DATASETS = {
    "mappable": 10,
    "labelled": 8,
    "mindrecord": sk.Layout([4, 3, 3]),
    "concat": ConcatDataset([range(4), range(6)]),
}
PROBES = [probe for probe in mindspore_cases.recorded("errors") if probe["dataset"] in DATASETS]
AT_ONCE = [probe for probe in PROBES if probe["when"] in {"construction", "construction or add_child"}]
LATE = [probe for probe in PROBES if probe not in AT_ONCE and probe["exception"] is not None]
NEVER = [probe for probe in PROBES if probe["exception"] is None]


class NoIter:
    """Not an iterable."""


class NoOverride(ds.Sampler):
    """A user's sampler without a method that draws."""


class Yields:
    """An iterable of the given ids."""

    def __init__(self, *ids):
        self.ids = ids

    def __iter__(self):
        return iter(self.ids)


def twice():
    return under(under(ds.SequentialSampler(), ds.SequentialSampler()), ds.SequentialSampler())


def selfchild():
    sampler = ds.SequentialSampler()
    return under(sampler, sampler)


def quirky(make):
    return lambda *arguments, **named: make(*arguments, seed=1, quirks=True, **named)


NAMES = {
    "D": quirky(ds.DistributedSampler),
    "Ra": quirky(ds.RandomSampler),
    "SR": quirky(ds.SubsetRandomSampler),
    "W": quirky(ds.WeightedRandomSampler),
    "P": quirky(ds.PKSampler),
    "Se": ds.SequentialSampler,
    "Su": ds.SubsetSampler,
    "Shuffle": ds.Shuffle,
    "chain": under,
    "twice": twice,
    "selfchild": selfchild,
    "ds": ds,
    "np": np,
    "nan": math.nan,
    "inf": math.inf,
    "NoIter": NoIter,
    "NoOverride": NoOverride,
    "BadIter": lambda: Yields("a"),
    "FloatIter": lambda: Yields(1.5),
    "OOB": lambda: Yields(99),
    "Neg": lambda: Yields(0, -1),
    "Empty": Yields,
}
OF_LABELLED = {"P": functools.partial(quirky(ds.PKSampler), labels=[0, 0, 1, 1, 2, 2, 2, 2])}


def build(probe):
    """Evaluates a recorded expression; the file is our own, in tests/data."""
    return eval(probe["expr"], NAMES | (OF_LABELLED if probe["dataset"] == "labelled" else {}))  # noqa: S307


def test_all_probes_of_samplers_are_compared():
    assert (len(AT_ONCE), len(LATE), len(NEVER)) == (86, 90, 62)


ACCEPTED_AT_ONCE = {
    "D(None,0)": "None asks the running job",
    "D(2,None)": "None asks the running job",
    "D()": "left out asks the running job",
    "D(2)": "left out asks the running job",
    "Ra(shuffle=True)": "True is GLOBAL for every sampler",
    "W((1.0,2.0))": "a tuple is a list of weights",
    "W(np.array([1.0,2.0]))": "an array is a list of weights",
}
BETTER_AT_ONCE = {
    "chain(Se(),5)": "TypeError for another object than a sampler, not AttributeError",
    "chain(Se(),'x')": "TypeError for another object than a sampler, not AttributeError",
    "chain(Se(),object())": "TypeError for another object than a sampler, not AttributeError",
}


@pytest.mark.parametrize("probe", AT_ONCE, ids=lambda probe: f"{probe['dataset']}-{probe['expr']}")
def test_errors_of_mindspore_at_construction_are_raised_at_construction(probe):
    try:
        outcome = build(probe)
    except sk.SamplerkitError as error:
        outcome = error
    classes = {base.__name__ for base in type(outcome).__mro__}
    is_refused = isinstance(outcome, sk.SamplerkitError)
    groups = [
        is_refused and probe["exception"] in classes,
        not is_refused and probe["expr"] in ACCEPTED_AT_ONCE,
        is_refused and "TypeError" in classes and probe["expr"] in BETTER_AT_ONCE,
    ]
    assert groups.count(True) == 1, outcome


ACCEPTED_LATE = {
    "Ra(shuffle='global')": "a mode may be given by its value",
    "Su([1,2],num_samples=0)": "0 means all; MindSpore crashes",
    "SR([1,2],num_samples=0)": "0 means all; MindSpore crashes",
    "chain(Se(),D(2,0))": "a distributed child has its shard's size",
    "chain(Ra(),D(2,0,False))": "a distributed child has its shard's size",
    "chain(Se(num_samples=6),D(2,0,False))": "a distributed child has its shard's size",
    "Su([0]*11)": "a list may be longer than the dataset",
    "SR([0]*11)": "a list may be longer than the dataset",
    "ds.IterSampler([0,1])": "an iterable reads files as well",
    "Se()": "a sampler without randomness reads a ConcatDataset as well",
    "5": "an argument of ConcatDataset.use_sampler, not of a sampler",
    "None": "an argument of ConcatDataset.use_sampler, not of a sampler",
}
KNOWN_WHEN_READ = {
    "ds.IterSampler(BadIter())": "what it yields",
    "ds.IterSampler(FloatIter())": "what it yields",
    "ds.IterSampler(Empty())": "what it yields",
    "ds.IterSampler([])": "what it yields, which may change",
    "ds.Sampler()": "a subclass may draw later",
    "NoOverride()": "a method may be added later",
    "chain(Su([5]),Se(num_samples=3))": "how many samples the child yields",
    "chain(W([1.0]*5),Se(num_samples=3))": "how many samples the child yields",
    "chain(Se(start_index=3),Se(num_samples=3))": "how many samples the child yields",
    "P(2)": "the labels, which the dataset has",
    "chain(P(2),Se())": "the labels, which the dataset has",
    "P(2,class_column='nope')": "the labels, which the dataset has",
}
OTHER_DATASETS = (1000, 3, 10, sk.Layout([600, 400]))


def is_read(sampler, dataset):
    try:
        sampler.order(dataset)[:]
    except sk.SamplerkitError:
        return False
    return True


@pytest.mark.parametrize("probe", LATE, ids=lambda probe: f"{probe['dataset']}-{probe['expr']}")
def test_late_errors_of_mindspore_are_raised_at_construction_if_they_can_be_known(probe):
    try:
        sampler = build(probe)
    except sk.SamplerkitError:
        assert probe["expr"] not in {*ACCEPTED_LATE, *KNOWN_WHEN_READ}
        return
    if probe["expr"] in ACCEPTED_LATE:
        assert not isinstance(sampler, sk.Sampler) or is_read(sampler, DATASETS[probe["dataset"]])
        return
    with pytest.raises(sk.SamplerkitError):
        sampler.order(DATASETS[probe["dataset"]])
    # Not a fault of the sampler alone if it reads another dataset.
    reads_another = any(is_read(sampler, dataset) for dataset in OTHER_DATASETS)
    assert reads_another != (probe["expr"] in KNOWN_WHEN_READ)


REFUSED_NEVER = {
    "D(True,0)": "a bool is no integer",
    "D(2,0,num_samples=True)": "a bool is no integer",
    "Ra(num_samples=True)": "a bool is no integer",
    "Su([True])": "a bool is no integer",
    "SR([True])": "a bool is no integer",
    "D(2,0,offset=-2)": "drops samples",
    "D(2,0,offset=-5)": "drops samples",
    "D(2,0,offset=3)": "reads beyond a shard",
    "D(2,2)": "no such shard",
    "D(2,-1)": "no such shard",
    "Su({1,2})": "a set has no order",
    "SR({1,2})": "a set has no order",
    "W([1.0,nan])": "draws one sample only",
    "W([1.0,inf])": "draws one sample only",
    "W([nan]*3)": "draws one sample only",
    "W([0.0,1.0,0.0],num_samples=2,replacement=False)": "draws samples of weight 0",
    "P(2,class_column='')": "names no column",
    "ds.IterSampler([0,1],num_samples=-1)": "no number of samples",
    "ds.IterSampler(Neg())": "no such sample",
    "chain(chain(ds.IterSampler([0]),Se()),Ra())": "drops the first child",
    "Ra(shuffle=Shuffle.INFILE,replacement=True)": "ignores replacement",
    "Ra(shuffle=Shuffle.PARTIAL,replacement=True)": "ignores replacement",
    "Ra(shuffle=Shuffle.FILES,replacement=True)": "ignores replacement",
    "Se(start_index=-1)": "no such sample",
    "Su([-1])": "no such sample",
    "Su([99])": "no such sample",
    "Su([])": "reads nothing",
    "SR([])": "reads nothing",
    "P(2)": "ignores the seed",
    "chain(Se(),D(2,0,Shuffle.FILES))": "runs half of the chain after epoch 0",
}


@pytest.mark.parametrize("probe", NEVER, ids=lambda probe: f"{probe['dataset']}-{probe['expr']}")
def test_what_mindspore_accepts_reads_the_same_or_is_refused_for_a_reason(probe):
    is_plain = not (probe["dataset"] == "labelled" and probe["expr"] == "P(2)")
    try:
        ids = [build(probe).order(DATASETS[probe["dataset"]], epoch)[:].tolist() for epoch in range(2)]
    except sk.SamplerkitError:
        assert is_plain
        assert probe["expr"] in REFUSED_NEVER
        return
    assert ids == probe["result"]
    assert probe["expr"] not in REFUSED_NEVER or not is_plain
