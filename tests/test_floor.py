"""The rows of the table of floors: both sides do the same."""

from __future__ import annotations

from tests.benchmarks.floor_rows import of_starts


def test_a_row_reads_with_and_without_samplerkit():
    for row in of_starts():
        assert [next(make()) for make in (row.ours, row.floor)] == [1, 1]
