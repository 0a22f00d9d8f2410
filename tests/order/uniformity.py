"""Statistics of permutations: how far from uniform, in standard deviations.

Each function takes permutations of [0, n) and returns scores z, which are about standard normal if the
permutations are uniform and independent. A score far above 0 means that the counts differ too much, one far
below 0 that they are too even to be random.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

LIMIT = 4.0
"""The largest |z| that passes: p = 6e-5, so that a few hundred scores rarely fail by chance."""

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.floating | np.integer]

CLASSES = 32


def chi_square(counts: Counts, expected: Counts | float, freedom: int | None = None) -> float:
    """Scores counts against expected ones; Wilson and Hilferty's cube root makes chi-square normal."""
    freedom = counts.size - 1 if freedom is None else freedom
    statistic = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def ranks(permutations: Ids) -> Ids:
    """Numbers permutations, the rows of an array, from 0 to n! - 1."""
    n = permutations.shape[1]
    result = np.zeros(permutations.shape[0], dtype=np.int64)
    for column in range(n):
        later_and_smaller = permutations[:, column + 1 :] < permutations[:, column : column + 1]
        result = result * (n - column) + later_and_smaller.sum(axis=1)
    return result


def all_permutations(permutations: Ids) -> float:
    """Scores how evenly all n! permutations occur; at least 5 n! rows."""
    cells = math.factorial(permutations.shape[1])
    assert permutations.shape[0] >= 5 * cells
    counts = np.bincount(ranks(permutations), minlength=cells)
    return chi_square(counts, permutations.shape[0] / cells)


def _digits(n: int) -> Iterator[tuple[str, Ids]]:
    """Divides [0, n) into classes: by the leading digits of a number, and by the last ones."""
    ids = np.arange(n)
    yield "leading", ids * CLASSES // n
    yield "last", ids % CLASSES


def _joint(first: Ids, second: Ids) -> Counts:
    return np.bincount(first * CLASSES + second, minlength=CLASSES**2)


def positions(n: int, permutations: Iterable[Ids]) -> dict[str, float]:
    """Scores the ids at positions, by classes of both."""
    digits = dict(_digits(n))
    kinds = [(of_position, of_id) for of_position in digits for of_id in digits]
    counts = {kind: np.zeros(CLASSES**2) for kind in kinds}
    number = 0
    for permutation in permutations:
        number += 1
        for of_position, of_id in kinds:
            counts[of_position, of_id] += _joint(digits[of_position], digits[of_id][permutation])
    scores = {}
    for (of_position, of_id), seen in counts.items():
        sizes = [np.bincount(digits[name], minlength=CLASSES) for name in (of_position, of_id)]
        expected = np.outer(*sizes).ravel() * number / n
        # A permutation fixes the sums of rows and columns.
        scores[f"{of_position} of position, {of_id} of id"] = chi_square(seen, expected, (CLASSES - 1) ** 2)
    return scores


def differences(n: int, permutations: Iterable[Ids], distances: Iterable[int]) -> dict[str, float]:
    """Scores (id at p + distance) - (id at p) modulo n: how often each of the n - 1 differences occurs."""
    counts = {distance: np.zeros(n) for distance in distances}
    for permutation in permutations:
        for distance, seen in counts.items():
            step = permutation[distance:] - permutation[:-distance]
            step[step < 0] += n
            seen += np.bincount(step, minlength=n)
    return {
        f"at distance {distance}": chi_square(seen[1:], seen.sum() / (n - 1))
        for distance, seen in counts.items()
    }


def pairs(n: int, permutations: Iterable[Ids], distances: Iterable[int]) -> dict[str, float]:
    """Scores the pairs of ids at p and at p + distance, modulo n."""
    digits = dict(_digits(n))
    counts = {(distance, name): np.zeros(CLASSES**2) for distance in distances for name in digits}
    number = 0
    for permutation in permutations:
        number += 1
        classes = {name: digits[name][permutation] for name in digits}
        for (distance, name), seen in counts.items():
            seen += _joint(classes[name], np.roll(classes[name], -distance))
    scores = {}
    for (distance, name), seen in counts.items():
        size = np.bincount(digits[name], minlength=CLASSES)
        expected = (np.outer(size, size) - np.diag(size)).ravel() * number / (n - 1)
        scores[f"at distance {distance}, {name}"] = chi_square(seen, expected, (CLASSES - 1) ** 2)
    return scores
