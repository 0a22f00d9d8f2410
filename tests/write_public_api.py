"""Writes down all that is public: each name of the reference, with arguments and methods. Imports nothing.

python -m tests.write_public_api
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "data" / "public_api.txt"
HEADER = "# All that is public; docs/versions.md says what may change. python -m tests.write_public_api\n"

# Who uses the package does not call these.
_OF_THE_LANGUAGE = {"__getstate__", "__init__", "__post_init__", "__repr__", "__setstate__", "__slots__"}


def public_api(root: Path = ROOT) -> str:
    """Gives what is public in a checkout, a line for each argument and for each method of a class."""
    package = griffe.load("samplerkit", search_paths=[root], try_relative_path=False, allow_inspection=False)
    return HEADER + "".join(line for name in _names(root) for line in _told(name, _found(package, name)))


def _names(root: Path) -> list[str]:
    """The names that have a place in the reference, without the package in front."""
    pages = (page.read_text(encoding="utf-8") for page in (root / "docs" / "reference").glob("*.md"))
    return sorted(
        {name for page in pages for name in re.findall(r"^::: samplerkit\.(\S+)", page, re.MULTILINE)}
    )


def _found(package: griffe.Object | griffe.Alias, name: str) -> griffe.Object:
    # The table of `names` answers at run time; type checkers, and this, see the imports of the door.
    found = package[name]
    if found.is_module:  # perhaps of a function that bears its name
        found = found.members.get(name.rsplit(".", maxsplit=1)[-1], found)
    return found.final_target if isinstance(found, griffe.Alias) else found


def _told(name: str, found: griffe.Object) -> Iterator[str]:
    if isinstance(found, griffe.Function):
        yield f"{name}{_signature(found)}\n"
        return
    if isinstance(found, griffe.Module):
        for below, each in sorted(found.members.items()):
            if isinstance(each, griffe.Function | griffe.Class) and not below.startswith("_"):
                yield from _told(f"{name}.{below}", each)
        return
    assert isinstance(found, griffe.Class), name
    bases = ", ".join(str(base) for base in found.bases)
    yield f"class {name}({bases})\n"
    if name.endswith("Error") and name != "SamplerkitError":
        return  # all of them are made and read alike
    for argument in found.parameters:
        if argument.name != "self":
            yield f"    {_argument(argument)}\n"
    for member, each in sorted(found.all_members.items()):
        is_public = not member.startswith("_") or (member.startswith("__") and member not in _OF_THE_LANGUAGE)
        if is_public and not each.is_module:
            yield f"  .{member}{_of_member(each)}\n"


def _of_member(each: griffe.Object | griffe.Alias) -> str:
    if each.is_function:
        return _signature(each)
    if each.annotation is not None:
        return f": {each.annotation}"
    is_set_by_the_class = "class-attribute" in each.labels
    return f" = {each.value}" if is_set_by_the_class else ""


def _signature(found: griffe.Object | griffe.Alias) -> str:
    told = ", ".join(
        _argument(argument) for argument in found.parameters if argument.name not in {"self", "cls"}
    )
    return f"({told}) -> {found.returns}"


def _argument(argument: griffe.Parameter) -> str:
    kind = griffe.ParameterKind
    stars = {kind.var_positional: "*", kind.var_keyword: "**"}.get(argument.kind, "")
    told = stars + argument.name + ("" if argument.annotation is None else f": {argument.annotation}")
    told += "" if stars or argument.default is None else f" = {_default(argument.default)}"
    return told + (" (by name)" if argument.kind is kind.keyword_only else "")


def _default(written: str | griffe.Expr) -> str | griffe.Expr:
    """What is written as a default; in place of a constant of the package, its value."""
    if not isinstance(written, griffe.ExprName | griffe.ExprAttribute):
        return written
    name = written.first if isinstance(written, griffe.ExprAttribute) else written
    assert isinstance(name, griffe.ExprName)
    assert isinstance(name.parent, griffe.Object)
    found = name.parent.modules_collection[written.canonical_path]
    is_constant = isinstance(found, griffe.Attribute) and isinstance(found.parent, griffe.Module)
    return found.value if is_constant and found.value else written


def main() -> None:
    """Writes the file."""
    FILE.write_text(public_api(), encoding="utf-8")


if __name__ == "__main__":
    main()
