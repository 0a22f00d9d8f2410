"""Draws: randomness belongs to a position of an epoch's order, which neither a resume nor a rank changes."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Self, TypeVar
from weakref import ref

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order.arguments import integer
from samplerkit.order.typing import Ids

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Draw:
    """One draw of a sample.

    Args:
        seed: of the order, in [0, 2^64).
        epoch: the epoch, from 0.
        position: in the undealt order of that epoch. Pads have positions of their own, after its end.

    Example:
        >>> Draw(7, 0, 123).rng().integers(100) == Draw(7, 0, 123).rng().integers(100)
        np.True_
    """

    seed: int
    epoch: int
    position: int

    def digest(self, role: str, size: int) -> bytes:
        """Returns `size` random bytes, at most 64, for a role: a name of at most 16 ASCII characters."""
        content = struct.pack("<QQQ", self.seed, self.epoch, self.position)
        salt = role.encode("ascii")
        return hashlib.blake2b(content, digest_size=size, salt=salt, person=b"samplerkit").digest()

    def rng(self, role: str = "draw") -> np.random.Generator:
        """Makes the generator of this draw for a role, in its initial state."""
        key = np.frombuffer(self.digest(role, 16), dtype="<u8")
        return np.random.Generator(np.random.Philox(key=key))


@dataclass(eq=False, repr=False)
class Draws:
    """The draws of a batch that is being read in one thread: inside its `with` block, `draw_rng` uses them.

    Args:
        seed: of the order.
        epoch: the epoch.
        positions: of the samples, in the order of the batch.
        enters_alone: whether the dataset enters the draw of each sample itself; otherwise `draw_rng` needs
            the place in the batch.
        begin: called with each draw that is entered; if it is set, every sample must be entered.

    Attributes:
        entered: the place in the batch of the sample that is being read; None if it is not known.
    """

    seed: int
    epoch: int
    positions: Sequence[int] | np.ndarray[Any, Any]
    _: KW_ONLY
    enters_alone: bool = False
    begin: Callable[[Draw], None] | None = None

    def __post_init__(self) -> None:
        self.entered: int | None = None
        self._rngs: dict[int, np.random.Generator] = {}

    def __enter__(self) -> Self:
        # A weak reference: an exception in a signal handler may prevent `__exit__`, and these draws must not
        # stay current then.
        self._token = _current_draws.set(ref(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current_draws.reset(self._token)

    def draw(self, place: int) -> Draw:
        """Returns the draw of the sample at a place of the batch."""
        return Draw(self.seed, self.epoch, int(self.positions[place]))

    def of(self, places: Ids, *, enters_alone: bool) -> Draws:
        """Returns the draws of some samples of the batch, which are read as a separate batch.

        Args:
            places: of these samples in the batch.
            enters_alone: as for the class.
        """
        return replace(self, positions=np.asarray(self.positions)[places], enters_alone=enters_alone)

    def enter(self, place: int | None) -> None:
        """Begins the draw of a sample and ends the previous draw; None only ends the previous draw."""
        self.entered = place
        if self.begin is not None and place is not None:
            self.begin(self.draw(place))

    def rng(self, place: int | None) -> np.random.Generator:
        """Returns the generator of a draw: the same object while the batch is read.

        Args:
            place: in the batch; None for the sample that is being read.

        Raises:
            ArgumentTypeError: `place` is not an integer.
            ArgumentValueError: no place is given, and it is not known which sample is being read.
            OutOfDatasetError: there is no such place.
        """
        entered = self.entered
        if place is not None:
            place = integer("place", place)
            size = len(self.positions) if entered is None else 1
            if not 0 <= place < size:
                raise OutOfDatasetError("place", f"must be in [0, {size}), the samples read here", place)
            # A sample that is read alone is a batch of one.
            entered = place if entered is None else entered
        if entered is None:
            hint = "draw_rng(i) is for the i-th id that __getitems__ got"
            raise ArgumentValueError("place", "must be given where a batch is read as a whole", hint=hint)
        rng = self._rngs.get(entered)
        if rng is None:
            rng = self._rngs[entered] = self.draw(entered).rng()
        return rng


_current_draws: Final[ContextVar[Callable[[], Draws | None]]] = ContextVar(
    "samplerkit_draws", default=lambda: None
)


def draw_rng(place: int | None = None) -> np.random.Generator:
    """Returns the random generator of the draw that is being read; for datasets that a `Loader` reads.

    A draw is a position of an epoch's order. Its generator depends only on the seed of the sampler, the epoch
    and that position: not on ranks, workers, batches, or where the run was resumed. So a sample that is drawn
    twice in an epoch has two generators, and a pad has another one. While a sample is read, all calls return
    the same generator object, so further calls continue its sequence of random numbers.

    Args:
        place: in `__getitems__`, the index of an id in the list that it received; left out in `__getitem__`
            and in the functions of a `TarDataset`.

    Returns:
        A numpy generator (Philox).

    Raises:
        DatasetError: no sample is being read: the call is outside of a `Loader`, or in a thread that the
            dataset started.
        ArgumentTypeError: `place` is not an integer.
        ArgumentValueError: a batch is read as a whole, and no place is given.
        OutOfDatasetError: the batch has no such place.

    Example:
        >>> import samplerkit as sk
        >>> class Noisy:
        ...     def __len__(self):
        ...         return 5
        ...
        ...     def __getitem__(self, index):
        ...         return index, int(sk.draw_rng().integers(1000))
        >>> loader = sk.Loader(Noisy(), sk.SubsetSampler([3, 3, 3]), batch_size=3)
        >>> ids, noise = next(iter(loader))
        >>> ids.tolist(), len(set(noise.tolist()))
        ([3, 3, 3], 3)
    """
    draws = _current_draws.get()()
    if draws is None:
        hint = "call it in a dataset that samplerkit.Loader reads, in the reading thread, or use sample_rng"
        raise DatasetError("draw_rng", "no sample is being read here", hint=hint)
    return draws.rng(place)


def entered_draws(size: int) -> Draws | None:
    """Returns the draws of the batch that is being read, if the caller must enter each of its `size` samples.

    Otherwise None.
    """
    draws = _current_draws.get()()
    if draws is None or not draws.enters_alone or draws.entered is not None:
        return None
    return draws if size == len(draws.positions) else None


def in_draws(
    read: Callable[[Item], Result], items: Iterable[Item], places: Sequence[int], size: int
) -> list[Result]:
    """Calls a function for each of some samples of a batch, within the draw of that sample.

    For datasets that run the user's code sample by sample, and have `enters_draws = True`. If `entered_draws`
    returns None, the function is called directly.

    Args:
        read: the function.
        items: its argument for each sample.
        places: of these samples in the batch.
        size: the number of samples of the whole batch.
    """
    draws = entered_draws(size)
    if draws is None:
        return [read(item) for item in items]
    results = []
    try:
        for item, place in zip(items, places, strict=True):
            draws.enter(place)
            results.append(read(item))
    finally:
        draws.enter(None)
    return results
