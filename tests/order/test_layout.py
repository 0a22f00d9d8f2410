"""Layouts, made from sizes or datasets, and the search for the interval of a value."""

import copy

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.intervals import Offsets, Shifts, interval_of


def test_an_int_is_a_layout_without_files():
    layout = sk.Layout(5)
    assert (len(layout), layout.has_files, layout.num_files, layout.names) == (5, False, 0, None)
    assert layout.file_of(np.array([0, 4])).tolist() == [0, 0]


@pytest.mark.parametrize(
    "sizes", [[3, 0, 2], (3, 0, 2), np.array([3, 0, 2]), np.array([3, 0, 2], dtype=np.uint8), iter([3, 0, 2])]
)
def test_sizes_may_be_any_sequence_of_integers(sizes):
    layout = sk.Layout(sizes)
    assert (len(layout), layout.has_files, layout.num_files) == (5, True, 3)
    assert layout.sizes.tolist() == [3, 0, 2]
    assert layout.starts.tolist() == [0, 3, 3, 5]
    assert layout.file_of(np.arange(5)).tolist() == [0, 0, 0, 2, 2]


def test_layouts_are_equal_if_sizes_names_and_the_presence_of_files_are():
    same = [sk.Layout([2, 3], ["a", "b"]), sk.Layout(np.array([2, 3]), ("a", "b"))]
    others = [sk.Layout([2, 3]), sk.Layout([3, 2], ["a", "b"]), sk.Layout([2, 3], ["a", "c"]), sk.Layout(5)]
    assert same[0] == same[1]
    assert hash(same[0]) == hash(same[1])
    assert all(same[0] != other for other in others)
    assert len({*same, *others}) == 5
    assert sk.Layout([5]) != sk.Layout(5)
    assert sk.Layout(5) != 5


def test_a_layout_is_immutable():
    sizes = np.array([1, 2])
    layout = sk.Layout(sizes)
    sizes[0] = 9
    assert layout.sizes.tolist() == [1, 2]
    for array in (layout.sizes, layout.starts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_repr_shows_the_sizes():
    assert repr(sk.Layout(5)) == "Layout(5)"
    assert repr(sk.Layout([2, 3])) == "Layout([2, 3])"
    assert repr(sk.Layout([1] * 9)) == "Layout(<9 files, 9 samples>)"


def test_the_largest_layout_has_2_to_the_62_samples():
    assert len(sk.Layout(2**62)) == 2**62
    assert sk.Layout([2**61, 2**61]).file_of(np.array([2**61 - 1, 2**61])).tolist() == [0, 1]


class WithLayout:
    layout = sk.Layout([2, 2])

    def __len__(self):
        return 99


def test_the_layout_of_a_dataset_is_found():
    layout = sk.Layout([1, 2])
    assert sk.Layout.of(layout) is layout
    assert sk.Layout.of(7) == sk.Layout(7)
    assert sk.Layout.of(np.int64(7)) == sk.Layout.of(torch.tensor(7)) == sk.Layout(7)
    assert sk.Layout.of("abc") == sk.Layout(3)
    assert sk.Layout.of(range(10)) == sk.Layout(10)
    assert sk.Layout.of(WithLayout()) is WithLayout.layout


@pytest.mark.parametrize("borders", [1, 6, 40, 3000, 9000], ids=lambda number: f"{number} borders")
@pytest.mark.parametrize("spread", ["evenly", "in one place", "far apart"])
def test_intervals_equal_those_of_a_binary_search(borders, spread):
    generator = np.random.default_rng(borders)
    last = {"evenly": 10**6, "in one place": 10**9, "far apart": 2**62}[spread]
    inner = generator.integers(1, 10**4 if spread == "in one place" else last, borders)
    starts = np.sort(np.append(inner, [0, last]))
    values = np.append(
        generator.integers(0, last, 4090), [0, 1, starts[1] - 1, starts[1], last - 1, last - 1]
    )
    expected = np.searchsorted(starts, values, side="right") - 1
    assert np.array_equal(Offsets(starts[1:]).passed(values), expected)
    assert np.array_equal(Offsets(starts[1:]).passed(values[:9]), expected[:9])
    assert np.array_equal(interval_of(starts, values), expected)
    assert np.array_equal(interval_of(starts, np.sort(values)), np.sort(expected))


@pytest.mark.parametrize(
    "widths", [[3, 0, 5], [100_000] * 11, [1, 9_999] * 9, [7] * 300, [0, 1 << 40, 3, 0, 1 << 50]]
)
def test_values_are_shifted_with_their_interval_whatever_is_cached(widths):
    generator = np.random.default_rng(3)
    starts = np.append(0, np.cumsum(widths))
    by = generator.integers(0, 1 << 60, len(widths)) - starts[:-1]
    shifts, borders = Shifts(starts, by), np.concatenate([starts[:-1], np.maximum(starts[1:] - 1, 0)])
    for low, high in [(0, starts[-1]), (starts[-1] // 3, starts[-1] // 2 + 1), (0, starts[-1])]:
        values = np.append(generator.integers(low, high, 5000), borders[(low <= borders) & (borders < high)])
        expected = values + by[np.searchsorted(starts, values, side="right") - 1]
        assert np.array_equal(shifts.moved(values), expected)
        assert np.array_equal(copy.copy(shifts).moved(values[:50]), expected[:50])
