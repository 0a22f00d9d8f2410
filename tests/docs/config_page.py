"""The page on what a config may say, from the constructors and their JSON Schema."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.datasets import DATASETS
from samplerkit.config.derive import default_of
from samplerkit.config.loader import LOADER
from samplerkit.config.quality import MIN_QUALITY
from samplerkit.config.registry import BATCHES, SAMPLERS
from samplerkit.config.schema import OpenSchema
from samplerkit.loading.loader import Loader
from tests.docs.docstring import arguments, in_a_cell, summary

NAME = "config.md"

_HEAD = """# Configs

This page is written by `python -m tests.docs.write_pages`, from the constructors. `samplerkit schema` prints
the same as JSON Schema, for editors; `samplerkit validate CONFIG` says whether a config is right.

```yaml
dataset: {kind: layout, sizes: [5000, 7000, 300]}
sampler:
  kind: distributed
  shuffle: global
  seed: 7
  child: {kind: sequential, start_index: 100}
loader: {batch_size: 256, num_workers: 4}
min_quality: 0.5
```

| section | says | left out |
|---|---|---|
| `dataset` | what is read, or how many samples lie in which files | pass your dataset from Python |
| `sampler` | the order | an error: each config has one |
| `batches` | which samples stand together, where they are unlike | batches of `loader.batch_size` |
| `loader` | how batches are handed over | batches of one, no workers |
| `min_quality` | how well the order must mix | any order will do |

Relative paths start from the folder of the config. A key that is not known, comes twice or has a value of the
wrong type is an error with the path of the key and what was meant. Arrays are lists, or the path of a `.npy`
file, which is the better one for long lists: a config of more than 16 MiB is refused, and of more than 1 MiB
where PyYAML was built without libyaml. What the tables call None is `null` in YAML.

A section picks its class by `kind`. A sampler may also be named Hydra's way, with
`_target_: samplerkit.RandomSampler`, or LightningCLI's, with `class_path: samplerkit.RandomSampler` and
`init_args`.
"""

_OF_SAMPLERS = """
`kind` picks one. `child` is another sampler, from whose samples this one draws; a mode that knows files
belongs to the innermost one. Samplers of your own are kinds too, after `register_sampler`.
"""

_OF_DATASETS = """
`kind` picks one. `size` and `layout` tell only how many samples there are; the samples come from a dataset
that you give from Python, or from nowhere, for `samplerkit plan`.
"""

_OF_BATCHES = """
`kind` picks one; recipes of your own are kinds too, after `register_batches`. Beside it, `loader.batch_size`
and `min_quality` are refused. The file of `lengths` may be made later, by `samplerkit lengths`: it is mapped
when the first batch is made. What is a function is given from Python. See [batches](../batches.md).
"""

_OF_LOADERS = """
Options of a loader. Those from `tail` on are for `config.make_loader`, which makes a samplerkit `Loader`;
`config.dataloader`, which makes torch's, refuses them.
"""

_OF_QUALITY = """
A number is the least `mixing`; a section can say more. An order that falls short is an error when the config
is loaded. See [quality](../quality.md).
"""


def page() -> str:
    """Writes the page."""
    parts = [_HEAD]
    for title, note, kinds in (
        ("sampler", _OF_SAMPLERS, SAMPLERS),
        ("dataset", _OF_DATASETS, DATASETS),
        ("batches", _OF_BATCHES, BATCHES),
    ):
        parts += [f"\n## {title}\n", note, *_kinds(kinds), *_sections(kinds)]
    for title, note, constructor in (
        ("loader", _OF_LOADERS, LOADER),
        ("min_quality", _OF_QUALITY, MIN_QUALITY),
    ):
        parts += [f"\n## {title}\n", note, *_table(constructor)]
    return "".join(parts)


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
    found: dict[str, tuple[Constructor, list[str]]] = {}
    for kind in kinds:
        for name, section in kinds[kind].sections.items():
            found.setdefault(name, (section, []))[1].append(f"`{kind}`")
    for name, (section, of) in found.items():
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
    # A dataclass has a mark in place of an empty mapping that it makes anew each time.
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
