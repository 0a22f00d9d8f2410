"""The links of a chain: what draws from what, shown, copied and pickled link by link."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from samplerkit.errors import CompositionError

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

    def branches(self) -> dict[str, Any]:
        """Gives what stands beside the chain below this link, by name and sorted: sources of a mixture."""
        return {}

    def _tree(self: _AnyLinked, above: tuple[Any, ...] = ()) -> Iterator[_AnyLinked]:
        """The links of the chain and of all that branches off, from this one on; `above` branched to it."""
        for link in self._links():
            if above and any(link is one for one in above):
                # No value: what holds itself is shown without end.
                mend = "give it a sampler that does not hold it"
                raise CompositionError(type(link).__name__, "is a source of itself", mend=mend)
            yield link
            for branch in link.branches().values():
                yield from branch._tree((*above, link))

    def arguments(self) -> dict[str, Any]:
        """Gives the constructor's arguments by name, as they were understood."""
        return {name: getattr(self, name, None) for name in _argument_names(type(self).__init__)}

    def __repr__(self) -> str:
        return " <- ".join(link._described() for link in self._links())

    def _described(self) -> str:
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({shown})"

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


@lru_cache(256)
def _argument_names(constructor: Callable[..., None]) -> tuple[str, ...]:
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    return tuple(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def class_name(kind: type) -> str:
    """Names a class as states do: one of the user's with its module."""
    is_ours = kind.__module__.startswith("samplerkit.")
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


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


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"<{value.size} values>"
    try:
        return repr(value.tolist() if isinstance(value, np.ndarray) else value)
    except ValueError:  # Python writes no integers of more than 4300 digits
        return f"<{type(value).__name__}>"
