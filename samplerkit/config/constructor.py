"""A constructor that a config calls by a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from pydantic import BaseModel, ValidationError

from samplerkit.config.derive import argument_names, arguments_of, default_of, derived_model
from samplerkit.config.folder import Folder, joined
from samplerkit.config.mistakes import from_constructor, from_pydantic, unknown_key
from samplerkit.config.place import below
from samplerkit.config.private import scrubbed
from samplerkit.config.section import Section
from samplerkit.errors import SamplerkitError
from samplerkit.order.once import once
from samplerkit.order.shuffle import Shuffle


@final
@dataclass(frozen=True)
class Constructor:
    """A class or a function, its name in a config, and the model of its arguments.

    Args:
        name: what errors and the schema call it.
        make: makes the live object.
        model: of the arguments.

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
    def of(cls, name: str, make: Callable[..., Any]) -> Constructor:
        """Derives the model from the signature.

        Raises:
            ArgumentTypeError: a parameter cannot be given by name, or its hint cannot be understood.
        """
        return cls(name, make, derived_model(make, name))

    @property
    def names(self) -> list[str]:
        """The names of the arguments."""
        return argument_names(self.model)

    @once
    def sections(self) -> dict[str, Constructor]:
        """The arguments that are sections of their own, by name."""
        marks = (
            (name, mark)
            for name, field in zip(self.names, self.model.model_fields.values(), strict=True)
            for mark in field.metadata
        )
        return {
            name: Constructor.of(mark.name, mark.make) for name, mark in marks if isinstance(mark, Section)
        }

    def read(
        self, section: dict[str, Any], place: str, folder: Folder, *, also: tuple[str, ...] = ()
    ) -> Call:
        """Reads the arguments that a config gives.

        Args:
            section: the arguments and nothing else.
            place: the path of the section.
            folder: what relative paths start from.
            also: further keys that may stand beside the arguments, for the suggestion.

        Raises:
            ConfigError: a key is unknown or missing, or has a value of the wrong type.
        """
        if not section.keys() <= set(self.names):
            raise unknown_key(place, section, [*self.names, *also], self.name)
        inner = {
            name: constructor.read(section[name], below(place, name), folder)
            for name, constructor in self.sections.items()
            if isinstance(section.get(name), dict)
        }
        section = {**section, **{name: call.make() for name, call in inner.items()}}
        try:
            validated = self.model.model_validate(section, context={"folder": folder})
        except ValidationError as error:
            raise from_pydantic(place, error, section, self.name) from None
        given = arguments_of(validated)
        written = {
            name: inner[name].written if name in inner else _as_written(section[name], value, folder)
            for name, value in given.items()
            if not _same(value, default_of(self.model, name))
        }
        return Call(self, place, given, written)


@final
@dataclass(frozen=True)
class Call:
    """A constructor with the arguments that a config gives it.

    Args:
        constructor: what to call.
        place: the path of the section that gives the arguments.
        arguments: by name; the others are left to the constructor.
        written: the same as plain data for a config; arguments that are as by default are left out.
    """

    constructor: Constructor
    place: str
    arguments: dict[str, Any]
    written: dict[str, Any]

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
