"""A property that is computed once, safe to use while other threads fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final, overload

_Value = TypeVar("_Value")


@final
class once(Generic[_Value]):  # noqa: N801  # used as a decorator, like property
    """Computes a property when it is first read, and keeps it in the object.

    That of `functools` holds a lock up to Python 3.11, one for all objects of a class: a process forked while
    another thread computes would wait for it for ever. Here two threads may both compute; the first value is
    kept.

    Args:
        compute: the method that it decorates.

    Example:
        >>> class Shelf:
        ...     @once
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
    def __get__(self, instance: None, owner: type) -> once[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance: object | None, owner: type) -> once[_Value] | _Value:
        if instance is None:
            return self
        value: _Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
