"""A tree is a layout: its files are those of its parts, and different trees are different layouts."""

import itertools
import pickle

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order.layout import MAX_DEPTH

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
