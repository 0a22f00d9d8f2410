"""Mixtures whose weights are shares of tokens: the shares that are read, edits, states, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.samplers.mixing import sources

WEIGHTS = {"web": 0.6, "code": 0.3, "books": 0.1}


class Texts:
    """Documents of given lengths."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = np.asarray(lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(int(self.lengths[index]), index)


def corpus(seed: int = 0) -> sk.TreeDataset:
    """Three sources whose documents are of very different lengths."""
    rng = np.random.default_rng(seed)
    means = {"web": (900, 5000), "code": (30, 4000), "books": (70_000, 300)}
    return sk.TreeDataset({name: Texts(rng.poisson(mean, size) + 1) for name, (mean, size) in means.items()})


def shares_of_tokens(data: Any, ids: np.ndarray) -> np.ndarray:
    part = np.searchsorted(data.layout.part_starts, ids, side="right") - 1
    tokens = np.bincount(part, weights=data.lengths[ids], minlength=len(data.layout.parts))
    return tokens / tokens.sum()


def mixture(**more: Any) -> sk.MixtureSampler:
    return sk.MixtureSampler(
        dict.fromkeys(WEIGHTS), **{"weights": WEIGHTS, "by": "tokens", "seed": 3, **more}
    )


def test_shares_of_tokens_are_weights_divided_by_the_mean_lengths():
    data = corpus()
    means = {name: part.lengths.sum() / len(part) for name, part in data.parts.items()}
    divided = {name: float(share / means[name]) for name, share in WEIGHTS.items()}
    by_samples = mixture(num_samples=5000, by="samples", weights=divided)
    assert (mixture(num_samples=5000).order(data, 3)[:] == by_samples.order(data, 3)[:]).all()


def test_a_source_that_reads_a_few_samples_has_their_mean_length():
    data = sk.TreeDataset({"a": Texts([1000] * 90 + [10] * 10), "b": Texts([10] * 100)})
    few = {"a": sk.SubsetRandomSampler(range(90, 100)), "b": None}
    drawn = sk.MixtureSampler(few, 4096, weights={"a": 1, "b": 1}, by="tokens", lanes=1)
    assert (drawn.order(data)[:] < 100).sum() == 2048


def test_a_nested_mixture_has_the_mean_length_of_its_draws():
    inner = sk.TreeDataset({"old": Texts([100] * 50), "new": Texts([300] * 50)})
    data = sk.TreeDataset({"web": Texts([200] * 100), "books": inner})
    books = sk.MixtureSampler({"old": None, "new": None}, weights={"old": 1, "new": 1})
    drawn = sk.MixtureSampler(
        {"web": None, "books": books}, 4096, weights={"web": 1, "books": 1}, by="tokens", lanes=1
    )
    assert (drawn.order(data)[:] < 100).sum() == 2048


def test_files_of_a_list_of_weights_have_the_lengths_of_the_dataset():
    class Joined(Texts):
        layout = sk.Layout([50, 50])

    data = Joined([30] * 50 + [10] * 50)
    drawn = sk.MixtureSampler([1, 1], 4096, by="tokens", lanes=1).order(data)[:]
    assert (drawn < 50).sum() == 1024


def test_weights_of_an_edit_are_shares_of_tokens_too():
    data = corpus()
    later = {"web": 0.2, "code": 0.2, "books": 0.6}
    ledger = sk.Ledger(mixture(num_samples=100_000, lanes=1), [sk.Edit(at=40_000, weights=later)])
    ids = ledger.order(data)[:]
    np.testing.assert_allclose(shares_of_tokens(data, ids[:40_000]), list(WEIGHTS.values()), atol=0.02)
    np.testing.assert_allclose(shares_of_tokens(data, ids[40_000:]), list(later.values()), atol=0.02)


def test_a_state_notices_other_lengths_and_any_position_is_random_access():
    loader = sk.Loader(corpus(), mixture(num_samples=600), batch_size=8, collate_fn=len)
    state = loader.state_dict(step=5)
    sk.Loader(corpus(), mixture(num_samples=600), batch_size=8).load_state_dict(state)
    with pytest.raises(sk.StateError, match="dataset"):
        sk.Loader(corpus(seed=1), mixture(num_samples=600), batch_size=8).load_state_dict(state)
    order = mixture(num_samples=600).order(corpus())
    at = np.random.default_rng(0).integers(0, 600, 50)
    assert (order[at] == order[:][at]).all()


def test_lengths_that_are_missing_or_no_numbers_of_tokens_are_refused():
    parts = {"web": range(5), "code": Texts([3, 4]), "books": Texts([1])}
    with pytest.raises(sk.DatasetError, match=r"a source has no lengths.*web.*divide each weight"):
        mixture(num_samples=9).order(sk.TreeDataset(parts))
    for lengths, text in (([0] * 5, "without any"), ([-1] * 5, "must be in"), ([0.5] * 5, "whole numbers")):
        with pytest.raises(sk.DatasetError, match=text):
            mixture(num_samples=9).order(sk.TreeDataset({**parts, "web": Texts(lengths)}))
    above = mixture(num_samples=9)
    above.add_child(sk.SequentialSampler())
    with pytest.raises(sk.CompositionError, match="the ids of another sampler"):
        above.order(corpus())


def test_the_argument_by_is_described_only_if_it_is_tokens():
    assert "by" not in mixture(by="samples").arguments()
    assert mixture().arguments()["by"] == "tokens"


def test_the_first_pass_over_a_part_of_a_source_is_added_up_once_for_all_epochs(monkeypatch):
    added_up = []
    mean = sources._mean
    monkeypatch.setattr(sources, "_mean", lambda *given: added_up.append(given) or mean(*given))
    mix = sk.MixtureSampler(
        {"web": sk.SubsetSampler(range(10)), "code": None}, 40, weights={"web": 0.5, "code": 0.5}, by="tokens"
    )
    data = sk.TreeDataset({"web": Texts(range(1, 21)), "code": Texts(range(1, 31))})
    first = [mix.order(data, epoch)[:].tolist() for epoch in range(3)]
    assert len(added_up) == 1
    again = sk.MixtureSampler(mix.sources, 40, weights=mix.weights, by="tokens")
    assert [again.order(data, epoch)[:].tolist() for epoch in range(3)] == first
