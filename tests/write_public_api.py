"""Records the public API: each name of the reference, with arguments and methods. Imports nothing.

python -m tests.write_public_api
"""

import re
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "data" / "public_api.txt"
HEADER = "# All that is public; docs/versions.md says what may change. python -m tests.write_public_api\n"

# Users of the package do not call these.
_OF_THE_LANGUAGE = {"__getstate__", "__init__", "__post_init__", "__repr__", "__setstate__", "__slots__"}


def public_api(root: Path = ROOT) -> str:
    """Returns the public API of a checkout, a line for each argument and for each method of a class."""
    package = griffe.load("samplerkit", search_paths=[root], try_relative_path=False, allow_inspection=False)
    return HEADER + "".join(line for name in _names(root) for line in _lines_of(name, _find(package, name)))


def _names(root: Path) -> list[str]:
    """The names in the reference, without the package in front."""
    pages = (page.read_text(encoding="utf-8") for page in (root / "docs" / "reference").glob("*.md"))
    return sorted(
        {name for page in pages for name in re.findall(r"^::: samplerkit\.(\S+)", page, re.MULTILINE)}
    )


def _find(package: griffe.Object | griffe.Alias, name: str) -> griffe.Object:
    # The table of `names` is used at run time; type checkers, and this, read the imports of `__init__.py`.
    item = package[name]
    if item.is_module:  # perhaps of a function of the same name
        item = item.members.get(name.rsplit(".", maxsplit=1)[-1], item)
    return item.final_target if isinstance(item, griffe.Alias) else item


def _lines_of(name: str, item: griffe.Object) -> Iterator[str]:
    if isinstance(item, griffe.Function):
        yield f"{name}{_signature(item)}\n"
        return
    if isinstance(item, griffe.Module):
        for below, each in sorted(item.members.items()):
            if isinstance(each, griffe.Function | griffe.Class) and not below.startswith("_"):
                yield from _lines_of(f"{name}.{below}", each)
        return
    assert isinstance(item, griffe.Class), name
    bases = ", ".join(str(base) for base in item.bases)
    yield f"class {name}({bases})\n"
    if name.endswith("Error") and name != "SamplerkitError":
        return  # all of them have the same arguments and attributes
    for argument in item.parameters:
        if argument.name != "self":
            yield f"    {_argument(argument)}\n"
    for member, each in sorted(item.all_members.items()):
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


def _signature(item: griffe.Object | griffe.Alias) -> str:
    arguments = ", ".join(
        _argument(argument) for argument in item.parameters if argument.name not in {"self", "cls"}
    )
    return f"({arguments}) -> {item.returns}"


def _argument(argument: griffe.Parameter) -> str:
    kind = griffe.ParameterKind
    stars = {kind.var_positional: "*", kind.var_keyword: "**"}.get(argument.kind, "")
    text = stars + argument.name + ("" if argument.annotation is None else f": {argument.annotation}")
    text += "" if stars or argument.default is None else f" = {_default(argument.default)}"
    return text + (" (by name)" if argument.kind is kind.keyword_only else "")


def _default(default: str | griffe.Expr) -> str | griffe.Expr:
    """The text of a default; in place of a constant of the package, its value."""
    if not isinstance(default, griffe.ExprName | griffe.ExprAttribute):
        return default
    name = default.first if isinstance(default, griffe.ExprAttribute) else default
    assert isinstance(name, griffe.ExprName)
    assert isinstance(name.parent, griffe.Object)
    item = name.parent.modules_collection[default.canonical_path]
    is_constant = isinstance(item, griffe.Attribute) and isinstance(item.parent, griffe.Module)
    return item.value if is_constant and item.value else default


def main() -> None:
    """Writes the file."""
    FILE.write_text(public_api(), encoding="utf-8")


if __name__ == "__main__":
    main()
