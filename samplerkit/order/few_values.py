"""A few values through the network of a permutation, in plain integers: sooner than calls of numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

FEW: Final = 4
"""So many values are sooner permuted one by one."""


def permuted_few(network: Any, values: list[int], *, inverse: bool) -> Iterator[int]:
    """Permutes some values, as `order.permutation` does many.

    Args:
        network: the `Network` of one permutation of [0, n).
        values: each in [0, n).
        inverse: whether they are led back.
    """
    size, modulus, bits = int(network.size), int(network.modulus), int(network.bits)
    width, sign = network.size.dtype.itemsize * 8, -1 if inverse else 1
    word, mask = (1 << width) - 1, (1 << bits) - 1
    rounds = [*enumerate(zip(map(int, network.factors), map(int, network.terms), strict=True))][::sign]
    for value in values:
        while True:
            left, right = value >> bits, value & mask
            for step, (factor, term) in rounds:
                if step % 2:
                    right ^= (left * factor + term & word) >> width - bits
                    continue
                mixed = right * factor + term & word
                mixed = (mixed * mixed & word) >> width // 2 - 1
                left = (left + sign * (mixed * modulus >> width // 2 + 1)) % modulus
            value = left << bits | right  # noqa: PLW2901  # one that is outside is walked on
            if value < size:
                break
        yield value
