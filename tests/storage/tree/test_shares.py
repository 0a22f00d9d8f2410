"""A part is told its own ids of what comes; who looks for them rests where other parts have nearly all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplerkit.order.layout import Layout
from samplerkit.storage.ahead.uses import NEVER, Uses
from samplerkit.storage.tree_leaves import MAX_SCANNED, Share

batches = st.lists(st.lists(st.integers(0, 9), max_size=4).map(np.array), max_size=8)


@given(batches, st.integers(0, 10), st.integers(0, 10))
def test_a_share_is_what_a_walk_over_the_batches_finds(upcoming, one, other):
    begin, end = sorted((one, other))
    expected = [[id - begin for id in ids.tolist() if begin <= id < end] for ids in upcoming]
    found = [ids.tolist() for ids in Share(iter(upcoming), begin, end)]
    assert found == [ids for ids in expected if ids]


class Counting:
    """Batches of the first part, with a sample of the second every so often; counts those asked for."""

    def __init__(self, every, size=256):
        self.every, self.size, self.asked = every, size, 0

    def __iter__(self):
        while True:
            self.asked += 1
            ids = np.zeros(self.size, dtype=np.int64)
            if self.asked % self.every == 0:
                ids[-1] = 1 + self.asked // self.every % 8
            yield ids


@pytest.mark.parametrize("every", [1, 300])
def test_who_looks_for_the_files_of_a_rare_part_goes_a_bounded_way_at_a_time(every):
    upcoming = Counting(every)
    one_file_a_sample = Layout([1] * 8)
    uses = Uses(Share(iter(upcoming), 1, 9), one_file_a_sample.file_of, num_files=8)
    assert upcoming.asked <= 2 * MAX_SCANNED // upcoming.size + 1
    for step in range(1, 20):
        before = upcoming.asked
        uses.begin(np.array([step % 8]))  # what comes next of the part
        assert uses.next_use(step % 8, after=-1) < NEVER
        # Never further than to what is read now, and a bounded way beyond.
        assert upcoming.asked <= max(before, step * every) + 2 * MAX_SCANNED // upcoming.size + 1
    assert uses.is_valid
    assert uses.upcoming_files()
    assert upcoming.asked > 19 * every
