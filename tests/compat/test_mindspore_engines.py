"""The random engines, draws and shuffles below MindSpore's orders, against loops and the standard."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.compat.mindspore.generators import MinstdRand0, Mt19937, canonical
from samplerkit.compat.mindspore.shuffle import shuffle, weighted_draws

GENERATORS = [Mt19937, MinstdRand0]


def words(generator):
    """The generator's words, one by one."""
    while True:
        yield from generator.peek(1000).tolist()
        generator.skip(1000)


def one_integer(stream, span, size):
    """`std::uniform_int_distribution` of libstdc++ 9, written as a loop."""
    scale = span // size
    while True:
        word = next(stream)
        if word < size * scale:
            return word // scale


def shuffled_by_a_loop(size, stream, span):
    """`std::shuffle` of libstdc++ 9, written as a loop."""
    items = list(range(size))

    def swap(i, j):
        items[i], items[j] = items[j], items[i]

    if size < 2:
        return items
    if span // size < size:
        for i in range(1, size):
            swap(i, one_integer(stream, span, i + 1))
        return items
    i = 1
    if size % 2 == 0:
        swap(i, one_integer(stream, span, 2))
        i += 1
    while i < size:
        both = one_integer(stream, span, (i + 1) * (i + 2))
        swap(i, both // (i + 2))
        swap(i + 1, both % (i + 2))
        i += 2
    return items


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 100, 101, 46339, 46340, 46341, 65535, 65536, 65537])
def test_a_shuffle_equals_that_of_a_loop(kind, size):
    # Around the square root of the span, one word stops serving two swaps, and most words are thrown away.
    generator, reference = kind(7), kind(7)
    words_of_loop = words(reference)
    assert shuffle(size, generator).tolist() == shuffled_by_a_loop(size, words_of_loop, kind.span)
    assert generator.peek(1)[0] == next(words_of_loop)


def test_more_elements_than_words_are_refused():
    with pytest.raises(sk.NotSupportedError, match="shuffle"):
        shuffle(2**31, MinstdRand0(1))


def test_weighted_draws_in_chunks_equal_those_of_one_search():
    weights = np.random.default_rng(0).random(1000)
    borders = np.cumsum(weights / np.cumsum(weights)[-1])
    borders[-1] = 1.0
    expected = np.searchsorted(borders, canonical(Mt19937(4), 100_000), side="left")
    assert np.array_equal(weighted_draws(weights, 100_000, Mt19937(4)), expected)
