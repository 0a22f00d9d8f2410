"""Derives the pydantic model of a constructor from its signature and type hints.

The constructor is the single definition of its arguments: names, defaults and types come from it. Checks
that types cannot express, such as ranges, are made by the constructor when it is called. Arguments with a
special notation in a config, such as arrays, paths and `auto`, are annotated with a mark.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    WithJsonSchema,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from samplerkit.config.error_messages import below, unknown_name
from samplerkit.config.reading import Folder, array_at, join_path
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, SamplerkitError
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.storage.urls import is_remote

FROM_JOB = frozenset({"num_shards", "shard_id"})
"""Arguments that are taken from the running job if they are None; a config writes `auto`."""

KIND_OF = "x-kind-of"
"""A key with the name of a table; a placeholder in a schema for a section of any kind of the table."""

TABLES: dict[str, Any] = {}
"""All tables of kinds, by section. They are here because a hint of samplers needs the table of samplers,
whose module imports this one."""

_PREFIX = "argument_"
_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)
_LISTS = (list, Sequence, Iterable, Collection)


def derived_model(
    make: Callable[..., Any], kind: str, written: Mapping[str, Any], section: str
) -> type[BaseModel]:
    """Makes the pydantic model of the arguments that a config may give to a constructor.

    Args:
        make: a class or a function, whose parameters can all be given by name. The `**` of a function stands
            for the arguments of the class that it returns.
        kind: the name of the model.
        written: the types that a config writes for arguments whose hints do not define them; None for an
            argument that a config cannot set.
        section: the section of the config; the schema distinguishes models of the same name by it.

    Raises:
        ArgumentTypeError: a parameter cannot be given by name, or its type hint cannot be understood.

    Example:
        >>> import samplerkit as sk
        >>> model = derived_model(sk.SequentialSampler, "sequential", {}, "sampler")
        >>> arguments_of(model.model_validate({"start_index": 3}))
        {'start_index': 3}
    """
    fields: dict[str, Any] = {}
    try:
        for parameter, annotation in _parameters(make):
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                problem, hint = "cannot be given by name in a config", "name each argument of the constructor"
                raise ArgumentTypeError(parameter.name, problem, make, hint=hint)
            name = parameter.name
            argument = written[name] if name in written else _config_type(name, annotation)
            if argument is not None:
                # The prefix avoids clashes with pydantic's own names; a config writes the alias.
                fields[_PREFIX + name] = (argument, Field(default=_default(make, parameter), alias=name))
        return create_model(kind, __config__=_STRICT, __module__=section, **fields)
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        if isinstance(error, ArgumentTypeError):
            raise
        reason = str(error).partition("\n")[0]
        hint = "give hints that pydantic knows"
        raise ArgumentTypeError("type hints", f"cannot be understood ({reason})", make, hint=hint) from error


def _parameters(make: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Yields parameters and their hints; for the `**` of a function, those of the class that it returns."""
    # mypy does not know whose __init__ it is if the class is in a variable.
    hinted = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    hints = get_type_hints(hinted, include_extras=True)
    result = None if isinstance(make, type) else hints.get("return")
    parameters = inspect.signature(make).parameters
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and isinstance(result, type):
            yield from ((other, hint) for other, hint in _parameters(result) if other.name not in parameters)
        else:
            yield parameter, hints.get(parameter.name, Any)


def default_of(model: type[BaseModel], name: str) -> Any:
    """Returns the default of an argument, or `...` if it is required."""
    argument = model.model_fields[_PREFIX + name]
    return ... if argument.is_required() else argument.default


def arguments_of(validated: BaseModel) -> dict[str, Any]:
    """Returns the arguments that the config sets; the constructor has defaults for the others."""
    given = validated.model_fields_set
    return {name.removeprefix(_PREFIX): value for name, value in validated if name in given}


