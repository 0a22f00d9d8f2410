"""Layouts, made from sizes, datasets or trees, and the search for the interval of a value."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order.intervals import Offsets, Shifts, interval_of
from samplerkit.order.layout import MAX_DEPTH


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


Layout = sk.Layout

flat = st.one_of(
    st.integers(0, 9),
    st.lists(st.integers(0, 4), max_size=4),
    st.lists(st.integers(0, 4), min_size=1, max_size=3).map(
        lambda sizes: (sizes, [f"f{n}" for n in range(len(sizes))])
    ),
).map(lambda given: Layout(*given) if isinstance(given, tuple) else Layout(given))
trees = st.recursive(
    flat,
    lambda parts: st.dictionaries(st.text("ab/", min_size=1, max_size=2), parts, min_size=1, max_size=3).map(
        Layout.tree
    ),
)


def walked(layout):
    """Walks through the files of a layout: yields path and size of each."""
    if layout.parts:
        for name, part in layout.parts.items():
            for path, size in walked(part):
                yield f"{name}/{path}" if path else name, size
    elif layout.has_files:
        yield from zip(layout.names or map(str, range(layout.num_files)), layout.sizes.tolist(), strict=True)
    else:
        yield "", len(layout)


@settings(max_examples=40)
@given(trees)
def test_the_files_of_a_tree_are_those_of_its_parts_one_after_another(layout):
    if not layout.parts:
        assert (layout.part_starts.tolist(), layout.leaves) == ([0], (((), layout),))
        return
    files = list(walked(layout))
    assert layout.sizes.tolist() == [size for _, size in files]
    assert layout.names == tuple(path for path, _ in files)
    assert layout.part_starts.tolist() == [0, *itertools.accumulate(map(len, layout.parts.values()))]
    assert sum((leaf.num_files if leaf.has_files else 1) for _, leaf in layout.leaves) == layout.num_files
    for path, leaf in layout.leaves:
        part = layout
        for name in path:
            part = part.parts[name]
        assert part is leaf


@settings(max_examples=40)
@given(trees, trees)
def test_layouts_and_their_descriptions_are_equal_exactly_if_their_trees_are(one, other):
    def as_lists(layout):
        if layout.parts:
            return [(name, as_lists(part)) for name, part in layout.parts.items()]
        return (layout.has_files, layout.sizes.tolist(), layout.names)

    is_same = as_lists(one) == as_lists(other)
    assert (one == other) is is_same
    assert (describe_dataset(one) == describe_dataset(other)) is is_same
    again = pickle.loads(pickle.dumps(one))  # noqa: S301  # our own bytes
    assert (again, hash(again), repr(again)) == (one, hash(one), repr(one))


def test_trees_of_the_same_files_are_different_layouts_with_different_descriptions():
    en, de = Layout([3, 4]), Layout([2])
    same_files = [
        Layout([3, 4, 2]),
        Layout([3, 4, 2], ["a/0", "a/1", "b/0"]),
        Layout.tree({"a": en, "b": de}),
        Layout.tree({"a": en, "c": de}),
        Layout.tree({"a": en, "b": 2}),
        Layout.tree({"a": Layout([3, 4], ["0", "1"]), "b": de}),
        Layout.tree({"a": Layout([3]), "b": Layout([4, 2])}),
        Layout.tree({"a": 3, "b": 4, "c": 2}),
        Layout.tree({"b": 4, "a": 3, "c": 2}),
        Layout.tree({"a": Layout.tree({"b": en}), "b": de}),
        Layout.tree({"a/b": en, "b": de}),
        Layout.tree({"a": Layout.tree({"b": en, "c": de})}),
        Layout.tree({"a": Layout.tree({"b": en}), "c": de}),
    ]
    assert all(one != other for one, other in itertools.combinations(same_files, 2))
    assert len({describe_dataset(layout) for layout in same_files}) == len(same_files)


def test_a_part_may_be_a_number_a_layout_a_dataset_or_a_concatenation():
    parts = {
        "n": np.int64(2),
        "data": "abc",
        "concat": torch.utils.data.ConcatDataset(["ab", "c"]),
        "none": 0,
    }
    layout = Layout.tree(parts)
    assert layout.sizes.tolist() == [2, 3, 2, 1, 0]
    assert layout.file_of(np.array([0, 2, 5, 7])).tolist() == [0, 1, 2, 3]
    assert layout.names == ("n", "data", "concat/0", "concat/1", "none")
    assert Layout.of(layout) is layout


def test_the_layout_of_a_concatenation_keeps_its_description():
    concat = torch.utils.data.ConcatDataset([range(3), range(4)])
    assert Layout.of(concat) == Layout([3, 4])
    assert (
        describe_dataset(concat) == describe_dataset(Layout([3, 4])) == "7 samples, 2 files, 97ebb718e8af2c8e"
    )
    assert not Layout.of(concat).parts


def test_repr_shows_the_parts():
    tree = Layout.tree({"a": Layout.tree({"b": 1}), "c": Layout([2])})
    assert repr(tree) == "Layout.tree({'a': Layout.tree({'b': Layout(1)}), 'c': Layout([2])})"
    many = Layout.tree({str(number): [0] * number for number in range(9)})
    assert repr(many) == "Layout.tree(<9 parts, 9 files, 36 samples>)"


def test_a_tree_cannot_be_changed():
    given = {"a": 1}
    tree = Layout.tree(given)
    given["b"] = 2
    assert list(tree.parts) == ["a"]
    with pytest.raises(TypeError):
        tree.parts["b"] = Layout(2)
    with pytest.raises(ValueError, match="read-only"):
        tree.part_starts[0] = 1


def test_nesting_is_limited_below_the_recursion_limit():
    tree = Layout(1)
    for _ in range(MAX_DEPTH):
        tree = Layout.tree({"a": tree})
    assert (len(tree), tree.names) == (1, ("/".join(["a"] * MAX_DEPTH),))
    assert pickle.loads(pickle.dumps(tree)) == tree  # noqa: S301  # our own bytes
    with pytest.raises(sk.ArgumentValueError, match="nested more than 64 deep"):
        Layout.tree({"a": tree})
