"""Keyed permutations and hashes as torch operations: the same integers as numpy's, on any device.

torch has no arithmetic of unsigned words on every device. Signed words of 64 bits do: their sums and products
wrap around, so that the low bits of a result hang on the low bits of what goes in alone. So the low 32 or 64
bits of a signed word hold an unsigned one, whatever stands above them, and a shift to the right that is
followed by a mask is one without a sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from samplerkit.order.keys import Key
from samplerkit.order.permutation import (
    NARROW_LIMIT,
    ROUNDS,
    TABLE_LIMIT,
    Network,
    half_modular_domain,
    table,
    word_count,
)
from samplerkit.order.typing import Words


def signed(words: Words, device: torch.device) -> torch.Tensor:
    """Puts unsigned words of 64 bits on a device, as the signed ones of the same bits."""
    return torch.from_numpy(words.astype(np.uint64).view(np.int64)).to(device)


def shifted_(values: torch.Tensor, bits: int, width: int) -> torch.Tensor:
    """Shifts the low `width` bits of values to the right, without their sign and in place."""
    return values.bitwise_right_shift_(bits).bitwise_and_((1 << (width - bits)) - 1)


@dataclass(frozen=True, eq=False)
class TableOn:
    """A permutation whose table lies on a device.

    Args:
        values: int64 tensor of shape (n,).
    """

    values: torch.Tensor

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        """Gives the values at positions, both int64 tensors of shape (m,)."""
        return self.values[positions]


@dataclass(frozen=True, eq=False)
class NetworkOn:
    """The Feistel network of one permutation of [0, size) as torch operations; see `order.permutation`.

    Args:
        size: n.
        modulus: a, the size of the left half.
        bits: b, the width of the right half.
        width: the bits of a word, 32 or 64.
        factors: the odd constants of the rounds, int64 tensor of shape (8,).
        terms: the other ones, likewise.
    """

    size: int
    modulus: int
    bits: int
    width: int
    factors: torch.Tensor
    terms: torch.Tensor

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        """Gives the values at positions in [0, n), both int64 tensors of shape (m,).

        Where some fall outside of [0, n) at first, how many do is asked of the device: one number, no id.
        """
        values = self._around(positions)
        if self.modulus << self.bits == self.size:
            return values
        outside = torch.nonzero(values >= self.size).reshape(-1)
        while outside.numel():
            again = self._around(values[outside])
            values[outside] = again
            outside = outside[again >= self.size]
        return values

    def _around(self, values: torch.Tensor) -> torch.Tensor:
        """Permutes the values of the domain, a * 2^b of them, once around."""
        width = self.width
        left, right = values >> self.bits, values & ((1 << self.bits) - 1)
        for step in range(ROUNDS):
            mixed = (right if step % 2 == 0 else left) * self.factors[step]
            mixed += self.terms[step]
            if step % 2:
                right ^= shifted_(mixed, width - self.bits, width)
                continue
            mixed *= mixed
            shifted_(mixed, width // 2 - 1, width).mul_(self.modulus)
            left += shifted_(mixed, width // 2 + 1, width)
            # A difference below zero has all bits above the modulus set: with them, it is added again.
            left -= self.modulus
            torch.bitwise_right_shift(left, 63, out=mixed)
            left += mixed.bitwise_and_(self.modulus)
        return left.bitwise_left_shift_(self.bits).bitwise_or_(right)


def permutation_on(size: int, key: Key, device: torch.device) -> TableOn | NetworkOn:
    """Puts a keyed permutation of [0, size) on a device.

    Args:
        size: n.
        key: where its randomness comes from.
        device: where it is evaluated.
    """
    words = key.words(word_count(size))
    if size <= TABLE_LIMIT:
        return TableOn(torch.from_numpy(table(size, words)).to(device))
    network, (modulus, bits) = Network.of(size, words), half_modular_domain(size)
    factors, terms = (signed(np.stack(constants), device) for constants in (network.factors, network.terms))
    return NetworkOn(size, modulus, bits, 32 if size < NARROW_LIMIT else 64, factors, terms)
