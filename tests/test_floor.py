"""The table of floors: the worst ratio first, with its reason where it is above what is wanted."""

from __future__ import annotations

from itertools import count

from tests.benchmarks import floor
from tests.benchmarks.floor_rows import Row, calls_of, of_starts


def summed(numbers):
    return calls_of(lambda _: sum(range(numbers)), count, 1)


def test_the_worst_ratio_comes_first_and_has_its_reason(monkeypatch):
    monkeypatch.setattr(floor, "memory_of", lambda make: 1.0)
    rows = [
        Row("as fast", "call", summed(2000), summed(2000), "a sum", reason="none is needed", target=3.0),
        Row("slow", "call", summed(40_000), summed(2000), "a sum", summed(20_000), "peer", reason="it adds"),
    ]
    lines = floor.table(floor.measured(row, rounds=3) for row in rows).splitlines()[2:]
    assert lines[0].startswith("| slow, call |")
    assert lines[0].endswith("| it adds |")
    assert "peer: " in lines[0]
    assert lines[1].endswith("|  |")


def test_a_row_reads_with_and_without_samplerkit():
    for row in of_starts():
        assert [make()() for make in (row.ours, row.floor)] == [1, 1]
