"""Keys: where all randomness comes from.

A key is a value: the seed, the epoch, the depth in the chain and a role. Its words are blake2b over
fixed-width little-endian integers: different keys have independent words, and a key has the same words with
every version of Python, numpy and torch.
"""

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from samplerkit.order.typing import Ids, Words

ALGORITHM = "samplerkit-1"
"""The versioned id of the default algorithm. A change of any order is a new id, and the old one stays."""

_WORDS_PER_DIGEST = 8
_SIX_WORDS = struct.Struct("<QQQQQQ")
_PERSON = ALGORITHM.encode("ascii")
# Arrays without dimensions: a numpy function takes them a third quicker than scalars.
_GOLDEN_GAMMA, _MIX_1, _MIX_2, _BY_30, _BY_27, _BY_31 = (
    np.array(number, dtype=np.uint64)
    for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 30, 27, 31)
)


@dataclass(frozen=True)
class Key:
    """The source of randomness for one role in one epoch.

    Args:
        seed: the sampler's seed, 0 <= seed < 2^64.
        epoch: the epoch, from 0.
        depth: the sampler's place in the chain; the one that reads the dataset has depth 0.
        role: what the randomness is for, at most 16 ASCII characters.

    Example:
        >>> Key(seed=7, epoch=0, depth=0, role="global").words(1)[0] != Key(7, 1, 0, "global").words(1)[0]
        np.True_
    """

    seed: int
    epoch: int
    depth: int
    role: str

    def words(self, count: int, index: int = 0, sub_index: int = 0) -> Words:
        """Returns random words, different ones for each pair of indices.

        Args:
            count: the number of words.
            index: for example the number of a file or lane.
            sub_index: for example the number of a block in that lane.

        Returns:
            uint64 array of shape (count,).
        """
        salt, words = self.role.encode("ascii"), b""
        for part in range(-(-count // _WORDS_PER_DIGEST)):
            message = _SIX_WORDS.pack(self.seed, self.epoch, self.depth, index, sub_index, part)
            words += hashlib.blake2b(message, digest_size=64, salt=salt, person=_PERSON).digest()
        return np.frombuffer(words, dtype="<u8", count=count).astype(np.uint64)

    def hashes(self, counters: Ids, index: int = 0) -> Words:
        """Returns an independent random word for each counter: `keyed_hash` by the words of an index."""
        return keyed_hash(self.words(3, index), counters)


def path_number(path: tuple[str, ...]) -> int:
    """Returns a number for a path of names in a tree: 0 for the root, otherwise a digest of 64 bits."""
    if not path:
        return 0
    names = b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in path)
    digest = hashlib.blake2b(names, digest_size=8, salt=b"path", person=ALGORITHM.encode("ascii"))
    return int.from_bytes(digest.digest(), "little")


def keyed_hash(words: Words, counters: Ids) -> Words:
    """Hashes counters to independent uniform words: two keyed rounds of the splitmix64 finaliser.

    Args:
        words: uint64 array of shape (3,), from `Key.words`.
        counters: non-negative int64 array of any shape.

    Returns:
        uint64 array of the shape of `counters`.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
    """
    mixed = counters.astype(np.uint64)
    mixed *= _GOLDEN_GAMMA
    mixed += words[0]
    for word in words[1:3]:
        mixed ^= mixed >> _BY_30
        mixed *= _MIX_1
        mixed ^= mixed >> _BY_27
        mixed *= _MIX_2
        mixed ^= mixed >> _BY_31
        mixed ^= word
    return mixed


def scaled(words: Words, total: int) -> Ids:
    """Maps uniform words to uniform integers in [0, total): the high half of the 128-bit product.

    Args:
        words: uint64 array.
        total: 1 <= total <= 2^63. The bias is at most total / 2^64.

    Returns:
        int64 array of the shape of `words`.
    """
    low_half = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    total_high, total_low = np.uint64(total >> 32), np.uint64(total & 0xFFFFFFFF)
    words_high, words_low = words >> half, words & low_half
    middle = (words_low * total_low >> half) + words_high * total_low
    carry = (middle & low_half) + words_low * total_high
    high: Words = words_high * total_high + (middle >> half) + (carry >> half)
    return high.astype(np.int64)
