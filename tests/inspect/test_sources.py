"""What is read of each source of a mixture: in a training log, in a plan, of nested and edited mixtures."""

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.plan import plan
from tests.inspect.setups import mixed
from tests.numbers import Texts

DATA = sk.TreeDataset({"web": Texts([30] * 500), "wiki": Texts([10] * 20)})


def loader(sampler, dataset=DATA, **more):
    return sk.Loader(dataset, sampler, **{"batch_size": 10, "collate_fn": list, **more})


def test_the_log_has_the_passes_and_tokens_of_each_source_since_the_first_epoch():
    read = loader(mixed(3, 1, seed=1), world=sk.World(2, 0))
    for _ in range(2):
        for _ in read:
            figures = read.figures()
            counts = read.history().by_source()
            assert figures["passes/web"] == counts["web"] / 500
            assert figures["passes/wiki"] == counts["wiki"] / 20
            assert figures["tokens/web"] == counts["web"] * 30
            assert figures["tokens/wiki"] == counts["wiki"] * 10


@pytest.mark.parametrize(
    ("sampler", "mean"),
    [
        (sk.SubsetRandomSampler(range(20)), 1),
        (sk.SequentialSampler(25), 999),
        (sk.SequentialSampler(), 500),
        (sk.RandomSampler(seed=1), 500),
    ],
)
def test_tokens_are_counted_for_the_samples_that_a_source_reads(sampler, mean):
    data = sk.TreeDataset({"web": Texts([1] * 20 + [999] * 20), "wiki": Texts([10] * 20)})
    read = loader(sk.MixtureSampler({"web": sampler, "wiki": None}, 40, lanes=1), data)
    for _ in read:
        assert read.figures()["tokens/web"] == read.history().by_source()["web"] * mean


def test_a_run_that_resumed_on_other_ranks_counts_from_its_first_epoch():
    started, resumed = (loader(mixed(3, 1), world=sk.World(ranks, 0)) for ranks in (4, 2))
    started.set_epoch(3)
    resumed.load_state_dict(started.state_dict(step=5))
    figures = resumed.figures()
    assert figures["passes/wiki"] == pytest.approx((3 * 400 + 200) / 4 / 20, abs=0.3)


def test_edits_that_skip_or_exclude_ids_count_what_was_drawn():
    edits = [sk.Edit(at=100, skip=50, without=[500, 501]), sk.Edit(at=200, weights={"web": 1, "wiki": 1})]
    read = loader(sk.Ledger(mixed(3, 1, lanes=1), edits))
    sources = plan(read).sources
    assert sources["wiki"].passes > 400 / 4 / 20
    assert sources["web"].passes == pytest.approx((250 * 0.75 + 200 / 2) / 500, abs=0.02)


def test_nested_mixtures_have_their_sources_by_path_and_other_chains_none():
    data = sk.TreeDataset({"web": Texts([9] * 50), "books": DATA})
    inner = mixed(1, 1, None)
    mix = sk.MixtureSampler({"web": None, "books": inner}, 400, weights={"web": 1, "books": 1}, lanes=1)
    sources = plan(loader(mix, data)).sources
    assert {name: round(one.share, 2) for name, one in sources.items()} == {
        "web": 0.5,
        "books/web": 0.25,
        "books/wiki": 0.25,
    }
    edit = sk.Edit(at=0, weights={"web": 1, "books": 1}, source={"books": inner})
    added = sk.Ledger(sk.MixtureSampler({"web": None}, 400, lanes=1), [edit])
    assert plan(loader(added, data)).sources == sources
    assert plan(loader(sk.RandomSampler(), data)).sources == {}
    restarting = mixed(3, 1, passes="restart")
    assert "passes/web" not in loader(restarting).figures()


@pytest.mark.parametrize("lanes", [3, 8])
def test_the_sources_of_a_nested_mixture_with_another_number_of_lanes_are_counted(lanes):
    data = sk.TreeDataset({"web": Texts([9] * 50), "books": DATA})
    sources = {"web": None, "books": mixed(1, 1, None, lanes=lanes)}
    read = loader(sk.MixtureSampler(sources, 400, weights={"web": 1, "books": 1}, lanes=4), data)
    for _ in read:
        in_web = np.count_nonzero((read.history()[:] >= 50) & (read.history()[:] < 550))
        assert read.figures()["passes/books/web"] == in_web / 500


def test_a_mixture_of_files_has_its_sources_by_number_and_no_tokens_without_lengths():
    run = loader(sk.MixtureSampler([1, 1], 100), sk.Layout([50, 50]))
    assert "tokens/0" not in run.figures()
    shares = [(one.share, one.share_of_tokens, one.passes) for one in plan(run).sources.values()]
    assert shares == [(0.5, None, 1.0)] * 2


@pytest.mark.parametrize("by", ["samples", "tokens"])
def test_a_plan_has_the_shares_of_samples_and_of_tokens(by):
    sources = plan(loader(mixed(3, 1, 4000, by=by, lanes=1))).sources
    shares = [(one.share, one.share_of_tokens) for one in sources.values()]
    expected = [(0.75, 0.9), (0.25, 0.1)] if by == "samples" else [(0.5, 0.75), (0.5, 0.25)]
    np.testing.assert_allclose(shares, expected, atol=0.01)


def test_the_command_plan_shows_what_is_read_of_each_source(printed, tmp_path):
    config = tmp_path / "train.yaml"
    config.write_text(
        """
dataset: {kind: files, reader: npz, files: [a.npz, b.npz], lengths: [500, 20]}
sampler: {kind: mixture, weights: [3, 1], num_samples: 400}
loader: {batch_size: 10}
"""
    )
    output = " ".join(printed("plan", config).split())
    assert "source 1: 25.0 % of the samples; 5.00 passes by the end of the epoch" in output
