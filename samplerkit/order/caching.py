"""Caches without locks, since a forked process could wait for a lock for ever."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar, overload

_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):  # noqa: N801  # used as a decorator, like property
    """Computes a property when it is first read, and keeps it in the object.

    Up to Python 3.11, the one in `functools` holds one lock for all objects of a class: a process that is
    forked while another thread computes would wait for it for ever. Here two threads may both compute the
    value, and the first one is kept.

    Args:
        compute: the decorated method.

    Example:
        >>> class Shelf:
        ...     @cached_property
        ...     def books(self) -> list[str]:
        ...         return ["Dune"]
        >>> shelf = Shelf()
        >>> shelf.books is shelf.books
        True
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[_Value] | _Value:
        if instance is None:
            return self
        value: _Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value


class Latest(Generic[_Value]):
    """A cache of the values that were computed last, such as the orders of two epochs; pickled without them.

    Several threads may use it at the same time.

    Args:
        size: the number of values that are cached at most.

    Example:
        >>> squares = Latest[int](2)
        >>> [squares.get(number, lambda: number**2) for number in (1, 2, 3, 2)], dict(squares.items())
        ([1, 4, 9, 4], {2: 4, 3: 9})
    """

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self._cached: dict[Hashable, _Value] = {}

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Returns the value of a key: the cached one, otherwise that of `make`."""
        cached = self._cached
        if key in cached:  # a table only grows, until another one replaces it
            return cached[key]
        value, cached = make(), self._cached
        if len(cached) >= self._size:
            # Half of them at a time: to remove a single one would also copy all others.
            cached = self._cached = dict([*cached.copy().items()][(self._size + 1) // 2 :])
        cached[key] = value
        return value

    def items(self) -> Iterable[tuple[Any, _Value]]:
        """Returns the cached keys and values."""
        return self._cached.copy().items()

    def clear(self) -> None:
        """Drops all values."""
        self._cached = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_size": self._size, "_cached": {}}
