"""Writes the parts of the reference that come from the code: `python -m tests.docs.write_pages`.

The tables of options come from the functions behind the commands, those of a config from the constructors.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from samplerkit.cli.main import app
from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.datasets import DATASETS, REMOTE
from samplerkit.config.derive import default_of
from samplerkit.config.registry import BATCHES, EDIT, SAMPLERS, OpenSchema
from samplerkit.config.sections import LOADER, MIN_QUALITY
from samplerkit.loading.loader import Loader
from tests.docs.docstring import arguments, in_a_cell, summary

_VALUES = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}


def described() -> str:
    """Describes each command with what it takes."""
    return "".join(part for command in commands() for part in _described(command))


def commands() -> list[Callable[..., Any]]:
    """The functions behind the commands, in the order of the help."""
    return [info.callback for info in app.registered_commands if info.callback is not None]


@dataclass(frozen=True)
class Given:
    """What a command takes: an argument, or an option.

    Args:
        name: as it is typed.
        is_argument: whether it goes by its place.
        default: None if it is left out, `...` if it must be given.
        meaning: its help.
    """

    name: str
    is_argument: bool
    default: Any
    meaning: str


def _described(command: Callable[..., Any]) -> Iterator[str]:
    given = [_given(parameter) for parameter in inspect.signature(command).parameters.values()]
    arguments = [one.name for one in given if one.is_argument]
    usage = " ".join(["samplerkit", command.__name__, "[OPTIONS]", *arguments])
    yield f"\n## {command.__name__}\n\n{summary(command)}\n\n```text\n{usage}\n```\n"
    yield "\n| takes | default | meaning |\n|---|---|---|\n"
    for one in given:
        # A bar inside of code ends a cell for some readers of Markdown, and keeps its backslash for others.
        name = " or ".join(f"`{either}`" for either in one.name.split("|"))
        yield f"| {name} | {_shown(one.default)} | {in_a_cell(one.meaning)} |\n"


def _given(parameter: inspect.Parameter) -> Given:
    hint = parameter.annotation
    while get_origin(hint) is not Annotated:
        # An alias of an annotated type, or None.
        (hint,) = (member for member in get_args(hint) if member is not NoneType)
    kind, info = get_args(hint)
    default = ... if parameter.default is parameter.empty else parameter.default
    (kind, *_) = [member for member in get_args(kind) if member is not NoneType] or [kind]
    if isinstance(info, ArgumentInfo):
        name = (info.metavar or parameter.name.upper()) + ("..." if _is_list(get_args(hint)[0]) else "")
    else:
        # typer takes the first name for a default, as long as the hint is not annotated.
        names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
        names = names or [f"--{parameter.name.replace('_', '-')}"]
        name = ", ".join(sorted(names, key=len)) + (f" {_VALUES[kind]}" if kind in _VALUES else "")
    return Given(name, isinstance(info, ArgumentInfo), default, info.help or "")


def _shown(default: Any) -> str:
    if default is ...:
        return "required"
    return "" if default is None or default is False else f"`{default}`"


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list


def kinds_of(kinds: Kinds) -> str:
    """Describes all kinds of a section, and the sections in them."""
    return "".join([*_kinds(kinds), *_sections(kinds)])


def table_of(constructor: Constructor) -> str:
    """Describes the keys of a section."""
    return "".join(_table(constructor))


def _kinds(kinds: Kinds) -> Iterator[str]:
    for name in kinds:
        constructor = kinds[name]
        make = constructor.make
        # Other tests register samplers of theirs, doctests even under the name of a module of ours.
        is_of_tests = not make.__module__.startswith("samplerkit.")
        if not is_of_tests and getattr(sys.modules.get(make.__module__), make.__name__, None) is make:
            yield f"\n### {name}\n\n{summary(make)}\n"
            yield from _table(constructor)


def _sections(kinds: Kinds) -> Iterator[str]:
    """Arguments that are sections of their own, each once."""
    for name, section in (("remote", REMOTE), ("edits", EDIT)):
        of = [f"`{kind}`" for kind in kinds if name in kinds[kind].names]
        if of:
            yield f"\n### {name}\n\nA section inside of {' and '.join(of)}. {summary(section.make)}\n"
            yield from _table(section)


def _table(constructor: Constructor) -> Iterator[str]:
    schema = constructor.model.model_json_schema(mode="validation", schema_generator=OpenSchema)
    of_ours = arguments(Loader) if constructor is LOADER else {}
    said = {**of_ours, **_of_the_class(constructor.make), **arguments(constructor.make)}
    yield "\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for name in constructor.names:
        value = in_a_cell(_written(schema["properties"][name], schema.get("$defs", {})))
        default = default_of(constructor.model, name)
        shown = "required" if default is ... else _default(name, default)
        meaning = said.get(name) or summary(constructor.make)
        yield f"| `{name}` | {value} | {shown} | {in_a_cell(meaning)} |\n"


def _of_the_class(make: Any) -> dict[str, str]:
    """What the class says of arguments that a function hands on to it."""
    if inspect.isclass(make):
        return {}
    made = get_type_hints(make).get("return")
    return arguments(made) if made is not None else {}


def _default(name: str, default: Any) -> str:
    if default is None and name in ("num_shards", "shard_id"):
        return "`auto`"
    # A dataclass has a mark in place of an empty mapping that it makes again each time.
    plain = {} if repr(default) == "<factory>" else getattr(default, "value", default)
    return f"`{json.dumps(plain)}`"


def _written(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Says in words what a JSON Schema allows."""
    kind = schema.get("type", "any")
    if "not" in schema:
        return "function, from Python"
    if "$ref" in schema:
        return _written(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return _either(_written(one, definitions) for one in schema["anyOf"])
    if schema.get("pattern") == r"\.npy$":
        return "path of a `.npy` file"
    if kind == "array":
        entries = _written(schema.get("items", {}), definitions)
        return "list" if entries == "any" else f"list of {entries}s"
    literals = [True, False] if kind == "boolean" else schema.get("enum", [])
    literals = [schema["const"]] if "const" in schema else [None] if kind == "null" else literals
    return _either(map(_literal, literals)) if literals else {"object": "mapping"}.get(kind, kind)


def _either(values: Iterable[str]) -> str:
    # The mode "false" and the bool are written alike.
    *others, last = dict.fromkeys(values)
    return f"{', '.join(others)} or {last}" if others else last


def _literal(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN = re.compile(r"(<!-- written: (\w+) -->\n).*?(\n<!-- end -->\n)", re.DOTALL)


def _samplers() -> str:
    classes = [SAMPLERS[kind].make for kind in SAMPLERS]
    # Other tests register samplers of theirs.
    ours = [made.__name__ for made in classes if made.__module__.startswith("samplerkit.samplers.")]
    beside = ("Edit", "Shuffle", "Context", "RunConstants")
    base = "\n::: samplerkit.Sampler\n    options:\n      inherited_members: true\n"  # such as draw
    return base + "".join(f"\n::: samplerkit.{name}\n" for name in (*ours, *beside))


PARTS = {
    "sampler": partial(kinds_of, SAMPLERS),
    "dataset": partial(kinds_of, DATASETS),
    "batches": partial(kinds_of, BATCHES),
    "loader": partial(table_of, LOADER),
    "min_quality": partial(table_of, MIN_QUALITY),
    "commands": described,
    "samplers": _samplers,
}
"""The parts of pages, each between two comments that name it."""


def pages() -> dict[Path, str]:
    """Gives what each page with such parts should say."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    return {
        path: WRITTEN.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], text)
        for path, text in texts.items()
        if WRITTEN.search(text)
    }


def main() -> None:
    """Writes them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
