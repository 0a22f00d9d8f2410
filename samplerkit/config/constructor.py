"""Constructors that a config calls by name, and tables of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from samplerkit.batches.recipe import is_default
from samplerkit.config.derive import TABLES, Parsed, arguments_of, default_of, derived_model
from samplerkit.config.error_messages import (
    below,
    from_constructor,
    from_pydantic,
    require_known_keys,
    require_mapping,
    scrub,
    unknown_name,
)
from samplerkit.config.reading import Folder
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, ConfigError, SamplerkitError
from samplerkit.names import PUBLIC, load
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.modes import Shuffle


@dataclass(frozen=True)
class Constructor:
    """A class or a function, its name in a config, and the model of its arguments.

    Args:
        name: the name in a config.
        of: the class or function; or its public name, which is imported when a config first uses it.
        written: the types that a config writes for arguments whose hints do not define them; None for an
            argument that a config cannot set.
        section: the section of the config; the schema distinguishes models of the same name by it.
        example: an example of the section, for the error if a section is not a mapping.
        extra_keys: keys of a section that are not arguments, such as `kind` in a table of kinds.

    Example:
        >>> import samplerkit as sk
        >>> from pathlib import Path
        >>> sequential = Constructor("sequential", sk.SequentialSampler)
        >>> sequential.read({"start_index": 2}, "sampler", Path()).value
        SequentialSampler(start_index=2)
        >>> sequential.read({"start": 2}, "one", Path())
        Traceback (most recent call last):
        samplerkit.errors.ConfigError: one.start: is not a key of sequential, got 2; did you mean start_index?
    """

    name: str
    of: Callable[..., Any] | str
    written: Mapping[str, Any] = field(default_factory=dict)
    section: str = "config"
    example: str = ""
    extra_keys: tuple[str, ...] = ()

    @cached_property
    def make(self) -> Callable[..., Any]:
        """The class or function."""
        if not isinstance(self.of, str):
            return self.of
        module, _, name = self.of.rpartition(".")
        imported: Callable[..., Any] = load(module or PUBLIC[name], name)
        return imported

    @property
    def target(self) -> str:
        """The class name in configs of Hydra and LightningCLI; the public name for samplerkit's classes."""
        of = self.of
        return f"samplerkit.{of}" if isinstance(of, str) else f"{of.__module__}.{of.__qualname__}"

    @cached_property
    def model(self) -> type[BaseModel]:
        """The pydantic model of the arguments, derived from the signature.

        Raises:
            ArgumentTypeError: a parameter cannot be given by name, or its type hint cannot be understood.
        """
        return derived_model(self.make, self.name, self.written, self.section)

    @property
    def names(self) -> list[str]:
        """The names of the arguments, in the constructor's order."""
        return [str(argument.alias) for argument in self.model.model_fields.values()]

    def read(self, section: Any, place: str, folder: Folder) -> Parsed:
        """Reads the arguments in a section of a config, and calls the constructor.

        Args:
            section: the arguments, without other keys.
            place: the path of the section.
            folder: the folder from which relative paths start.

        Raises:
            ConfigError: the section is not a mapping; a key is unknown or missing, or has a value of the
                wrong type; or the constructor refuses an argument.
        """
        section = require_mapping(section, place, self.example)
        require_known_keys(place, section, self.names, self.name, self.extra_keys)
        try:
            validated = self.model.model_validate(section, context={"folder": folder, "place": place})
        except ValidationError as error:
            mistake = from_pydantic(place, error, section, self.name)
            raise mistake from mistake.__cause__
        given: dict[str, Any] = {}
        written: dict[str, Any] = {"kind": self.name} if "kind" in self.extra_keys else {}
        places = [place]
        for name, value in arguments_of(validated).items():
            raw = section[name]
            plain = raw.tolist() if isinstance(raw, np.ndarray) else raw
            entry = value if isinstance(value, Parsed) else Parsed(value, plain)
            given[name] = entry.value
            places += entry.places
            if not _same(entry.value, default_of(self.model, name)):
                written[name] = entry.written
        return Parsed(self._call(place, given), written, places)

    def _call(self, place: str, given: dict[str, Any]) -> Any:
        try:
            return self.make(**given)
        except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError) as error:
            # A constructor refuses arguments with these; any other exception is a bug and passes unchanged.
            mistake = from_constructor(place, error, self.names, self.name, given)
            is_shown = not isinstance(error, SamplerkitError) and scrub(str(error), given) == str(error)
            raise mistake from (error if is_shown else None)


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, Shuffle):
        default = Shuffle.parse(default) if isinstance(default, str | bool) else default
    return is_default(value, default)


RESERVED = frozenset({"kind", "child", "_target_", "class_path", "init_args"})
"""Keys of a section that are not arguments of the constructor."""


class Kinds(dict[str, Constructor]):
    """A table of constructors by kind.

    Args:
        section: the name of the config section.
        example: an example of the section, for errors.
        base: the base class of a user's classes; None if users cannot register classes.
        extra_keys: as for a `Constructor`.

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
        self, section: str, *, example: str, base: Any = None, extra_keys: tuple[str, ...] = ("kind",)
    ) -> None:
        self.section, self.example, self.base, self.extra_keys = section, example, base, extra_keys
        TABLES[section] = self

    def add(
        self, name: str, of: Callable[..., Any] | str, written: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Adds a kind; the arguments are those of `Constructor`."""
        self[name] = Constructor(name, of, written, self.section, extra_keys=self.extra_keys)

    def register(self, name: str, cls: Any) -> None:
        """Adds a user's class.

        Raises:
            ArgumentTypeError: the class is not a subclass of the base, the name is not a string, or the
                signature cannot be written in a config.
            ArgumentValueError: the name is taken or empty, or an argument is named like a key of a section.
        """
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            problem = f"must be a subclass of samplerkit.{self.base.__name__}"
            raise ArgumentTypeError(self.section, problem, cls)
        if arguments.word("kind", name) in self:
            problem = f"is taken by {self[name].make!r}"
            raise ArgumentValueError("kind", problem, name, hint="use another name")
        constructor = Constructor(name, cls, section=self.section, extra_keys=self.extra_keys)
        for argument in RESERVED.intersection(constructor.names):
            raise ArgumentValueError(argument, "has another meaning in a config", cls, hint="rename it")
        self[name] = constructor

    def choose(self, section: Any, place: str) -> tuple[Constructor, dict[str, Any]]:
        """Finds the constructor of a section.

        Returns:
            The constructor, and the section without its `kind`.

        Raises:
            ConfigError: the section is not a mapping, or its `kind` is missing or unknown.
        """
        given = dict(require_mapping(section, place, self.example))
        where = below(place, "kind")
        if "kind" not in given:
            raise ConfigError(where, "is missing", hint=f"write for instance {self.example}")
        kind = given.pop("kind")
        if not isinstance(kind, str) or kind not in self:
            raise unknown_name(where, f"is not a kind of {self.section}", kind, self)
        return self[kind], given

    def read(self, section: Any, place: str, folder: Folder) -> Parsed:
        """Finds the constructor of a section, reads its arguments and calls it.

        Raises:
            ConfigError: the section is not a mapping, its `kind` is unknown, or an argument is wrong.
        """
        constructor, given = self.choose(section, place)
        return constructor.read(given, place, folder)
