"""Real jobs that are edited, killed before, between and after the edits, and resume."""

import json
from collections import Counter, defaultdict

import pytest

import samplerkit as sk
from tests.campaigns import edited_job as edited
from tests.ranks import job

pytestmark = pytest.mark.campaign

LENGTH = edited.LENGTH
STARTS = {"web": 0, "code": 4000, "books": 6500}


def run_job(folder, run, ranks, *options):
    code, printed, errors = job(ranks, "tests.campaigns.edited_job", folder, run, *options, seconds=240)
    return code, printed + errors


def source_of(sample):
    return max((name for name, start in STARTS.items() if start <= sample), key=STARTS.get)


def received(folder, runs):
    """The samples of all ranks by the position of their step; those that a later run reads count once."""
    steps = {}
    for run in runs:
        of_run = defaultdict(list)
        for path in folder.glob(f"{run}-*.jsonl"):
            for line in map(json.loads, path.read_text().splitlines()):
                of_run[line["from"]] += line["ids"]
        steps = {at: ids for at, ids in steps.items() if at < min(of_run)} | of_run
    return dict(sorted(steps.items()))


def wrong_steps(folder, read):
    """The positions of steps that differ from those of a run that has all edits and never stops."""
    recipe, data = edited.recipe(folder / "edits.jsonl"), sk.Layout.tree(edited.PARTS)
    expected = [sample for epoch in (0, 1) for sample in recipe.order(data, epoch)[:].tolist()]
    assert sum(map(len, read.values())) == len(expected)
    return [at for at, ids in read.items() if sorted(ids) != sorted(expected[at : at + len(ids)])]


def skipped_in_the_first_epoch(samples):
    """How many samples are missing in each lane of each source, which has one gap."""
    turns = defaultdict(set)
    for sample in samples:
        name = source_of(sample)
        turn, lane = divmod(sample - STARTS[name], edited.LANES)
        turns[name, lane].add(turn)
    missing = [sorted({*range(max(seen))} - seen) for seen in turns.values()]
    assert all(gap == [*range(gap[0], gap[-1] + 1)] for gap in missing if gap)
    return sum(map(len, missing))


def test_a_run_that_is_edited_and_killed_with_other_ranks_each_time_loses_and_repeats_nothing(tmp_path):
    """Killed before the first edit is made, before it holds, between the edits, and after both.

    In the second epoch, before samples leave, and where steps have grown.
    """
    kills = {"a": (2, 240), "b": (4, 456), "c": (3, 816), "d": (2, 1152)}
    kills |= {"e": (4, 2856), "f": (3, 3600), "g": (2, None)}
    for run, (ranks, kill) in kills.items():
        options = [] if kill is None else ["--kill", str(kill)]
        code, printed = run_job(tmp_path, run, ranks, *options)
        assert (code == 0) == (kill is None), printed
    read = received(tmp_path, kills)
    assert wrong_steps(tmp_path, read) == []
    # The effects of the edits, counted without the package.
    first = [sample for at, ids in read.items() if at < LENGTH for sample in ids]
    assert (len(first), len({*first}), skipped_in_the_first_epoch(first)) == (2400, 2400, 480)
    for begin, end, shares in (
        (0, edited.CHANGED_AT, edited.BEFORE),
        (edited.CHANGED_AT, edited.SKIPPED_AT, edited.AFTER),
        (edited.SKIPPED_AT, LENGTH, edited.AFTER),
    ):
        counts = Counter(source_of(sample) for sample in first[begin:end])
        # Each of 4 lanes is within a few samples of a source's share, as the bound of independent draws says.
        assert all(abs(counts[name] - share * (end - begin)) <= 4 * 6 for name, share in shares.items())
    after_removal = [sample for at, ids in read.items() if at >= edited.THINNED_AT for sample in ids]
    assert not {*after_removal} & {*range(0, 6500, 3)}
    sizes = [
        Counter(len(ids) for at, ids in read.items() if begin <= at < end)
        for begin, end in (
            (LENGTH, edited.GROWN_AT),
            (edited.GROWN_AT, edited.SHRUNK_AT),
            (edited.SHRUNK_AT, 2 * LENGTH),
        )
    ]
    assert sizes == [{24: 40}, {48: 20}, {12: 40}]
    # The control: a wrong sample is noticed.
    read[4788][0] += 1
    assert wrong_steps(tmp_path, read) == [4788]
