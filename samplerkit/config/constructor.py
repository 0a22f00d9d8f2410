"""A constructor that a config calls by a name: its arguments, and the table in which it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
from pydantic import BaseModel, ValidationError

from samplerkit.config.derive import (
    argument_names,
    arguments_of,
    default_of,
    derived_model,
    holds_samplers,
)
from samplerkit.config.error_messages import from_constructor, from_pydantic, require_mapping, unknown_key
from samplerkit.config.nested import Named, SectionOf
from samplerkit.config.paths import Folder, joined
from samplerkit.config.redaction import below, meant, resembling, scrubbed
from samplerkit.errors import ArgumentValueError, ConfigError, SamplerkitError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler


class SamplerChain(NamedTuple):
    """A chain of samplers that was read from a config.

    Args:
        sampler: the outermost one.
        section: of a config, in its plainest spelling.
        places: the path of each link, in the order of `Sampler._tree`.
    """

    sampler: Sampler
    section: dict[str, Any]
    places: list[str]

    def make(self) -> Sampler:
        """Returns the sampler."""
        return self.sampler


ChainReader = Callable[[Any, str, Folder], SamplerChain]


@final
@dataclass(frozen=True)
class Constructor:
    """A class or a function, its name in a config, and the model of its arguments.

    Example:
        >>> import samplerkit as sk
        >>> from pathlib import Path
        >>> sequential = Constructor.of("sequential", sk.SequentialSampler)
        >>> sequential.read({"start_index": 2}, "sampler", Path()).make()
        SequentialSampler(start_index=2, num_samples=None)
        >>> sequential.read({"start": 2}, "child", Path())
        Traceback (most recent call last):
        samplerkit.errors.ConfigError: child.start: is no key of sequential, got 2; did you mean start_index?
    """

    name: str
    make: Callable[..., Any]
    model: type[BaseModel]

    @classmethod
    def of(
        cls,
        name: str,
        make: Callable[..., Any],
        written: Mapping[str, Any] = MappingProxyType({}),
        section: str = "config",
    ) -> Constructor:
        """Derives the model from the signature; `written` and `section` are as for `derived_model`.

        Raises:
            ArgumentTypeError: a parameter cannot be given by name, or its hint cannot be understood.
        """
        return cls(name, make, derived_model(make, name, written, section))

    @property
    def names(self) -> list[str]:
        """The names of the arguments."""
        return argument_names(self.model)

    @cached_property
    def trees(self) -> list[str]:
        """The arguments that are samplers by name: each a chain of its own in a config."""
        return [name for name in self.names if holds_samplers(self.model, name)]

    @cached_property
    def sections(self) -> dict[str, Constructor]:
        """The arguments that are sections of their own, by name."""
        return {
            name: Constructor.of(mark.name, mark.make)
            for name, mark in self._marks()
            if isinstance(mark, SectionOf)
        }

    @cached_property
    def named(self) -> dict[str, Kinds]:
        """The arguments that are mappings of names to sections, and the kinds that these may be."""
        return {name: mark.kinds for name, mark in self._marks() if isinstance(mark, Named)}

    def _marks(self) -> Iterator[tuple[str, Any]]:
        fields = zip(self.names, self.model.model_fields.values(), strict=True)
        return ((name, mark) for name, field in fields for mark in field.metadata)

    def read(
        self,
        section: dict[str, Any],
        place: str,
        folder: Folder,
        *,
        also: tuple[str, ...] = (),
        chains: ChainReader | None = None,
    ) -> Call:
        """Reads the arguments that a config gives.

        Args:
            section: the arguments and nothing else.
            place: the path of the section.
            folder: what relative paths start from.
            also: further keys that may stand beside the arguments, for the suggestion.
            chains: reads a chain of samplers, where arguments may be such.

        Raises:
            ConfigError: a key is unknown or missing, or has a value of the wrong type.
        """
        if not section.keys() <= set(self.names):
            raise unknown_key(place, section, [*self.names, *also], self.name)
        inner: dict[str, Any] = {}
        for name, constructor in self.sections.items():
            given, where = section.get(name), below(place, name)
            if isinstance(given, dict):
                inner[name] = constructor.read(given, where, folder, chains=chains)
            elif isinstance(given, list) and all(isinstance(entry, dict) for entry in given):
                inner[name] = [
                    constructor.read(entry, below(where, number), folder, chains=chains)
                    for number, entry in enumerate(given)
                ]
        for name, kinds in self.named.items():
            given, where = section.get(name), below(place, name)
            if isinstance(given, dict):
                inner[name] = {
                    key: kinds.read(part, below(where, key), folder) for key, part in given.items()
                }
        trees: dict[str, dict[str, SamplerChain | None]] = {
            name: {
                key: None if one is None else chains(one, below(place, name, key), folder)
                for key, one in section[name].items()
            }
            for name in self.trees
            if chains is not None and isinstance(section.get(name), dict)
        }
        inner |= trees
        section = {**section, **{name: _each(calls, _MADE) for name, calls in inner.items()}}
        try:
            validated = self.model.model_validate(section, context={"folder": folder})
        except ValidationError as error:
            raise from_pydantic(place, error, section, self.name) from None
        given = arguments_of(validated)
        written = {
            name: _each(inner[name], _WRITTEN if name in self.sections else _SECTION)
            if name in inner
            else _as_written(section[name], value, folder)
            for name, value in given.items()
            if not _same(value, default_of(self.model, name))
        }
        chained = [tree for one in trees.values() for _, tree in sorted(one.items()) if tree is not None]
        return Call(self, place, given, written, [path for tree in chained for path in tree.places])


@final
@dataclass(frozen=True)
class Call:
    """A constructor with the arguments that a config gives it.

    Args:
        constructor: what to call.
        place: the path of the section that gives the arguments.
        arguments: by name; the others are left to the constructor.
        written: the same as plain data for a config; arguments that are as by default are left out.
        branches: the paths of the samplers in arguments that are chains, in the order of `Sampler._tree`.
    """

    constructor: Constructor
    place: str
    arguments: dict[str, Any]
    written: dict[str, Any]
    branches: list[str] = field(default_factory=list)

    @property
    def section(self) -> dict[str, Any]:
        """The section of a config that says the same, with its kind."""
        return {"kind": self.constructor.name, **self.written}

    def make(self) -> Any:
        """Calls the constructor.

        Raises:
            ConfigError: the constructor refuses an argument.
        """
        try:
            return self.constructor.make(**self.arguments)
        except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError) as error:
            # By these a constructor refuses arguments; anything else is a fault in it, and says so itself.
            names, of = self.constructor.names, self.constructor.name
            made = from_constructor(self.place, error, names, of, self.arguments)
            is_told = not isinstance(error, SamplerkitError) and scrubbed(str(error), self.arguments) == str(
                error
            )
            raise made from (error if is_told else None)


_MADE, _WRITTEN, _SECTION = methodcaller("make"), attrgetter("written"), attrgetter("section")


def _each(calls: Any, get: Callable[[Any], Any]) -> Any:
    """Gets an attribute of a section, or of each in a list or a mapping."""
    if isinstance(calls, dict):
        return {name: None if call is None else get(call) for name, call in calls.items()}
    return [get(call) for call in calls] if isinstance(calls, list) else get(calls)


def _as_written(raw: Any, value: Any, folder: Folder) -> Any:
    if isinstance(value, Shuffle):
        return value.value
    if isinstance(raw, str) and isinstance(value, np.ndarray):
        return joined(folder, raw)
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str)):
        return value  # a path, which starts from the working directory now
    return raw.tolist() if isinstance(raw, np.ndarray) else raw


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, Shuffle):
        default = Shuffle.parse(default) if isinstance(default, str | bool) else default
    return type(value) is type(default) and bool(value == default)


_Make = TypeVar("_Make", bound=Callable[..., Any])
RESERVED = frozenset({"kind", "child", "_target_", "class_path", "init_args"})
"""Keys of a section that are no arguments of the constructor."""


@final
class Kinds:
    """A table of constructors by the name under which a section's `kind` picks one.

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

    def add(
        self, name: str, make: Callable[..., Any], written: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Adds a kind; `written` is as for `derived_model`.

        Raises:
            ArgumentTypeError: the name is no string, or the signature cannot be written in a config.
            ArgumentValueError: the name is taken or empty, or an argument is called like a key of the config.
        """
        if arguments.word("kind", name) in self._constructors:
            raise ArgumentValueError(
                "kind", f"is taken by {self[name].make!r}", name, hint="use another name"
            )
        constructor = Constructor.of(name, make, written, self.section)
        for argument in constructor.names:
            if argument in RESERVED:
                raise ArgumentValueError(
                    argument, "means something else in a config", make, hint="rename the argument"
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
            raise ConfigError(where, "is missing", hint=f"write for instance {self.example}")
        kind = given.pop("kind")
        if not isinstance(kind, str) or kind not in self._constructors:
            hint = meant(kind, self)
            raise ConfigError(
                where, f"is no kind of {self.section}", resembling(where, kind, hint), hint=hint
            )
        return self[kind], given

    def read(self, section: Any, place: str, folder: Folder) -> Call:
        """Picks the constructor of a section, and reads its arguments.

        Raises:
            ConfigError: the section is no mapping, its `kind` is not known, or an argument is wrong.
        """
        constructor, given = self.choose(section, place)
        return constructor.read(given, place, folder, also=("kind",))

    def __getitem__(self, name: str) -> Constructor:
        return self._constructors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._constructors)
