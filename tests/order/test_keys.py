"""Where all randomness comes from: hashes, and the integers that they are scaled to."""

from __future__ import annotations

import numpy as np
import pytest

from samplerkit.order.keys import scaled


@pytest.mark.parametrize(
    "total", [1, 2, 3, 10**6, 2**31 - 1, 2**32, 2**32 + 1, 10**12 + 39, 2**62 + 12345, 2**63]
)
def test_a_word_is_scaled_as_integers_of_any_length_would_be(total):
    borders = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 2**32, 2**64 - 1]
    words = np.random.default_rng(total % 1000).integers(0, 2**64, 500, dtype=np.uint64)
    words = np.append(words, np.array(borders, dtype=np.uint64))
    assert scaled(words, total).tolist() == [word * total >> 64 for word in words.tolist()]
