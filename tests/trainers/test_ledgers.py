"""The counting itself: it finds what is lost, repeated, dealt twice and read again."""

from __future__ import annotations

import json

import pytest

from tests.trainers.ledgers import Ledger


def written(folder, ranks):
    """Writes the ledgers of ranks, each a list of (start, epoch, step, ids)."""
    for rank, lines in enumerate(ranks):
        names = ("start", "epoch", "step", "ids")
        rows = [json.dumps(dict(zip(names, line, strict=True))) for line in lines]
        (folder / f"rank-{rank}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return Ledger.read(folder, samples=4)


@pytest.mark.parametrize(
    ("ranks", "lost", "repeated"),
    [
        pytest.param([[(0, 0, 0, [0, 1])], [(0, 0, 0, [2, 3])]], [0], [0], id="each once"),
        pytest.param([[(0, 0, 0, [0, 1])], [(0, 0, 0, [2])]], [1], [0], id="one lost"),
        pytest.param([[(0, 0, 0, [0, 1])], [(0, 0, 0, [2, 3, 3])]], [0], [1], id="one repeated"),
        pytest.param([[(0, 0, 0, [0])], [(0, 0, 0, [2])]], [2], [0], id="dealt twice"),
        pytest.param([[(0, 0, 0, [0, 1, 2, 3])], [(0, 0, 0, [0, 1, 2, 3])]], [0], [4], id="not dealt"),
    ],
)
def test_what_is_lost_and_repeated_is_counted_an_epoch(tmp_path, ranks, lost, repeated):
    ledger = written(tmp_path, ranks)
    assert (ledger.lost, ledger.repeated) == (lost, repeated)


def test_what_a_later_run_received_again_counts_once(tmp_path):
    first = [(0, 0, 0, [0]), (0, 0, 1, [1])]
    second = [(1, 0, 1, [2, 1, 3])]
    ledger = written(tmp_path, [first + second, [(0, 0, 0, [1]), (0, 0, 1, [3])]])
    assert [line.ids for line in ledger.replayed] == [(1,), (3,)]
    assert ledger.ranks == [2, 1]
    assert (ledger.lost, ledger.repeated) == ([0], [1])
    assert ledger.order(0) == [0, 1, 2, 1, 3]


def test_ranks_take_turns_in_the_order_of_an_epoch(tmp_path):
    ledger = written(tmp_path, [[(0, 0, 0, [0, 2])], [(0, 0, 0, [1])]])
    assert ledger.order(0) == [0, 1, 2]
