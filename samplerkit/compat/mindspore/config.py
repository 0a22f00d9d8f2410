"""The seed that MindSpore's samplers share."""

from samplerkit.order import arguments

DEFAULT_SEED = 5489
"""The default seed. MindSpore has the same default, but replaces it by a random seed."""

_seed = DEFAULT_SEED


def set_seed(seed: int) -> None:
    """Sets the seed of all samplers of `samplerkit.compat.mindspore` that are made from now on.

    Args:
        seed: an integer in [0, 2^32).

    Raises:
        ArgumentTypeError: `seed` is not an integer.
        ArgumentValueError: `seed` is out of range.

    Source: `mindspore.dataset.config.set_seed`.

    Example:
        >>> set_seed(1000)
        >>> get_seed()
        1000
    """
    global _seed  # noqa: PLW0603  # MindSpore's interface is a seed of the process
    _seed = arguments.below("seed", seed, 2**32, "must be in [0, 2^32)")


def get_seed() -> int:
    """Returns the seed that was set last."""
    return _seed
