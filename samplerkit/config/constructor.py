"""A constructor that a config calls by a name: its arguments, and the table in which it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, final

import numpy as np
from pydantic import BaseModel, ValidationError

from samplerkit.batches.recipe import is_same
from samplerkit.config.derive import TABLES, Made, arguments_of, default_of, derived_model
from samplerkit.config.error_messages import (
    below,
    from_constructor,
    from_pydantic,
    meant,
    require_mapping,
    resembling,
    scrubbed,
    unknown_key,
)
from samplerkit.config.reading import Folder
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, ConfigError, SamplerkitError
from samplerkit.names import PUBLIC, found
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.modes import Shuffle


@final
@dataclass(frozen=True)
class Constructor:
    """A class or a function, its name in a config, and the model of its arguments.

    Args:
        name: in a config.
        of: the class or function; or its public name, and then it is imported when a config names it.
        written: what is written for arguments whose types do not say it; None for what is not written.
        section: of the config, by which the schema distinguishes two models of one name.
        example: of a section, for one that is no mapping.
        beside: keys of a section that are no arguments; `kind` is among them in a table of kinds.

    Example:
        >>> import samplerkit as sk
        >>> from pathlib import Path
        >>> sequential = Constructor("sequential", sk.SequentialSampler)
        >>> sequential.read({"start_index": 2}, "sampler", Path()).value
        SequentialSampler(start_index=2)
        >>> sequential.read({"start": 2}, "child", Path())
        Traceback (most recent call last):
        samplerkit.errors.ConfigError: child.start: is no key of sequential, got 2; did you mean start_index?
    """

    name: str
    of: Callable[..., Any] | str
    written: Mapping[str, Any] = field(default_factory=dict)
    section: str = "config"
    example: str = ""
    beside: tuple[str, ...] = ()

    @cached_property
    def make(self) -> Callable[..., Any]:
        """The class or function."""
        if not isinstance(self.of, str):
            return self.of
        module, _, name = self.of.rpartition(".")
        made: Callable[..., Any] = found(module or PUBLIC[name], name)
        return made

    @property
    def target(self) -> str:
        """The name of the class that Hydra and LightningCLI write: of ours the public one."""
        of = self.of
        return f"samplerkit.{of}" if isinstance(of, str) else f"{of.__module__}.{of.__qualname__}"

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model of the arguments, from the signature.

        Raises:
            ArgumentTypeError: a parameter cannot be given by name, or its hint cannot be understood.
        """
        return derived_model(self.make, self.name, self.written, self.section)

    @property
    def names(self) -> list[str]:
        """The names of the arguments, in the constructor's order."""
        return [str(argument.alias) for argument in self.model.model_fields.values()]

    def read(self, section: Any, place: str, folder: Folder) -> Made:
        """Reads the arguments that a config gives, and calls the constructor.

        Args:
            section: the arguments and nothing else.
            place: the path of the section.
            folder: what relative paths start from.

        Raises:
            ConfigError: the section is no mapping; a key is unknown or missing, or has a value of the wrong
                type; or the constructor refuses an argument.
        """
        section = require_mapping(section, place, self.example)
        if not section.keys() <= set(self.names):
            raise unknown_key(place, section, [*self.names, *self.beside], self.name)
        try:
            validated = self.model.model_validate(section, context={"folder": folder, "place": place})
        except ValidationError as error:
            mistake = from_pydantic(place, error, section, self.name)
            raise mistake from mistake.__cause__
        given: dict[str, Any] = {}
        written: dict[str, Any] = {"kind": self.name} if "kind" in self.beside else {}
        places = [place]
        for name, value in arguments_of(validated).items():
            raw = section[name]
            as_it_is = raw.tolist() if isinstance(raw, np.ndarray) else raw
            made = value if isinstance(value, Made) else Made(value, as_it_is)
            given[name] = made.value
            places += made.places
            if not _same(made.value, default_of(self.model, name)):
                written[name] = made.written
        return Made(self._called(place, given), written, places)

    def _called(self, place: str, given: dict[str, Any]) -> Any:
        try:
            return self.make(**given)
        except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError) as error:
            # By these a constructor refuses arguments; anything else is a fault in it, and says so itself.
            made = from_constructor(place, error, self.names, self.name, given)
            is_told = not isinstance(error, SamplerkitError) and scrubbed(str(error), given) == str(error)
            raise made from (error if is_told else None)


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, Shuffle):
        default = Shuffle.parse(default) if isinstance(default, str | bool) else default
    return is_same(value, default)


RESERVED = frozenset({"kind", "child", "_target_", "class_path", "init_args"})
"""Keys of a section that are no arguments of the constructor."""


class Kinds(dict[str, Constructor]):
    """A table of constructors by the name under which a section's `kind` picks one.

    Args:
        section: of a config.
        example: of a section.
        base: what classes of a user's must be; None where there are none.
        beside: as for a `Constructor`.

    Example:
        >>> shapes = Kinds("shape", example="{kind: point}")
        >>> def point(x: int = 0) -> int:
        ...     return x
        >>> shapes.add("point", point)
        >>> constructor, given = shapes.choose({"kind": "point", "x": 3}, "shape")
        >>> constructor.name, given
        ('point', {'x': 3})
    """

    def __init__(
        self, section: str, *, example: str, base: Any = None, beside: tuple[str, ...] = ("kind",)
    ) -> None:
        self.section, self.example, self.base, self.beside = section, example, base, beside
        super().__init__()
        TABLES[section] = self

    def add(
        self, name: str, of: Callable[..., Any] | str, written: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Adds a kind, as a `Constructor` describes it."""
        self[name] = Constructor(name, of, written, self.section, beside=self.beside)

    def register(self, name: str, made: Any = None) -> Any:
        """Adds a class of a user's; without one, gives a decorator.

        Raises:
            ArgumentTypeError: no subclass of the base, the name is no string, or the signature cannot be
                written in a config.
            ArgumentValueError: the name is taken or empty, or an argument is called like a key of the config.
        """
        if made is None:
            return partial(self.register, name)
        if not (isinstance(made, type) and issubclass(made, self.base)):
            problem = f"must be a subclass of samplerkit.{self.base.__name__}"
            raise ArgumentTypeError(self.section, problem, made)
        if arguments.word("kind", name) in self:
            problem = f"is taken by {self[name].make!r}"
            raise ArgumentValueError("kind", problem, name, hint="use another name")
        constructor = Constructor(name, made, section=self.section, beside=self.beside)
        for argument in RESERVED.intersection(constructor.names):
            problem = "means something else in a config"
            raise ArgumentValueError(argument, problem, made, hint="rename the argument")
        self[name] = constructor
        return made

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
        if not isinstance(kind, str) or kind not in self:
            hint = meant(kind, self)
            raise ConfigError(
                where, f"is no kind of {self.section}", resembling(where, kind, hint), hint=hint
            )
        return self[kind], given

    def read(self, section: Any, place: str, folder: Folder) -> Made:
        """Picks the constructor of a section, and reads its arguments.

        Raises:
            ConfigError: the section is no mapping, its `kind` is not known, or an argument is wrong.
        """
        constructor, given = self.choose(section, place)
        return constructor.read(given, place, folder)
