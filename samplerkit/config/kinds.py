"""The kinds that a section of a config can be of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, final

from samplerkit.config.constructor import Constructor
from samplerkit.config.mistakes import require_mapping
from samplerkit.config.place import below, meant
from samplerkit.config.private import resembling
from samplerkit.errors import ArgumentValueError, ConfigError
from samplerkit.order import arguments

_Make = TypeVar("_Make", bound=Callable[..., Any])
RESERVED = frozenset({"kind", "child", "_target_", "class_path", "init_args"})
"""Keys of a section that are no arguments of the constructor."""


@final
class Kinds:
    """A table of constructors by the name under which a section's `kind` picks one.

    Args:
        section: the name of the section.
        example: how such a section is written, for errors.

    Example:
        >>> shapes = Kinds("shape", example="{kind: point}")
        >>> @shapes.kind("point")
        ... def point(x: int = 0) -> int:
        ...     return x
        >>> constructor, given = shapes.choose({"kind": "point", "x": 3}, "shape")
        >>> constructor.name, given
        ('point', {'x': 3})
    """

    def __init__(self, section: str, *, example: str) -> None:
        self.section = section
        self.example = example
        self._constructors: dict[str, Constructor] = {}

    def add(self, name: str, make: Callable[..., Any]) -> None:
        """Adds a kind.

        Raises:
            ArgumentTypeError: the name is no string, or the signature cannot be written in a config.
            ArgumentValueError: the name is taken or empty, or an argument is called like a key of the config.
        """
        if arguments.word("kind", name) in self._constructors:
            raise ArgumentValueError(
                "kind", f"is taken by {self[name].make!r}", name, mend="use another name"
            )
        constructor = Constructor.of(name, make)
        for argument in constructor.names:
            if argument in RESERVED:
                raise ArgumentValueError(
                    argument, "means something else in a config", make, mend="rename the argument"
                )
        self._constructors[name] = constructor

    def kind(self, name: str) -> Callable[[_Make], _Make]:
        """Adds what it decorates."""

        def added(make: _Make) -> _Make:
            self.add(name, make)
            return make

        return added

    def choose(self, section: Any, place: str) -> tuple[Constructor, dict[str, Any]]:
        """Picks the constructor of a section.

        Returns:
            The constructor, and the section without its `kind`.

        Raises:
            ConfigError: no mapping, or its `kind` is missing or unknown.
        """
        given = dict(require_mapping(section, place, self.example))
        where = below(place, "kind")
        if "kind" not in given:
            raise ConfigError(where, "is missing", mend=f"write for instance {self.example}")
        kind = given.pop("kind")
        if not isinstance(kind, str) or kind not in self._constructors:
            hint = meant(kind, self)
            raise ConfigError(
                where, f"is no kind of {self.section}", resembling(where, kind, hint), mend=hint
            )
        return self[kind], given

    def __getitem__(self, name: str) -> Constructor:
        return self._constructors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._constructors)
