"""The links of a chain: what draws from what, copied and pickled link by link."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

_AnyLinked = TypeVar("_AnyLinked", bound="Linked")


class Linked:
    """Something that may have a child, which may have one in its turn, to any depth."""

    _child: Any = None

    def _links(self: _AnyLinked) -> list[_AnyLinked]:
        """The links from this one down to the one without a child."""
        links = [self]
        while links[-1]._child is not None:
            links.append(links[-1]._child)
        return links

    def __copy__(self) -> Any:
        copied = _without_child(self)
        if self._child is not None:
            copied._child = self._child
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._child is None:
            return super().__reduce_ex__(protocol)
        # Pickle and deepcopy recurse from parent to child, and a chain may be deeper than their stack.
        return _chained, (tuple(_without_child(link) for link in self._links()),)


def _without_child(link: Linked) -> Any:
    """Copies a link as `copy.copy` would, but for its child."""
    reduced: Any = object.__reduce_ex__(link, 4)
    make, given, state, *_ = reduced
    made: Any = make(*given)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        # What has slots gives two mappings.
        for part in state if isinstance(state, tuple) else (state,):
            for name, value in (part or {}).items():
                object.__setattr__(made, name, value)
    made.__dict__.pop("_child", None)
    return made


def _chained(links: Sequence[Any]) -> Any:
    """Makes a chain of links without children, the outermost first."""
    for parent, child in pairwise(links):
        parent._child = child
    return links[0]
