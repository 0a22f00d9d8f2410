"""Pictures show what is read; whether they are readable was checked by eye."""

import re

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.pictures.picture import draw
from samplerkit.inspect.pictures.plot_data import MAX_PARTS, MAX_POINTS, plot_data

LAYOUT = sk.Layout([300] * 8)


def shown(layout=LAYOUT, world=1, **options):
    sampler = sk.DistributedSampler(seed=3, **options)
    loader = sk.Loader(layout, sampler, batch_size=10, world=sk.World(world, 0))
    return plot_data({"run": loader})[0]


def test_the_points_of_an_edited_run_are_what_it_reads_and_a_picture_is_drawn(tmp_path):
    edits = [sk.Edit(at=300, skip=900, global_batch=60), sk.Edit(at=900, without=range(100))]
    loader = sk.Loader(LAYOUT, sk.Ledger(sk.SequentialSampler(), edits), batch_size=10, world=sk.World(3, 0))
    run = plot_data({"run": loader})[0]
    steps, ids, ranks = run.points
    assert steps.max() == 10 + 35 - 1
    assert set(ids[(steps >= 10) & (steps < 30)].tolist()) == set(range(1200, 2400))
    assert ids[steps >= 30].min() == 100
    for step, sample, rank in list(zip(steps.tolist(), ids.tolist(), ranks.tolist(), strict=True))[::97]:
        assert sample in run.view.reading(0, rank).ids(step)
    draw({"run": loader}, tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


@pytest.mark.parametrize(("size", "world"), [(10**12, 1), (10**6, 5000)])
def test_the_points_of_large_runs_are_evenly_spaced(size, world):
    steps, ids, ranks = shown(sk.Layout(size), world, shuffle=False).points
    assert MAX_POINTS / 4 < steps.size <= MAX_POINTS
    assert ids.min() < 0.01 * size
    assert ids.max() > 0.95 * size
    assert np.unique(ranks).size > min(world, 1000) / 2


def test_files_are_read_only_with_themselves_if_blocks_are_inside_files_and_with_all_in_a_full_shuffle():
    trap = shown(shuffle="partial", partial_size=300, lanes=1).together
    assert np.diag(trap).min() > 1.5
    assert (trap[~np.eye(8, dtype=bool)] < 0).all()
    full = shown(shuffle="global").together
    assert np.abs(full).max() < 0.5


def test_a_matrix_of_many_files_joins_neighbours_and_one_without_files_has_parts():
    assert shown(sk.Layout([7] * 200), shuffle="global").together.shape == (MAX_PARTS, MAX_PARTS)
    without = shown(sk.Layout(1000), shuffle="global")
    assert without.together.shape == (32, 32)


def test_files_that_are_empty_have_no_colour():
    together = shown(sk.Layout([300, 0, 300]), shuffle="global").together
    assert np.isnan(together[1]).all()
    assert np.isfinite(together[0, [0, 2]]).all()


def test_files_of_batches_are_counted_and_those_of_a_full_shuffle_expected():
    steps, counts = shown(world=2, shuffle="files").files_of_batches
    assert steps.tolist() == list(range(120))
    assert counts.min() == 1.0
    full = shown(shuffle="global")
    assert abs(full.files_of_batches[1].mean() - full.figures.files_of_a_shuffled_batch) < 0.3


@pytest.mark.parametrize(
    ("layout", "world", "tail"),
    [
        (sk.Layout(3), 1, "pad"),
        (sk.Layout([2, 0, 5]), 4, "pad"),
        (sk.Layout([2, 0, 5]), 4, "drop"),
        (sk.Layout([2, 1]), 4, "ragged"),
        (sk.Layout([0, 0]), 1, "pad"),
    ],
)
def test_runs_of_odd_sizes_can_be_drawn(layout, world, tail, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    loader = sk.Loader(layout, sk.RandomSampler(), batch_size=2, tail=tail, world=sk.World(world, 0))
    draw({"odd": loader}, tmp_path / "odd.png")
    assert (tmp_path / "odd.png").stat().st_size > 10_000


def test_a_page_has_headings_and_captions_as_text_and_pictures_for_light_and_dark_screens(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    loader = sk.Loader(LAYOUT, sk.RandomSampler(), batch_size=10, world=sk.World(2, 0))
    draw({"a < b": loader}, tmp_path / "order.html")
    page = (tmp_path / "order.html").read_text(encoding="utf-8")
    sections = page.split("<figure>")[1:]
    assert len(sections) == 4
    for section in sections:
        # Only the picture scrolls sideways.
        before, picture, after = re.split(r'<div class="wide">|</div>', section)
        assert re.fullmatch(r"\s*<h2>\w.*</h2>\s*", before)
        assert picture.count("data:image/png;base64,") == 2
        assert re.search(r"<figcaption>\w.*</figcaption>", after)
    assert "a &lt; b" in page
    assert "a < b" not in page
    assert "http" not in page
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert "<img alt=" in page


def test_five_runs_are_too_many_and_no_run_is_too_few(tmp_path):
    loader = sk.Loader(LAYOUT, sk.RandomSampler(), batch_size=2)
    for runs in ({}, {str(number): loader for number in range(5)}):
        with pytest.raises(sk.ArgumentValueError, match="must be 1 to 4"):
            draw(runs, tmp_path / "order.png")