def _default(make: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Returns the default of a parameter, which a dataclass may make with a `default_factory`."""
    of_dataclass = getattr(make, "__dataclass_fields__", {}).get(parameter.name)
    if of_dataclass is not None and of_dataclass.default_factory is not dataclasses.MISSING:
        return of_dataclass.default_factory()
    return ... if parameter.default is parameter.empty else parameter.default


def _config_type(name: str, hint: Any) -> Any:
    """Translates the type hint of an argument into the type that a config may write for it."""
    members = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    # Since numpy 2.5, `NDArray[...]` is a type alias.
    members = [getattr(get_origin(member), "__value__", member) for member in members]
    kinds = [get_origin(member) or member for member in members]
    lists = [member for member, kind in zip(members, kinds, strict=True) if kind in _LISTS]
    is_path = os.PathLike in kinds
    written: list[Any] = []
    replaced: set[Any] = {*_LISTS, np.ndarray, os.PathLike, *((str,) if is_path else ())}
    if Shuffle in kinds:
        written.append(ShuffleArgument)
        replaced |= {Shuffle, str, bool}
    elif np.ndarray in kinds or (lists and not is_path):
        (entry, *_) = (*(get_args(lists[0]) if lists else ()), Any)
        entries: Any = GenericAlias(list, (_relaxed(entry),))
        written.append(Annotated[entries, ArrayArgument(entry, is_path)])
    elif is_path:
        written.append(Annotated[str, PathArgument])
    for member, kind in zip(members, kinds, strict=True):
        if _holds_samplers(member):
            written.insert(0, Annotated[Any, Sections(name, TABLES["sampler"], dict, (None,))])
        elif kind not in replaced:
            written.append(_relaxed(member))
    if name in FROM_JOB and NoneType in members:
        written.append(Annotated[Literal["auto"], AfterValidator(lambda _: None)])
    return Union[tuple(written)]  # noqa: UP007  # `|` takes no tuple


def _relaxed(hint: Any) -> Any:
    """Allows strings and lists for types that YAML does not have, such as enums, paths and tuples."""
    if hint is Hashable:
        return Annotated[Any, BeforeValidator(lambda key: tuple(key) if isinstance(key, list) else key)]
    plain = get_origin(hint) or hint
    relaxed = isinstance(plain, type) and issubclass(plain, Enum | PurePath | tuple | set | frozenset)
    return Annotated[hint, Strict(strict=False)] if relaxed else hint


_DTYPES = ((int, "iu", "integers"), (float, "iuf", "numbers"), (str, "U", "strings"))
"""Types of entries, the dtype kinds that hold them, and their names in error messages."""


@dataclass(frozen=True)
class ArrayArgument:
    """Marks an array: a list in the config itself, or the path of a `.npy` file.

    A member of a union with the list would do, but pydantic 2.7 to 2.10 take no list for a tuple there.

    Args:
        entry: the type of an entry.
        is_mapped: whether the constructor takes the path of a local file, and memory-maps the file.
    """

    entry: Any
    is_mapped: bool

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._read, handler(source))

    def _read(self, value: Any, inner: Any, info: Any) -> Any:
        if isinstance(value, list):
            return inner(value)
        if isinstance(value, np.ndarray):
            return Parsed(self._checked(value), value.tolist())
        if not isinstance(value, str):
            raise PydanticCustomError("list_type", "Input should be a valid list or the path of a .npy file")
        path = join_path(info.context["folder"], value)
        if self.is_mapped and path.endswith(".npy") and not is_remote(path):
            return Parsed(path, path)
        return Parsed(self._checked(array_at(path)), path)

    def _checked(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Checks dtype and shape; a mapped array may hold pairs, and is checked by the constructor."""
        for entry, kinds, noun in () if self.is_mapped else _DTYPES:
            if entry is self.entry and array.ndim != 1:
                raise ArgumentValueError("array", f"must be a flat array, and has the shape {array.shape}")
            if entry is self.entry and array.dtype.kind not in kinds:
                raise ArgumentValueError("array", f"must hold {noun}, and holds {array.dtype}"[:120])
        return array

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": r"\.npy$"}]}


def _read_paths(value: Any, info: Any) -> Parsed:
    paths = _join_paths(info.context["folder"], value)
    return Parsed(paths, paths)


PathArgument = AfterValidator(_read_paths)
"""Marks paths, also in lists and mappings; relative paths start from the folder of the config."""


def _join_paths(folder: Folder, value: Any) -> Any:
    if isinstance(value, list):
        return [_join_paths(folder, path) for path in value]
    if isinstance(value, dict):
        return {name: _join_paths(folder, path) for name, path in value.items()}
    return join_path(folder, value) if isinstance(value, str) else value


def _read_mode(value: Any, info: Any) -> Parsed:
    try:
        mode = Shuffle.parse(value)
    except SamplerkitError as error:
        place = below(info.context["place"], info.field_name.removeprefix(_PREFIX))
        raise unknown_name(place, error.problem, value, _MODES, hint="") from None
    return Parsed(mode, mode.value)


_MODES = [mode.value for mode in Shuffle]

ShuffleArgument = Annotated[Any, PlainValidator(_read_mode), WithJsonSchema({"enum": [*_MODES, True, False]})]
"""The argument that takes a shuffle mode."""


def _holds_samplers(hint: Any) -> bool:
    *_, entry = (None, *get_args(hint))
    return get_origin(hint) is Mapping and Sampler in (entry, *get_args(entry))


@dataclass(frozen=True)
class Parsed:
    """An object that was made from a section of a config, or from the sections of one argument.

    Args:
        value: the object.
        written: an equivalent section of a config; arguments with default values are left out.
        places: for a sampler, its path in the config and those of its children and of samplers in arguments,
            in the order of `Sampler._tree`.
    """

    value: Any
    written: Any
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Sections:
    """Marks an argument for which a config writes one or several sections, from which objects are made.

    The validated argument is a `Parsed`.

    Args:
        name: the name of the argument.
        reader: makes an object from a section: a `Constructor`, or a table of kinds.
        holder: the container of several sections: `list`, or `dict` for sections by name; None for one.
        others: values that are allowed in place of a section.
    """

    name: str
    reader: Any
    holder: Any = None
    others: tuple[Any, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._read)

    def _read(self, value: Any, info: Any) -> Any:
        place = below(info.context["place"], self.name)
        if self.holder is None:
            return self._make(value, place, info)
        is_list = self.holder is list
        if not isinstance(value, self.holder):
            expected = "list of mappings" if is_list else f"mapping of names to {self.reader.section}s"
            raise ArgumentValueError(self.name, f"must be a {expected}")
        sections: dict[Any, Any] = dict(enumerate(value) if is_list else value)
        parts = {key: self._make(part, below(place, key), info) for key, part in sections.items()}
        if is_list:
            return Parsed([part.value for part in parts.values()], [part.written for part in parts.values()])
        values = {key: part.value for key, part in parts.items()}
        written = {key: part.written for key, part in parts.items()}
        return Parsed(values, written, [path for _, part in sorted(parts.items()) for path in part.places])

    def _make(self, section: Any, place: str, info: Any) -> Parsed:
        if any(section is other for other in self.others):
            return Parsed(section, section)
        parsed: Parsed = self.reader.read(section, place, info.context["folder"])
        return parsed

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        model = getattr(self.reader, "model", None)
        # The schema of a table is filled in later, when all kinds are known.
        entry = {KIND_OF: self.reader.section} if model is None else handler(model.__pydantic_core_schema__)
        if self.others:
            entry = {"anyOf": [entry, *({"const": other} for other in self.others)]}
        if self.holder is list:
            return {"type": "array", "items": entry}
        return {"type": "object", "additionalProperties": entry} if self.holder else entry
